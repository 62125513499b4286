"""The recommended policy beside Kueue's order, at several loads and with wrong run times.

    python -m bench.recommend --jobs jobs.csv [--share 0.25] [--seeds 2] [--policies expected-end]
        [--loads 0.85,1.15] [--estimates tenth,most] [--json]

Each seed draws a share of the trace's Jobs, for the same share of its nodes, so that one trace gives several
that differ. Every policy plays every draw at each load and with each kind of estimate; Kueue's order, which
reads none, once for each load. A line shows the means over the draws, and in how many of them the policy is
not worse than Kueue's order in mean wait, wait of gangs and P99 alike. The defaults take some minutes;
`--share 1 --seeds 1` plays the trace itself. Without the trace nothing is measured, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from admission.cli.common.arguments import NodeCounts, node_counts, positive, positive_number, share
from admission.simulation.figures import figures_of
from admission.simulation.policies import POLICIES
from admission.simulation.settings import EstimateKind, Faults, Setting, check_fits, loaded
from admission.simulation.traces import TraceError, TraceJob, first_submitted, read_trace
from admission.simulation.virtual_run import simulate

# Kueue's order, and that of deploy/policies/recommended.yaml. `easy` is that of backfill.yaml, and slower.
_DEFAULT = "best-effort"
_RECOMMENDED = "expected-end"
_LOADS = "0.85,1.0,1.15"
_PHILLY = NodeCounts(count=138, gpus_per_node=8)
_ROW = "{:<19} {:>5} {:>14} {:>8} {:>8} {:>8} {:>10} {:>11}"
_HEADINGS = ("POLICY", "LOAD", "ESTIMATES", "MEAN", "GANGS", "P99", "EVICTIONS", "NOT WORSE")


class Known(NamedTuple):
    """What is known of run times: `factor` times the true ones, for a share of the Jobs.

    Those of the other Jobs are unknown or, with `is_learned`, learned from Jobs that have ended.
    """

    name: str
    factor: float = 1.0
    declaring_share: float = 1.0
    is_learned: bool = False


_NOTHING = Known("none")
_USUAL = "exact,x5,x0.2,half,learned"
_ESTIMATES = {
    "exact": Known("exact"),
    "x5": Known("x5", factor=5.0),
    "x0.2": Known("x0.2", factor=0.2),
    "tenth": Known("tenth declare", declaring_share=0.1),
    "half": Known("half declare", declaring_share=0.5),
    "most": Known("most declare", declaring_share=0.9),
    "learned": Known("learned", declaring_share=0.0, is_learned=True),
    "tenth-learned": Known("tenth, learned", declaring_share=0.1, is_learned=True),
    "half-learned": Known("half, learned", declaring_share=0.5, is_learned=True),
    "most-learned": Known("most, learned", declaring_share=0.9, is_learned=True),
}


class Case(NamedTuple):
    """One line of the table."""

    policy: str
    load: float
    known: Known


class Waits(NamedTuple):
    """One case on one draw. Waits are minutes."""

    mean: float
    gangs: float
    p99: float
    evictions: int

    def is_worse_than(self, other: Waits) -> bool:
        """Return whether any of the waits is longer."""
        return any(mine > theirs for mine, theirs in zip(self[:3], other[:3], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A share of a trace, and the nodes that it runs on. `seed` draws the Jobs, and those that declare."""

    jobs: tuple[TraceJob, ...]
    nodes: NodeCounts
    seed: int


def cases(policies: Sequence[str], loads: Sequence[float], known: Sequence[Known]) -> Iterator[Case]:
    """Yield the lines of the table: for each load Kueue's order, then the policies by kind of estimate."""
    for load in loads:
        yield Case(_DEFAULT, load, _NOTHING)
        yield from (Case(policy, load, one) for policy in policies for one in known)


def draw(jobs: Sequence[TraceJob], nodes: NodeCounts, *, of: float, seed: int) -> Draw:
    """Draw about the share `of` the Jobs, and the same share of the nodes.

    Raises TraceError if that leaves no Job, or a Job that is too wide for the nodes.
    """
    chance = random.Random(seed)
    drawn = first_submitted([job for job in jobs if chance.random() < of], None)
    if not drawn:
        raise TraceError(f"a share of {of:g} of {len(jobs)} Jobs leaves none to play")
    fewer = NodeCounts(count=max(1, round(nodes.count * of)), gpus_per_node=nodes.gpus_per_node)
    check_fits(drawn, Setting(nodes=fewer.count, gpus_per_node=fewer.gpus_per_node))
    return Draw(jobs=drawn, nodes=fewer, seed=seed)


