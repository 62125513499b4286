"""Every policy on one trace, at several loads and with wrong estimates: `python -m bench.policies`.

    python -m bench.policies --jobs jobs.csv [--nodes 138x8] [--policies fifo,easy] [--limit 3000] [--out F]

One table for everything that the results depend on, where `berth simulate` compares policies at one load: all
policies on the trace as recorded, four of them at 85% and 115% of its load, and the two with promises with
overestimated run times. For the public Philly trace on 138x8 the table also shows the mean waits of an
independent simulator of the textbook policies, which knows no leases and fills nodes in another order, and
the longest time that a run should take on a quiet machine. Two runs at a time; each row is printed when its
run ends, and a run that fails affects only its own row. The exit code is 1 where one failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from admission.cli.common.arguments import NodeCounts, node_counts
from admission.simulation.figures import Figures, figures_of
from admission.simulation.policies import POLICIES
from admission.simulation.settings import EstimateKind, Setting, check_fits, loaded
from admission.simulation.traces import TraceJob, first_submitted, read_trace
from admission.simulation.virtual_run import simulate

# Mean waits in minutes at the recorded load, as computed by an independent simulator.
ELSEWHERE = {"fifo": 959, "best-effort": 176, "easy": 269, "sjf-oracle": 54}
# The longest processor time, in seconds, that a run of the whole trace should take.
_MOST_SECONDS = {"easy": 60, "shortest-predicted": 60, "conservative": 600, "opportunistic": 600}
_PHILLY = NodeCounts(count=138, gpus_per_node=8)
_AT_OTHER_LOADS = ("fifo", "best-effort", "easy", "least-attained")
_PROMISING = ("easy", "conservative")
_LOADS = (0.85, 1.15)
# The largest factor first, so that a run that is stopped early has covered it.
_FACTORS = (5.0, 2.0)
# More processes would compete for the processors of the machines that this is meant for.
_AT_A_TIME = 2
_HEADINGS = (
    "POLICY",
    "LOAD",
    "ESTIMATES",
    "MEAN",
    "ELSEWHERE",
    "P99",
    "GANGS",
    "BUSY",
    "LOST",
    "BROKEN",
    "TOOK",
    "AT MOST",
)
_ROW = "{:<19} {:>5} {:>9} {:>7} {:>9} {:>7} {:>7} {:>5} {:>8} {:>12} {:>7} {:>7}"


class Run(NamedTuple):
    """One simulation."""

    policy: str
    load: float = 1.0
    factor: float = 1.0

    @property
    def is_as_recorded(self) -> bool:
        """Whether load and estimates are those of the trace."""
        return self.load == 1.0 and self.factor == 1.0


def runs(names: Sequence[str]) -> Iterator[Run]:
    """Yield the simulations for these policies."""
    yield from (Run(name) for name in names)
    yield from (Run(name, load=load) for load in _LOADS for name in _AT_OTHER_LOADS if name in names)
    yield from (Run(name, factor=factor) for factor in _FACTORS for name in _PROMISING if name in names)


def figures(run: Run, jobs: tuple[TraceJob, ...], nodes: NodeCounts) -> Figures:
    """Return the figures of one simulation. Raises an error where a Job cannot fit the nodes."""
    setting = Setting(
        nodes=nodes.count, gpus_per_node=nodes.gpus_per_node, estimates=EstimateKind(factor=run.factor)
    )
    check_fits(jobs, setting)
    began = time.process_time()
    found = figures_of(simulate(loaded(jobs, run.load), setting, POLICIES[run.policy]), gpus=setting.gpus)
    # Processor time, because two runs share a machine that rarely has nothing else to do.
    return replace(found, run_seconds=time.process_time() - began)


def row(run: Run, found: Figures, *, has_peer: bool) -> str:
    """Return the line of a run, with waits in minutes. `has_peer`: with the expected values of the trace."""
    is_compared = has_peer and run.is_as_recorded
    return _ROW.format(
        run.policy,
        f"{run.load:.0%}",
        str(EstimateKind(factor=run.factor)),
        f"{found.mean_wait_seconds / 60:,.0f}",
        ELSEWHERE.get(run.policy, "") if is_compared else "",
        f"{found.p99_wait_seconds / 60:,.0f}",
        f"{found.gangs.mean_wait_seconds / 60:,.0f}",
        f"{found.utilisation:.2f}",
        f"{found.gpu_hours_lost:,.0f}h",
        f"{found.promises_broken}/{found.promises}",
        f"{found.run_seconds:,.0f}s",
        f"{most}s" if has_peer and (most := _MOST_SECONDS.get(run.policy)) is not None else "",
    )


def simulate_all(
    wanted: Sequence[Run], jobs: tuple[TraceJob, ...], nodes: NodeCounts
) -> Iterator[tuple[Run, Figures | Exception]]:
    """Yield the result of each run when it ends: its figures, or the exception that it raised."""
    with ProcessPoolExecutor(max_workers=_AT_A_TIME, max_tasks_per_child=1) as pool:
        begun = {pool.submit(figures, run, jobs, nodes): run for run in wanted}
        for future in as_completed(begun):
            failure = future.exception()
            if failure is None:
                yield begun[future], future.result()
            elif isinstance(failure, Exception):
                yield begun[future], failure
            else:
                raise failure


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate everything, print the table, write the JSON. Return 1 where a run failed, otherwise 0."""
    asked = _parser().parse_args(arguments)
    names = asked.policies.split(",")
    jobs = first_submitted(read_trace(asked.jobs), asked.limit)
    is_whole_trace = asked.nodes == _PHILLY and asked.limit is None
    wanted, done, failed = tuple(runs(names)), [], 0
    print(_ROW.format(*_HEADINGS), flush=True)
    for run, found in simulate_all(wanted, jobs, asked.nodes):
        if isinstance(found, Exception):
            failed += 1
            print(f"{run.policy:<19} {run.load:>5.0%} failed: {found!r}", flush=True)
            done.append({**run._asdict(), "failed": repr(found)})
        else:
            print(row(run, found, has_peer=is_whole_trace), flush=True)
            done.append({**run._asdict(), **asdict(found)})
        print(f"{len(done)} of {len(wanted)} runs done", file=sys.stderr, flush=True)
        if asked.out is not None:
            asked.out.write_text(json.dumps(done, indent=1) + "\n")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--nodes", type=node_counts, default=_PHILLY)
    parser.add_argument("--policies", type=_policies, default=",".join(POLICIES), help="separated by commas")
    parser.add_argument("--limit", type=int, help="the first so many Jobs by submit time; default: all")
    parser.add_argument("--out", type=Path, help="where to write the figures as JSON, again after each run")
    return parser


def _policies(text: str) -> str:
    unknown = [name for name in text.split(",") if name not in POLICIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no policy {', '.join(unknown)}; there are {', '.join(POLICIES)}")
    return text


if __name__ == "__main__":
    sys.exit(main())
