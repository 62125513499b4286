"""What if: an engine with the objects of a cluster, real or changed, decides, and says what comes of it.

The engine is one that nothing else uses: the caller builds it from objects, and it is of no more use after.
Its cycles run at one instant until nothing more can be decided, as if each decision were carried out at once;
then a forecast says when what still waits is expected to start. So the answer is made by the code that
decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from admission.cache.workload_record import Problem
from admission.decisions.decision import Admit, Evict, Wait
from admission.engine.engine import Engine
from api.workload import WorkloadKey

# Each cycle decides on a head at least once more, so that this many end any cluster that can be read.
_MOST_CYCLES = 100_000
# Starts that differ by less are the same: promises are whole seconds.
_LEAST_CHANGE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What becomes of the Workloads that wait.

    `starts` are Unix seconds, the present for one that starts at once or as soon as those evicted for it have
    stopped. A Workload that is not in it has no known start. `evicted` maps Workloads that are evicted to
    those they are evicted for. `waits` is why the others wait. `promised` start at once or have a promise: by
    then at the latest, if work ends as it declares and no queue takes quota back; other starts are forecast.
    """

    starts: Mapping[WorkloadKey, float]
    promised: Collection[WorkloadKey] = frozenset()
    evicted: Mapping[WorkloadKey, WorkloadKey | None] = field(default_factory=dict)
    waits: Mapping[WorkloadKey, Problem] = field(default_factory=dict)

    def start_of(self, key: WorkloadKey) -> float:
        """Return when the Workload starts (Unix seconds), infinity if that is not known."""
        return self.starts.get(key, inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What changes for a Workload: its start before and after (Unix seconds, infinity for none known)."""

    key: WorkloadKey
    before: float
    after: float
    is_evicted: bool = False


def differences(
    before: Played, after: Played, *, without: Collection[WorkloadKey] = ()
) -> tuple[Difference, ...]:
    """Return what differs between two outcomes, by Workload; evictions first. `without`: those left out."""
    evicted = [
        Difference(key=key, before=before.start_of(key), after=after.start_of(key), is_evicted=True)
        for key in sorted(after.evicted.keys() - before.evicted.keys())
    ]
    moved = [
        Difference(key=key, before=before.start_of(key), after=after.start_of(key))
        for key in sorted(before.starts.keys() | after.starts.keys())
        if abs(_finite(before.start_of(key)) - _finite(after.start_of(key))) > _LEAST_CHANGE_SECONDS
    ]
    return tuple(one for one in (*evicted, *moved) if one.key not in without)


def _finite(at: float) -> float:
    """Return the start, and for none a time beyond all others that can be subtracted."""
    return min(at, 1e18)


def play(engine: Engine, *, now: float) -> Played:
    """Let the engine decide at `now` (Unix seconds) until it rests, and forecast the starts of the rest."""
    starts: dict[WorkloadKey, float] = {}
    evicted: dict[WorkloadKey, WorkloadKey | None] = {}
    waits: dict[WorkloadKey, Problem] = {}
    for _ in range(_MOST_CYCLES):
        if not engine.wake_heads(now=now):
            break
        for decision in engine.cycle(now=now):
            match decision:
                case Admit():
                    starts[decision.key] = now
                case Evict():
                    evicted[decision.key] = decision.preemptor
                case Wait():
                    waits[decision.key] = decision.reason, decision.message
    promised = {**starts, **{planned.key: planned.start_at for planned in engine.promises.plan()[0]}}
    # Once its victims have stopped, which takes no longer than their grace.
    promised |= {preemptor: now for preemptor in evicted.values() if preemptor is not None}
    forecast = engine.forecasts.begin(now=now)
    while forecast is not None and forecast.step():
        pass
    starts = {**(forecast.starts if forecast is not None else {}), **promised}
    return Played(
        starts={key: at for key, at in starts.items() if engine.queues.can_start(key)},
        promised=frozenset(promised),
        evicted=evicted,
        waits={key: why for key, why in waits.items() if starts.get(key, inf) > now},
    )