def play(case: Case, drawn: Draw) -> Waits:
    """Simulate one case on one draw."""
    known = case.known
    setting = Setting(
        nodes=drawn.nodes.count,
        gpus_per_node=drawn.nodes.gpus_per_node,
        estimates=EstimateKind(factor=known.factor, is_learned=known.is_learned),
        declaring_share=known.declaring_share,
        faults=Faults(seed=drawn.seed),
    )
    run = simulate(loaded(drawn.jobs, case.load), setting, POLICIES[case.policy])
    found = figures_of(run, gpus=setting.gpus)
    return Waits(
        mean=found.mean_wait_seconds / 60,
        gangs=found.gangs.mean_wait_seconds / 60,
        p99=found.p99_wait_seconds / 60,
        evictions=found.evictions,
    )


def line(case: Case, waits: Sequence[Waits], defaults: Sequence[Waits]) -> dict[str, object]:
    """Return what the table shows of a case. `defaults` are those of Kueue's order on the same draws."""
    better = sum(not mine.is_worse_than(theirs) for mine, theirs in zip(waits, defaults, strict=True))
    return {
        "policy": case.policy,
        "load": case.load,
        "estimates": case.known.name,
        "mean_minutes": round(fmean(one.mean for one in waits), 1),
        "gangs_minutes": round(fmean(one.gangs for one in waits), 1),
        "p99_minutes": round(fmean(one.p99 for one in waits), 1),
        "evictions": round(fmean(one.evictions for one in waits), 1),
        "not_worse": better,
        "draws": len(waits),
    }


def lines(wanted: Sequence[Case], draws: Sequence[Draw], *, processes: int) -> Iterator[dict[str, object]]:
    """Yield the lines in order, each as soon as all of its draws have been played."""
    with ProcessPoolExecutor(max_workers=processes) as pool:
        pairs = [(case, pool.submit(play, case, drawn)) for case in wanted for drawn in draws]
        defaults: Mapping[float, Sequence[Waits]] = {}
        for case, group in groupby(pairs, key=lambda pair: pair[0]):
            waits = [future.result() for _, future in group]
            if case.policy == _DEFAULT:
                defaults = {**defaults, case.load: waits}
            yield line(case, waits, defaults[case.load])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or with --json one object. Return 2 for a trace that cannot be played, otherwise 0."""
    asked = _parser().parse_args(arguments)
    if not asked.jobs.exists():
        print(f"bench.recommend: skipped, because there is no trace {asked.jobs}; --jobs names another")
        return 0
    try:
        jobs = read_trace(asked.jobs)
        draws = [draw(jobs, asked.nodes, of=asked.share, seed=seed) for seed in range(asked.seeds)]
    except TraceError as error:
        print(f"bench.recommend: {error}", file=sys.stderr)
        return 2
    wanted = tuple(cases(asked.policies, asked.loads, asked.estimates))
    found = lines(wanted, draws, processes=asked.processes)
    if asked.json:
        settings = {"nodes": str(draws[0].nodes), "share": asked.share, "seeds": asked.seeds}
        print(json.dumps({"settings": settings, "lines": list(found)}))
        return 0
    print(_ROW.format(*_HEADINGS), flush=True)
    for one in found:
        print(_text(one), flush=True)
    return 0


def _text(one: Mapping[str, object]) -> str:
    waits = (f"{one[name]:,.0f}" for name in ("mean_minutes", "gangs_minutes", "p99_minutes", "evictions"))
    return _ROW.format(
        str(one["policy"]),
        f"{one['load']:.0%}",
        str(one["estimates"]),
        *waits,
        f"{one['not_worse']} of {one['draws']}",
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=Path, default=Path("jobs.csv"), help="default: %(default)s")
    parser.add_argument("--nodes", type=node_counts, default=_PHILLY, help="of the whole trace")
    parser.add_argument("--policies", type=_policies, default=_RECOMMENDED, help="separated by commas")
    parser.add_argument(
        "--share", type=share, default=0.25, help="of the Jobs in a draw (default: %(default)g)"
    )
    parser.add_argument("--seeds", type=positive, default=2, help="number of draws (default: %(default)s)")
    parser.add_argument(
        "--loads", type=_loads, default=_LOADS, help="as shares of the trace's own (default: %(default)s)"
    )
    parser.add_argument(
        "--estimates",
        type=_estimates,
        default=_USUAL,
        help=f"what is known of run times, of {', '.join(_ESTIMATES)} (default: %(default)s); tenth, half and"
        " most are 10%%, 50%% and 90%% of the Jobs that declare theirs, and with -learned those of the other"
        " Jobs are learned",
    )
    parser.add_argument("--processes", type=positive, default=2, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    return parser


def _loads(text: str) -> tuple[float, ...]:
    return tuple(positive_number(one) for one in text.split(","))


def _estimates(text: str) -> tuple[Known, ...]:
    unknown = [name for name in text.split(",") if name not in _ESTIMATES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no estimate {', '.join(unknown)}; there are {', '.join(_ESTIMATES)}"
        )
    return tuple(_ESTIMATES[name] for name in text.split(","))


def _policies(text: str) -> tuple[str, ...]:
    names = tuple(name for name in text.split(",") if name != _DEFAULT)
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no policy {', '.join(unknown)}; there are {', '.join(POLICIES)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
