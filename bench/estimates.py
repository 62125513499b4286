"""How good expected starts are, on a trace: `python -m bench.estimates --jobs jobs.csv`. No clock, no server.

    python -m bench.estimates --jobs jobs.csv [--policy easy] [--nodes 138x8] [--every 1800] [--learned]

The engine runs the trace on a virtual clock, and starts are forecast every so many seconds as a controller
does (every 30 s there). Of each Workload that waits, the first expected start and its interval count: a user
looks when it is submitted. The output is the share of starts within the interval, the median error, and that
error relative to what counts as good, ten minutes or 15% of the wait if that is more. It is compared with
what a user would guess without forecasts: the average of the last 20 waits. Nothing is asserted.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from admission.cli.common.arguments import NodeCounts, node_counts
from admission.engine.engine import Engine
from admission.simulation.figures import figures_of
from admission.simulation.policies import POLICIES
from admission.simulation.settings import EstimateKind, Setting, check_fits
from admission.simulation.traces import first_submitted, read_trace
from admission.simulation.virtual_run import PolicyRun, simulate
from api.workload import WorkloadKey
from queues.estimates.start_errors import StartInterval

_GOOD_SECONDS = 600.0
_GOOD_SHARE = 0.15
_AVERAGED = 20


class First(NamedTuple):
    """The first estimate of a Workload, in Unix seconds."""

    made_at: float
    at: float
    interval: StartInterval


@dataclass(slots=True)
class Watcher:
    """Forecasts starts at intervals, and keeps the first estimate of each Workload by the name of its Job."""

    every_seconds: float
    first: dict[str, First] = field(default_factory=dict)
    _next_at: float = 0.0

    def __call__(self, engine: Engine, now: float) -> None:
        """Forecast if it is time."""
        if now < self._next_at:
            return
        self._next_at = now + self.every_seconds
        forecast = engine.forecasts.begin(now=now)
        if forecast is None:
            return
        while forecast.step():
            pass
        engine.forecasts.take(forecast, most=len(forecast.starts), now=now)
        for key in sorted(forecast.starts):
            self._note(engine, key, now)
        for planned in engine.promises.plan()[0]:
            self._note(engine, planned.key, now)

    def _note(self, engine: Engine, key: WorkloadKey, now: float) -> None:
        at, interval = engine.promises.expected_start(key), engine.promises.start_interval(key)
        if key.name not in self.first and at is not None and interval is not None:
            self.first[key.name] = First(now, at, interval)


def report(run: PolicyRun, first: dict[str, First]) -> None:
    """Print the figures."""
    started = {f"{one.job.tenant}-{one.job.id}": one for one in run.courses if one.first_start_at is not None}
    pairs = [(one, started[name].first_start_at or 0.0, started[name]) for name, one in first.items()]
    if not pairs:
        print("no Workload waited until a forecast; give more Jobs, fewer nodes or a shorter --every")
        return
    waits = [at - one.made_at for one, at, _ in pairs]
    inside = sum(one.interval.earliest_at <= at <= one.interval.latest_at for one, at, _ in pairs)
    early = sum(at < one.interval.earliest_at for one, at, _ in pairs)
    average = _average_before([(c.first_start_at or 0.0, c.job.submitted_at) for c in started.values()])
    _print("expected starts", [abs(at - one.at) for one, at, _ in pairs], waits)
    guesses = [abs(max(one.made_at, c.job.submitted_at + average(one.made_at)) - at) for one, at, c in pairs]
    _print(f"average of {_AVERAGED} waits", guesses, waits)
    print(f"in the interval    {inside / len(pairs):.1%} of {len(pairs):,}, {early / len(pairs):.1%} earlier")


def _average_before(starts: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return the average wait of the last starts before an instant, by it. `starts`: start and submit."""
    in_order = sorted(starts)
    instants = [at for at, _ in in_order]

    def average(now: float) -> float:
        end = bisect_left(instants, now)
        recent = [at - submitted for at, submitted in in_order[max(0, end - _AVERAGED) : end]]
        return sum(recent) / len(recent) if recent else 0.0

    return average


def _print(name: str, errors: Sequence[float], waits: Sequence[float]) -> None:
    good = [max(_GOOD_SECONDS, _GOOD_SHARE * wait) for wait in waits]
    relative = median(error / most for error, most in zip(errors, good, strict=True))
    print(f"{name:<18} median error {median(errors) / 60:.1f} min, {relative:.2f} of what is good")


def main() -> None:
    """Print how good expected starts are."""
    parser = argparse.ArgumentParser(prog="python -m bench.estimates", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--nodes", type=node_counts, default=NodeCounts(count=138, gpus_per_node=8))
    parser.add_argument("--policy", choices=sorted(POLICIES), default="easy")
    parser.add_argument("--every", type=float, default=1800.0, help="seconds between forecasts")
    parser.add_argument("--limit", type=int, help="the first so many Jobs by submit time; default: all")
    parser.add_argument("--learned", action="store_true", help="no Job declares its run time")
    asked = parser.parse_args()
    jobs = first_submitted(read_trace(asked.jobs), asked.limit)
    setting = Setting(
        nodes=asked.nodes.count,
        gpus_per_node=asked.nodes.gpus_per_node,
        estimates=EstimateKind(is_learned=asked.learned),
    )
    check_fits(jobs, setting)
    watcher = Watcher(asked.every)
    run = simulate(jobs, setting, POLICIES[asked.policy], watch=watcher)
    figures = figures_of(run, gpus=setting.gpus)
    report(run, watcher.first)
    print(f"promises           {figures.promises:,}, broken {figures.promises_broken}")


if __name__ == "__main__":
    main()
