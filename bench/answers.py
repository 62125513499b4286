"""How true answers are: `python -m bench.answers`. No API server, no Redis, no clock.

    python -m bench.answers [--count 200] [--seed 0] [--errors 0.0]

Random clusters of nodes in racks, under conservative or EASY backfill, with a queue for each team, run on a
virtual clock until a random instant. Each is asked one question, and what it answers is played to its end:

    help       the first entry of what would help a random pending Workload is applied: does the Workload
               start at or before the start that the entry names?
    what-if    a random Workload is submitted: does it start within the interval of the answer?

Work runs as long as it declares, or by `--errors E` up to so much shorter or longer. The output is the share
of answers that were true, and each that was not, by its seed. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import msgspec

from admission.answers.explaining.answer import whole_answer
from admission.answers.explaining.trials import found_remedies
from admission.answers.what_if import Asker, Question, what_if
from admission.controller.queries.copies import ask_in_copy
from api.keys import EXPECTED_RUNTIME_SECONDS
from api.parsing.times import to_rfc3339, to_seconds
from api.policy import Backfill, BackfillMode
from api.workload import Workload, WorkloadKey
from bench.cluster import NAMESPACE, Cluster
from bench.promises import cluster_objects, random_workload

_NODES = 8
_QUEUES = 4
# Starts are shown in whole seconds.
_SECOND = 1.0


class Outcome(NamedTuple):
    """An answer and what came of it. Times are seconds from the question, infinity for never."""

    seed: int
    what: str
    earliest: float
    latest: float
    started: float

    @property
    def is_true(self) -> bool:
        """Whether the start was as answered."""
        return self.earliest - _SECOND <= self.started <= self.latest + _SECOND


@dataclass(slots=True)
class Play:
    """A cluster whose work ends: each Workload runs its declared time, times a factor of its own."""

    cluster: Cluster
    chance: random.Random
    errors: float
    now: float = 0.0
    _ends: list[tuple[float, WorkloadKey]] = field(default_factory=list)
    _noted: set[WorkloadKey] = field(default_factory=set)

    def go(self, until: float, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until that instant (Unix seconds), or until it is over or nothing more happens."""
        self._decide()
        while not is_over():
            wake_at = self.cluster.engine.next_wake_at()
            at = min(self._ends[0][0] if self._ends else inf, inf if wake_at is None else wake_at)
            if at > until or at == inf:
                break
            self.now = max(self.now, at)
            while self._ends and self._ends[0][0] <= self.now:
                self.cluster.end(heapq.heappop(self._ends)[1], self.now)
            self._decide()
        if until < inf:
            self.now = max(self.now, until)

    def start_of(self, key: WorkloadKey) -> float:
        """Return in how many seconds the Workload starts, infinity for never."""
        asked_at = self.now
        self.go(inf, is_over=lambda: key in self.cluster.running)
        return self.now - asked_at if key in self.cluster.running else inf

    def _decide(self) -> None:
        self.cluster.decide(self.now)
        for key in self.cluster.running:
            if key not in self._noted:
                self._noted.add(key)
                declared = float(self.cluster.workloads[key].annotations[EXPECTED_RUNTIME_SECONDS])
                error = self.chance.uniform(-self.errors, self.errors)
                heapq.heappush(self._ends, (self.now + declared * (1 + error), key))


def make_play(seed: int, errors: float) -> Play:
    """Return a random cluster at a random instant."""
    chance = random.Random(seed)
    play = Play(Cluster(), chance, errors)
    for value in cluster_objects(_QUEUES, _NODES, backfill=_random_backfill(chance)):
        play.cluster.put(value, 0.0)
    for number in range(chance.choice((20, 40, 80))):
        play.cluster.put(random_workload(chance, number, _QUEUES), 0.0)
    play.go(chance.uniform(10, 6000))
    return play


