"""A world with a clock that jumps: Workloads run as long as they really do, whatever they declare.

Time goes from event to event: work ends, an eviction is over, or the engine asks to be woken. After each, the
engine decides until it rests, with its invariants checked after every cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from admission.decisions.decision import Admit, Decision, Evict, Plan, Wait
from api.keys import EXPECTED_RUNTIME_SECONDS
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.policy import AdmissionPolicy, Backfill, BackfillMode, Estimates
from api.reasons import ConditionType
from api.workload import WorkloadKey
from queues.profile.planned_start import MoveCause, PlannedStart
from tests.builders import (
    NAMESPACE,
    World,
    admitted,
    finished,
    make_condition,
    make_pod_set,
    make_workload,
    released,
    with_conditions,
)

GRACE_SECONDS = 5
# An eviction takes the grace of these pods, here a second less than Berth allows for.
STOP_SECONDS = GRACE_SECONDS + 4


def make_policy(mode: BackfillMode = BackfillMode.EASY, **fields: Any) -> AdmissionPolicy:
    """Return a policy with backfill for all ClusterQueues; `fields` are those of the section."""
    estimates = fields.pop("estimates", Estimates())
    if mode is BackfillMode.CONSERVATIVE:
        fields.setdefault("reservation_depth", 100)
    return AdmissionPolicy(
        name="policy",
        backfill=Backfill(mode=mode, **{"resolution_seconds": 1, "ending_seconds": 0, **fields}),
        estimates=estimates,
    )


@dataclass(slots=True)
class TimedWorld(World):
    """The world, and what happened in it: starts, evictions and ends of Workloads, and their promises."""

    lengths: dict[str, float] = field(default_factory=dict)
    arrivals: list[tuple[float, Any]] = field(default_factory=list)
    ends: dict[str, float] = field(default_factory=dict)
    stops: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    evicted: dict[str, list[float]] = field(default_factory=dict)
    plans: dict[str, list[PlannedStart | None]] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)
    leased: set[str] = field(default_factory=set)

    def submit(
        self,
        name: str,
        gpus: int = 1,
        *,
        runs: float,
        says: float | None = None,
        at: float | None = None,
        created_at: float | None = None,
        **fields: Any,
    ) -> None:
        """Let a Workload arrive that runs so long and says so (or `says` otherwise, 0: nothing).

        It is created as it arrives, or at `created_at`: an API server knows whole seconds only.
        """
        at = self.now if at is None else at
        declared = runs if says is None else says
        annotations = dict(fields.pop("annotations", {}))
        if declared:
            annotations[EXPECTED_RUNTIME_SECONDS] = str(int(declared))
        pods = fields.pop("pod_sets", (make_pod_set(template=template(gpus)),))
        created_at = at if created_at is None else created_at
        workload = make_workload(name, at=created_at, pod_sets=pods, annotations=annotations, **fields)
        self.lengths[name] = runs
        self.arrivals.append((at, workload))

    def run(self, until: float = 10_000_000.0, most: int = 5_000) -> None:
        """Let time pass until that instant, or until nothing more happens."""
        for _ in range(most):
            self._arrive()
            self._decide()
            at = self._next_at()
            if at is None or at > until:
                self.now = max(self.now, until) if until < 10_000_000 else self.now
                return
            self.now = max(at, self.now)
            self._end_what_is_due()
        raise AssertionError(f"time does not pass: still at {self.now} after {most} events")

    def promised(self, name: str) -> list[float]:
        """Return the starts promised to a Workload, one after the other."""
        return [planned.start_at for planned in self.plans.get(name, ()) if planned is not None]

    def causes(self, name: str) -> list[MoveCause | None]:
        """Return why its promise moved later, each time."""
        plans = [planned for planned in self.plans.get(name, ()) if planned is not None]
        return [b.cause for a, b in pairwise(plans) if b.moves > a.moves]

    # --- within ---

    def _arrive(self) -> None:
        due = sorted(
            (one for one in self.arrivals if one[0] <= self.now), key=lambda one: (one[0], one[1].uid)
        )
        self.arrivals = [one for one in self.arrivals if one[0] > self.now]
        for _, workload in due:
            self.put(workload)

    def _decide(self) -> None:
        for _ in range(500):
            if not self.engine.wake_heads(now=self.now):
                return
            for decision in self.cycle():
                self._carry_out(decision)
        raise AssertionError(f"still deciding at {self.now}")

    def _carry_out(self, decision: Decision) -> None:
        name = decision.key.name
        match decision:
            case Admit():
                if decision.on_lease:
                    self.leased.add(decision.key.name)
                # An admission takes back that it was evicted, in the same write.
                condition = make_condition(ConditionType.EVICTED, False, at=self.now)
                self.put(
                    admitted(with_conditions(self.get(name), condition), decision.admission, at=self.now)
                )
                self.started[name] = self.now
                self.ends[name] = self.now + self.lengths[name]
            case Evict():
                condition = make_condition(ConditionType.EVICTED, reason=decision.reason, at=self.now)
                self.put(with_conditions(self.get(name), condition))
                self.evicted.setdefault(name, []).append(self.now)
                self.stops[name] = self.now + STOP_SECONDS
                self.ends.pop(name, None)
            case Plan():
                self.plans.setdefault(name, []).append(decision.planned)
            case Wait():
                self.said.setdefault(name, []).append(decision.message)

    def _next_at(self) -> float | None:
        instants = [*self.ends.values(), *self.stops.values(), *(at for at, _ in self.arrivals)]
        wake_at = self.engine.next_wake_at()
        if wake_at is not None:
            instants.append(wake_at)
        return min(instants, default=None)

    def _end_what_is_due(self) -> None:
        for name in [name for name, at in self.ends.items() if at <= self.now]:
            del self.ends[name]
            self.ended[name] = self.now
            self.put(finished(self.get(name)))
        for name in [name for name, at in self.stops.items() if at <= self.now]:
            del self.stops[name]
            self.put(released(self.get(name), at=self.now))


def template(gpus: int, *, grace: int = GRACE_SECONDS) -> WirePodTemplate:
    """Return the template of a pod with `gpus` GPUs and `grace` seconds of grace."""
    container = WireContainer(name="c", resources=WireResources(requests={"gpu": str(gpus)}))
    return WirePodTemplate(spec=WirePodSpec(containers=(container,), termination_grace_period_seconds=grace))


def key(name: str) -> WorkloadKey:
    """Return the key of a Workload of the tests' namespace."""
    return WorkloadKey(NAMESPACE, name)
