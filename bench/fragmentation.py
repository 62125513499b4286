"""Packing of GPU shares on Alibaba's trace openb: `python -m bench.fragmentation --data DIR`.

    python -m bench.fragmentation --data ../shared/data/openb [--seeds 10] [--strategies ours,fgd] [--out F]

DIR holds nodes.csv (cpu_milli, memory_mib, gpu) and pods.csv (cpu_milli, memory_mib, num_gpu, gpu_milli).
Tasks are drawn with replacement, in random order, and stay for ever, until 130% of all GPUs are asked for.
A task that fits no node is dropped. The figure is the share of all GPUs that is allocated once 100% and 130%
are asked for.

    random      any node that holds the task, any GPU of it
    best-fit    the node with the least left of CPU and GPUs together, the fullest GPU that holds it
    fgd         the published gradient of fragmentation, with the mix of the trace
    ours        `admission.placement.fragmentation` as placement uses it: the mix is that of the tasks so far

The published figures are means over 10 seeds of the authors' simulator, which draws the tasks likewise.
Exit code 0 and one line where DIR does not exist.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from admission.placement.fragmentation import Demand, Gradient, NodeState, outcomes
from admission.placement.fragmentation_mix import DemandMix
from admission.placement.top_candidate import CandidateFamily, RankedCandidate, TopCandidate
from api.jobs.gpu_share import WHOLE

PUBLISHED = {"random": (86.30, 87.47), "best-fit": (92.86, 93.08), "fgd": (95.23, 95.39)}
STRATEGIES = ("random", "best-fit", "fgd", "ours")
_UNTIL = (1.0, 1.3)
# The largest node, by which CPU and GPUs are compared in best fit.
_LARGEST_CPU, _LARGEST_GPU = 131_072, 8 * WHOLE
# Nodes that are tried at random before all of them are.
_DRAWS = 30
_FAMILY = CandidateFamily(0, 0, ())


class Task(NamedTuple):
    """One task: its demand, and its memory in MiB."""

    demand: Demand
    memory_mib: int


@dataclass(slots=True)
class Node:
    """One node: what it has free."""

    state: NodeState
    memory_mib: int


Score = Callable[[int, Task], tuple[object, NodeState] | None]


@dataclass(slots=True)
class Fleet:
    """The nodes, and the best of them for each kind of task, judged again where they have changed."""

    nodes: list[Node]
    score: Score
    changes: list[int] = field(default_factory=list)
    _best: dict[Task, tuple[TopCandidate, int]] = field(default_factory=dict)

    def forget(self) -> None:
        """Judge every node again for every kind of task."""
        self._best.clear()

    def place(self, task: Task) -> bool:
        """Place the task on the best node. Return whether one holds it."""
        contest, read_to = self._best.get(task) or (self._contest(task), len(self.changes))
        contest.changed(set(self.changes[read_to:]))
        self._best[task] = contest, len(self.changes)
        best = contest.best()
        if best is None:
            return False
        (number,) = best[1]
        found = self.score(number, task)
        assert found is not None, "the best node holds the task"
        self._take(number, task, found[1])
        return True

    def place_at_random(self, task: Task, chance: random.Random) -> bool:
        """Place the task on any node and GPU that hold it. Return whether there are any."""
        # Most nodes hold most tasks, so that a few draws find one.
        drawn_nodes = (chance.randrange(len(self.nodes)) for _ in range(_DRAWS))
        for number in (*drawn_nodes, *chance.sample(range(len(self.nodes)), len(self.nodes))):
            node = self.nodes[number]
            found = list(outcomes(node.state, task.demand)) if node.memory_mib >= task.memory_mib else []
            if found:
                self._take(number, task, chance.choice(found))
                return True
        return False

    def _take(self, number: int, task: Task, left: NodeState) -> None:
        node = self.nodes[number]
        node.state, node.memory_mib = left, node.memory_mib - task.memory_mib
        self.changes.append(number)

    def _contest(self, task: Task) -> TopCandidate:
        def judge(group: tuple[int, ...]) -> RankedCandidate | None:
            (number,) = group
            if self.nodes[number].memory_mib < task.memory_mib:
                return None
            found = self.score(number, task)
            return None if found is None else RankedCandidate(_FAMILY, (found[0], number))

        groups = tuple((number,) for number in range(len(self.nodes)))
        return TopCandidate(groups, judge, lambda _: ())


def read_nodes(data: Path) -> list[Node]:
    """Return the nodes, all idle. Raises OSError, KeyError and ValueError for files of another form."""
    with (data / "nodes.csv").open(newline="") as rows:
        return [
            Node(NodeState(int(row["cpu_milli"]), (WHOLE,) * int(row["gpu"])), int(row["memory_mib"]))
            for row in csv.DictReader(rows)
        ]


def read_tasks(data: Path) -> list[Task]:
    """Return the tasks. Raises as `read_nodes`."""
    with (data / "pods.csv").open(newline="") as rows:
        return [
            Task(
                Demand(int(row["cpu_milli"]), int(row["num_gpu"]), int(row["gpu_milli"]) or WHOLE),
                int(row["memory_mib"]),
            )
            for row in csv.DictReader(rows)
        ]


def drawn(tasks: Sequence[Task], gpu_milli: int, seed: int) -> Iterator[Task]:
    """Yield tasks until this much is asked for, the same for every strategy."""
    rng, asked = random.Random(seed), 0
    while asked < gpu_milli:
        task = rng.choice(tasks)
        asked += asks(task)
        yield task


def asks(task: Task) -> int:
    """Return the milli of GPUs that a task asks for."""
    return task.demand.gpus * task.demand.milli


def allocations(strategy: str, nodes: list[Node], tasks: Sequence[Task], seed: int) -> tuple[float, ...]:
    """Return the percentage of all GPUs that is allocated at each share of `_UNTIL` asked for."""
    capacity = sum(sum(node.state.gpus) for node in nodes)
    mix, chance = DemandMix(), random.Random(seed)
    fleet = Fleet(nodes, _score_of(strategy, nodes, tasks, mix))
    asked = given = 0
    found: list[float] = []
    for task in drawn(tasks, int(capacity * _UNTIL[-1]), seed):
        if strategy == "ours":
            last = mix.gradient
            mix.observe(task.demand, 1)
            if mix.gradient is not last:
                fleet.forget()
        asked += asks(task)
        is_placed = fleet.place_at_random(task, chance) if strategy == "random" else fleet.place(task)
        given += asks(task) * is_placed
        if len(found) < len(_UNTIL) - 1 and asked >= _UNTIL[len(found)] * capacity:
            found.append(100 * given / capacity)
    return (*found, 100 * given / capacity)


def _score_of(strategy: str, nodes: Sequence[Node], tasks: Sequence[Task], mix: DemandMix) -> Score:
    if strategy == "best-fit":

        def best_fit(number: int, task: Task) -> tuple[object, NodeState] | None:
            found = outcomes(nodes[number].state, task.demand)
            # The fullest GPU comes first.
            return next(((_left(after), after) for after in found), None)

        return best_fit
    if strategy == "fgd":
        published = Gradient(Counter(task.demand for task in tasks), feeds_gpus=False)
        return lambda number, task: published.rise(nodes[number].state, task.demand)
    return lambda number, task: mix.gradient.rise(nodes[number].state, task.demand)


def _left(node: NodeState) -> float:
    return node.milli_cpu / _LARGEST_CPU + sum(node.gpus) / _LARGEST_GPU


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for each strategy, and write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the directory of nodes.csv and pods.csv")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--strategies", type=_strategies, default=STRATEGIES, help="separated by commas")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON")
    asked = parser.parse_args(arguments)
    if not asked.data.is_dir():
        print(f"{asked.data} does not exist: nothing is measured")
        return 0
    try:
        nodes, tasks = read_nodes(asked.data), read_tasks(asked.data)
    except (OSError, KeyError, ValueError) as error:
        print(f"{asked.data} has no nodes.csv and pods.csv of openb: {error!r}", file=sys.stderr)
        return 2
    print(f"{'strategy':<9} {'at 100%':>8} {'at 130%':>8} {'published':>14} {'µs a task':>10}")
    found: dict[str, Mapping[str, object]] = {}
    for strategy in asked.strategies:
        runs, began = [], time.process_time()
        for seed in range(asked.seeds):
            fresh = [Node(node.state, node.memory_mib) for node in nodes]
            runs.append(allocations(strategy, fresh, tasks, seed))
        spent = time.process_time() - began
        tasks_in_all = sum(1 for seed in range(asked.seeds) for _ in drawn(tasks, _asked(nodes), seed))
        at_100, at_130 = (statistics.mean(column) for column in zip(*runs, strict=True))
        peer = "{:.2f} / {:.2f}".format(*PUBLISHED[strategy]) if strategy in PUBLISHED else ""
        cost = 1e6 * spent / tasks_in_all
        print(f"{strategy:<9} {at_100:>8.2f} {at_130:>8.2f} {peer:>14} {cost:>10.0f}", flush=True)
        found[strategy] = {"at_100": at_100, "at_130": at_130, "runs": runs, "microseconds": cost}
        if asked.out is not None:
            asked.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _asked(nodes: Sequence[Node]) -> int:
    return int(sum(sum(node.state.gpus) for node in nodes) * _UNTIL[-1])


def _strategies(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in STRATEGIES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no strategy {', '.join(unknown)}; there are {', '.join(STRATEGIES)}"
        )
    return names


if __name__ == "__main__":
    sys.exit(main())