def _random_backfill(chance: random.Random) -> Backfill:
    mode = chance.choice((BackfillMode.CONSERVATIVE, BackfillMode.EASY))
    return Backfill(mode=mode, reservation_depth=chance.choice((1, 3, 8)))


def ask_help(seed: int, errors: float) -> Outcome | None:
    """Return what came of the first help for a random pending Workload; None if it has none."""
    play = make_play(seed, errors)
    waiting = _waiting(play)
    if not waiting:
        return None
    workload, now = play.chance.choice(waiting), play.now
    engine = play.cluster.engine
    answer = whole_answer(engine, workload, now=now)
    found = found_remedies(engine, answer, ask_in_copy, now=now, is_over=lambda: False)
    if not found:
        return None
    play.cluster.put(found[0].changed, now)
    return Outcome(seed, found[0].change, 0.0, found[0].start_at - now, play.start_of(workload.key))


def ask_what_if(seed: int, errors: float) -> Outcome | None:
    """Return what came of a random submission; None if it would start at once or is not known to start."""
    play = make_play(seed, errors)
    now = play.now
    workload = replace(random_workload(play.chance, 9999, _QUEUES), created_at=float(int(now)))
    question = Question(objects=(_manifest(workload),), namespace=NAMESPACE)
    answer = ask_in_copy(lambda: what_if(play.cluster.engine, question, ask_in_copy, Asker(now=now)))
    (one,) = answer.workloads
    if one.earliest_start is None or one.latest_start is None:
        return None
    play.cluster.put(workload, now)
    between = to_seconds(one.earliest_start) - now, to_seconds(one.latest_start) - now
    what = "promised" if one.is_promised else "expected"
    return Outcome(seed, what, *between, play.start_of(workload.key))


def _waiting(play: Play) -> list[Workload]:
    engine = play.cluster.engine
    known = play.cluster.workloads.values()
    return [one for one in known if engine.workloads.is_waiting(one.uid)]


def _manifest(workload: Workload) -> dict[str, Any]:
    """Return the Workload as a client writes it."""
    pod_sets = [
        {
            "name": one.name,
            "count": one.count,
            "template": msgspec.to_builtins(one.template),
            **({"topologyRequest": {"required": "rack"}} if one.topology_request is not None else {}),
        }
        for one in workload.pod_sets
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": workload.key.name,
            "namespace": workload.key.namespace,
            "uid": workload.uid,
            "creationTimestamp": to_rfc3339(workload.created_at),
            "annotations": dict(workload.annotations),
        },
        "spec": {"queueName": workload.queue_name, "podSets": pod_sets},
    }


def outcomes(
    ask: Callable[[int, float], Outcome | None], *, count: int, seed: int, errors: float
) -> list[Outcome]:
    """Return the outcomes of the first `count` questions that have an answer, from this seed on."""
    found: list[Outcome] = []
    while len(found) < count:
        outcome = ask(seed, errors)
        seed += 1
        if outcome is not None:
            found.append(outcome)
    return found


def _report(name: str, found: list[Outcome]) -> None:
    for one in found:
        if not one.is_true:
            print(
                f"  seed {one.seed}: {one.what}: {one.earliest:.0f} to {one.latest:.0f} s answered,"
                f" started after {one.started:.0f} s"
            )
    good = sum(one.is_true for one in found)
    print(f"{name:<8} {good} of {len(found)} starts as answered ({good / len(found):.1%})", flush=True)


def main() -> None:
    """Print how many answers were true."""
    parser = argparse.ArgumentParser(prog="python -m bench.answers", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="questions of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of the first cluster")
    parser.add_argument("--errors", type=float, default=0.0, help="of declared run times, as a share")
    asked = parser.parse_args()
    for name, ask in (("help", ask_help), ("what-if", ask_what_if)):
        _report(name, outcomes(ask, count=asked.count, seed=asked.seed, errors=asked.errors))


if __name__ == "__main__":
    main()
