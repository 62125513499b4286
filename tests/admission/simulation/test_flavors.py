"""Flavors in a simulation: what Jobs need, what they cost, and the score beside Kueue's order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from admission.simulation.figures import figures_of
from admission.simulation.settings import FlavorSetting, Setting, check_fits
from admission.simulation.traces import TraceError, TraceJob, parse_trace
from api.keys import NODE_GPU_MODEL
from tests.admission.simulation.virtual import make_job, run_policy, waits_of

SPOT = {"karpenter.sh/capacity-type": "spot"}
FLAVORS = (
    FlavorSetting(name="h100", nodes=1, labels={NODE_GPU_MODEL: "H100"}, cost_per_gpu_hour=4.0),
    FlavorSetting(name="a100", nodes=1, labels={NODE_GPU_MODEL: "A100"}, cost_per_gpu_hour=2.0),
    FlavorSetting(name="spot", nodes=1, labels={NODE_GPU_MODEL: "A100", **SPOT}, cost_per_gpu_hour=1.0),
)
THREE = Setting(nodes=3, gpus_per_node=8, flavors=FLAVORS)
# A hour of a whole node each: one that can run anywhere, then one that needs the H100, then inference.
BATCH = replace(make_job(0, gpus=8, runs=3600), workload_type="batch")
PICKY = replace(make_job(1, gpus=8, at=60, runs=3600), gpu_model="H100")
SERVING = replace(make_job(2, gpus=8, at=120, runs=3600), workload_type="inference")


@pytest.mark.parametrize(
    ("policy", "waits", "cost"),
    [
        # 32 for each hour on the H100 node, and 16 on the A100 node.
        pytest.param("best-effort", {"0": 0, "1": 3540, "2": 0}, 32 + 32 + 16, id="Kueue's order"),
        pytest.param("flavor-score", {"0": 0, "1": 0, "2": 0}, 8 + 32 + 16, id="by score"),
    ],
)
def test_the_score_waits_and_pays_less_than_kueues_order(
    policy: str, waits: dict[str, float], cost: float
) -> None:
    run = run_policy(policy, (BATCH, PICKY, SERVING), THREE)

    assert waits_of(run) == waits
    assert figures_of(run, gpus=24).cost == pytest.approx(cost)


@pytest.mark.parametrize("policy", ["best-effort", "flavor-score", "flavor-promote"])
def test_only_the_choice_of_flavors_differs_so_small_jobs_share_a_node_as_in_kueues_order(
    policy: str,
) -> None:
    two = Setting(nodes=2, gpus_per_node=8, flavors=(structs.replace(FLAVORS[1], nodes=2),))
    small = [replace(make_job(n, gpus=4, at=60 * n, runs=3600), workload_type="inference") for n in (0, 1)]
    gang = replace(make_job(2, gpus=8, at=120, runs=3600), workload_type="training")

    # The other node is still whole.
    assert waits_of(run_policy(policy, (*small, gang), two)) == {"0": 0, "1": 0, "2": 0}


@pytest.mark.parametrize(
    ("policy", "evictions", "cost"),
    [
        # The second Job pays 32 an hour for all its hours, or for one and 8 for the others.
        pytest.param("flavor-score", 0, 8 + 8 * 32, id="it stays where it has started"),
        pytest.param("flavor-promote", 1, 8 + 32 + 7 * 8, id="it moves once the better flavor is free"),
    ],
)
def test_with_promotion_a_job_moves_to_the_better_flavor(policy: str, evictions: int, cost: float) -> None:
    two = Setting(nodes=2, gpus_per_node=8, flavors=(FLAVORS[0], FLAVORS[2]))
    long = replace(
        make_job(1, gpus=8, at=60, runs=8 * 3600), workload_type="training", checkpoint_seconds=600.0
    )

    run = run_policy(policy, (BATCH, long), two)

    assert [course.evictions for course in run.courses] == [0, evictions]
    # At most ten minutes are repeated, and a minute goes by until it is looked at.
    assert figures_of(run, gpus=16).cost == pytest.approx(cost, abs=3)


@pytest.mark.parametrize(
    ("job", "lost"),
    [
        pytest.param(replace(BATCH, checkpoint_seconds=60.0), False, id="it repeats what is not saved"),
        pytest.param(BATCH, True, id="without checkpoints it begins again"),
    ],
)
def test_the_nodes_of_a_flavor_are_lost_at_its_own_rate(job: TraceJob, lost: bool) -> None:
    flaky = Setting(
        nodes=1,
        gpus_per_node=8,
        flavors=(FlavorSetting(name="spot", nodes=1, labels=SPOT, node_mtbf_hours=1.0),),
    )
    long = replace(job, duration_seconds=4 * 3600.0)
    (course,) = run_policy("best-effort", (long,), flaky).courses

    assert course.evictions > 0
    saved = [end - begin for begin, end in course.useful]
    assert (len(saved) == 1) is lost
    assert sum(saved) == pytest.approx(long.duration_seconds)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(replace(make_job(0, gpus=16), gpu_model="H100"), id="a gang larger than its flavor"),
        pytest.param(replace(make_job(0, gpus=1), gpu_model="V100"), id="a model that no flavor has"),
    ],
)
def test_a_job_that_no_flavor_can_hold_is_refused_before_the_run(job: TraceJob) -> None:
    with pytest.raises(TraceError, match="no flavor that it may use"):
        check_fits((job,), THREE)


def test_a_trace_may_say_what_its_jobs_are() -> None:
    lines = [
        "user,num_gpu,submit_time,duration,gpu_model,workload_type,checkpoint_minutes",
        "a,8,0,60,H100,training,30",
        "a,8,0,60,,,",
    ]
    first, second = parse_trace(lines, source="t")

    assert (first.gpu_model, first.workload_type, first.checkpoint_seconds) == ("H100", "training", 1800.0)
    assert (second.gpu_model, second.workload_type, second.checkpoint_seconds) == ("", "", None)
    with pytest.raises(TraceError, match="line 2: workload_type is 'play'; expected one of training"):
        parse_trace([lines[0], "a,8,0,60,,play,"], source="t")
