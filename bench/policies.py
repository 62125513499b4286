"""Every policy on one trace, at several loads and with wrong estimates: `python -m bench.policies`.

    python -m bench.policies --jobs jobs.csv [--nodes 138x8] [--only fifo,easy] [--out policies.json]

What `berth simulate` compares at one load, in one table for all that its figures depend on: all policies on
the trace as recorded, four of them at 85% and 115% of its load, and the two that promise with run times said
too long. Beside the mean waits of the public Philly trace on 138x8 stand those of an independent simulator of
the textbook policies, which knows no leases and fills nodes in another order. The whole takes the better part
of an hour on a quiet machine; each row is printed as it is known.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from admission.cli.arguments import NodesWish, nodes_wish
from admission.simulation.figures import Figures, figures_of
from admission.simulation.policies import POLICIES
from admission.simulation.settings import Estimates, Setting, check_fits, loaded
from admission.simulation.traces import TraceJob, first_submitted, read_trace
from admission.simulation.virtual_run import simulate

# Mean waits in minutes at the recorded load, of an independent simulator.
ELSEWHERE = {"fifo": 959, "best-effort": 176, "easy": 269, "sjf-oracle": 54}
_PHILLY = NodesWish(count=138, gpus_per_node=8)
_AT_OTHER_LOADS = ("fifo", "best-effort", "easy", "least-attained")
_PROMISING = ("easy", "conservative")
_LOADS = (0.85, 1.15)
_FACTORS = (2.0, 3.0, 5.0)
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
)
_ROW = "{:<19} {:>5} {:>9} {:>7} {:>9} {:>7} {:>7} {:>5} {:>7} {:>12} {:>7}"


class Run(NamedTuple):
    """One simulation."""

    policy: str
    load: float = 1.0
    factor: float = 1.0


def runs(names: tuple[str, ...]) -> Iterator[Run]:
    """Yield what is to be simulated of these policies."""
    yield from (Run(name) for name in names)
    yield from (Run(name, load=load) for load in _LOADS for name in _AT_OTHER_LOADS if name in names)
    yield from (Run(name, factor=factor) for factor in _FACTORS for name in _PROMISING if name in names)


def figures(run: Run, jobs: tuple[TraceJob, ...], nodes: NodesWish) -> Figures:
    """Return how the trace fares."""
    setting = Setting(
        nodes=nodes.count, gpus_per_node=nodes.gpus_per_node, estimates=Estimates(factor=run.factor)
    )
    check_fits(jobs, setting)
    return figures_of(simulate(loaded(jobs, run.load), setting, POLICIES[run.policy]), gpus=setting.gpus)


def row(run: Run, found: Figures, *, has_peer: bool) -> str:
    """Return the line of a run; waits in minutes, `has_peer`: beside those of elsewhere."""
    is_as_recorded = has_peer and run.load == 1.0 and run.factor == 1.0
    return _ROW.format(
        run.policy,
        f"{run.load:.0%}",
        str(Estimates(factor=run.factor)),
        f"{found.mean_wait_seconds / 60:,.0f}",
        ELSEWHERE.get(run.policy, "") if is_as_recorded else "",
        f"{found.p99_wait_seconds / 60:,.0f}",
        f"{found.gangs.mean_wait_seconds / 60:,.0f}",
        f"{found.utilisation:.2f}",
        f"{found.gpu_hours_lost:,.0f}h",
        f"{found.promises_broken}/{found.promises}",
        f"{found.run_seconds:,.0f}s",
    )


def main() -> int:
    """Simulate everything, print the table, write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--nodes", type=nodes_wish, default=_PHILLY)
    parser.add_argument("--only", default=",".join(POLICIES), help="policies, separated by commas")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    jobs = first_submitted(read_trace(arguments.jobs), None)
    done = []
    print(_ROW.format(*_HEADINGS), flush=True)
    for run in runs(tuple(arguments.only.split(","))):
        found = figures(run, jobs, arguments.nodes)
        print(row(run, found, has_peer=arguments.nodes == _PHILLY), flush=True)
        done.append({**run._asdict(), **asdict(found)})
        if arguments.out is not None:
            arguments.out.write_text(json.dumps(done, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
