"""Flavors by score against Kueue's order, on one trace: `python -m bench.flavors --jobs jobs.csv`.

    python -m bench.flavors --jobs jobs.csv [--limit 5000] [--loads 0.7,0.85,1.0] [--seeds 3]

The nodes are divided into reserved H100, A100 and spot A100, in this order, and each GPU-hour has a price. A
trace does not say what its Jobs are, so this is drawn for each Job, by seed and id: a tenth needs an H100, a
fifth is inference, a fifth is training without checkpoints, two fifths are training that saves every 10 to 60
minutes, and the rest is batch, which starts again from the beginning. Spot nodes are lost once a day on
average, with the work since the last checkpoint, and so do Jobs that move to another flavor. Jobs that no
flavor can hold are left out. All policies run the same Jobs and differ only in the choice of flavors.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from admission.simulation.figures import figures_of
from admission.simulation.policies import POLICIES
from admission.simulation.settings import Faults, FlavorSetting, Setting, check_fits, loaded
from admission.simulation.traces import TraceError, TraceJob, first_submitted, read_trace
from admission.simulation.virtual_run import simulate
from api.keys import NODE_GPU_MODEL

_H100, _A100 = "H100", "A100"
_SPOT = {"karpenter.sh/capacity-type": "spot"}
# Prices of a GPU-hour as clouds list them: reserved for a year, on demand, spot.
FLAVORS = (
    FlavorSetting(name="h100", nodes=46, labels={NODE_GPU_MODEL: _H100}, cost_per_gpu_hour=3.0),
    FlavorSetting(name="a100", nodes=46, labels={NODE_GPU_MODEL: _A100}, cost_per_gpu_hour=2.0),
    FlavorSetting(
        name="spot",
        nodes=46,
        labels={NODE_GPU_MODEL: _A100, **_SPOT},
        cost_per_gpu_hour=0.8,
        node_mtbf_hours=24.0,
    ),
)
_KINDS = {"inference": 0.2, "training": 0.6, "batch": 0.2}
_SAVING, _NEEDING_H100 = 2 / 3, 0.1
_LEAST_MINUTES, _MOST_MINUTES = 10.0, 60.0
_ROW = "{:<6} {:>4} {:<15} {:>10} {:>10} {:>12} {:>9} {:>9}"


def drawn(jobs: Sequence[TraceJob], seed: int) -> tuple[TraceJob, ...]:
    """Return the Jobs with type, checkpoints and model, the same for every call with this seed."""
    return tuple(_drawn(job, random.Random(f"{seed}/{job.id}")) for job in jobs)


def _drawn(job: TraceJob, chance: random.Random) -> TraceJob:
    (kind,) = chance.choices(list(_KINDS), list(_KINDS.values()))
    minutes = math.exp(chance.uniform(math.log(_LEAST_MINUTES), math.log(_MOST_MINUTES)))
    saves = chance.random() < _SAVING and kind == "training"
    return replace(
        job,
        workload_type=kind,
        checkpoint_seconds=60 * minutes if saves else None,
        gpu_model=_H100 if chance.random() < _NEEDING_H100 else "",
    )


def _fitting(jobs: Sequence[TraceJob], setting: Setting) -> Iterator[TraceJob]:
    for job in jobs:
        try:
            check_fits((job,), setting)
        except TraceError:
            continue
        yield job


def main() -> None:
    """Print one row for each load, seed and policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--loads", default="0.7,0.85,1.0")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    jobs = first_submitted(read_trace(arguments.jobs), arguments.limit)
    print(_ROW.format("LOAD", "SEED", "POLICY", "MEAN WAIT", "P99", "PAID", "EVICTIONS", "TOOK"))
    for load in map(float, arguments.loads.split(",")):
        for seed in range(arguments.seeds):
            setting = Setting(
                nodes=sum(one.nodes for one in FLAVORS),
                gpus_per_node=8,
                flavors=FLAVORS,
                faults=Faults(seed=seed),
            )
            work = loaded(tuple(_fitting(drawn(jobs, seed), setting)), load)
            for name in ("best-effort", "flavor-score", "flavor-promote"):
                found = figures_of(simulate(work, setting, POLICIES[name]), gpus=setting.gpus)
                waits = (
                    f"{value / 60:.0f} min" for value in (found.mean_wait_seconds, found.p99_wait_seconds)
                )
                paid, took = f"{found.cost or 0:,.0f}", f"{found.run_seconds:.0f} s"
                print(_ROW.format(f"{load:g}", seed, name, *waits, paid, found.evictions, took), flush=True)


if __name__ == "__main__":
    main()
