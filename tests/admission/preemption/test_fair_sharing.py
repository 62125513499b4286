"""Fair sharing: what goes first and what a Workload may evict. Rules of KEP 1714.

Unless said otherwise: queues `a`, `b` and `c` in one cohort, each with a quota of 3 GPUs.
"""

from __future__ import annotations

from typing import Any

import pytest

from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption, FairRule
from api.queueing import ClusterQueue, Preemption, PreemptionPolicy
from api.workload import Workload
from tests.builders import (
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_cohort,
    make_workload,
    reserved,
)

FINAL = FairRule.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL = FairRule.LESS_THAN_INITIAL_SHARE
RECLAIM = Preemption(
    within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY, reclaim_within_cohort=PreemptionPolicy.ANY
)
SHARING = "InCohortFairSharing"


def make_world(*values: object, rules: tuple[FairRule, ...] = (FINAL, INITIAL)) -> World:
    return World(settings=EngineSettings(fair_sharing=FairPreemption(rules=rules))).put(*values)


def queue(name: str, quota: int = 3, **fields: Any) -> ClusterQueue:
    return make_cluster_queue(name, quota=quota, cohort="team", preemption=RECLAIM, **fields)


def queues() -> list[ClusterQueue]:
    return [queue(name) for name in "abc"]


def running(name: str, gpus: int, queue_name: str, priority: int = 0) -> Workload:
    return reserved(make_workload(name, queue=queue_name, gpus=gpus, priority=priority))


def test_the_smaller_share_is_served_first_whatever_the_priority() -> None:
    world = make_world(
        queue("a", 0),
        queue("b", 0),
        queue("lender", 3),
        running("a1", 1, "a"),
        make_workload("greedy", queue="a", gpus=2, priority=9),
        make_workload("modest", queue="b", gpus=2),
    )

    assert admits(world.cycle()) == ["modest"]


def test_a_workload_that_does_not_borrow_is_served_before_one_that_does() -> None:
    world = make_world(
        queue("a", 0),
        queue("b", 4, fair_weight_milli=1),
        make_workload("borrows", queue="a", gpus=3, priority=9),
        make_workload("own", queue="b", gpus=3),
    )

    assert admits(world.cycle()) == ["own"]


def test_a_weight_makes_a_greater_share_fair() -> None:
    world = make_world(
        queue("a", 0, fair_weight_milli=4000),
        queue("b", 0),
        queue("lender", 4),
        running("a1", 1, "a"),
        running("b1", 1, "b"),
        make_workload("heavy", queue="a", gpus=2, at=9),
        make_workload("light", queue="b", gpus=2),
    )

    assert admits(world.cycle()) == ["heavy"]


def test_shares_are_compared_at_each_level_of_the_tree() -> None:
    # root (5)    left borrows 2 already: with in-b it would have 3, with in-c right has 2.
    # ├── left    So in-c goes first, although b itself has nothing yet. Then b before a.
    # │   ├── a
    # │   └── b
    # └── right
    #     └── c
    world = make_world(
        make_cohort("root", quota=5),
        make_cohort("left", parent="root"),
        make_cohort("right", parent="root"),
        make_cluster_queue("a", cohort="left"),
        make_cluster_queue("b", cohort="left"),
        make_cluster_queue("c", cohort="right"),
        running("a1", 2, "a"),
        make_workload("in-a", queue="a", gpus=1),
        make_workload("in-b", queue="b", gpus=1, at=1),
        make_workload("in-c", queue="c", gpus=2, at=9),
    )

    assert admits(world.cycle()) == ["in-c", "in-b"]


def test_the_queue_with_the_largest_share_is_preempted() -> None:
    world = make_world(
        *queues(),
        running("b1", 2, "b"),
        running("b2", 2, "b"),
        running("b3", 1, "b"),
        running("c1", 4, "c"),
        make_workload("in", queue="a", gpus=1),
    )

    assert evicts(world.settle()) == {"b1": "InCohortReclamation"}


def test_within_its_own_quota_a_queue_reclaims_from_every_other() -> None:
    world = make_world(*queues(), running("b1", 9, "b"), make_workload("in", queue="a", gpus=3))

    assert evicts(world.settle()) == {"b1": "InCohortReclamation"}


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        pytest.param((FINAL,), {}, id="rule 1 alone does not swap the roles of two queues"),
        pytest.param((FINAL, INITIAL), {"b1": SHARING}, id="rule 2 lets the smaller share win once"),
        pytest.param((INITIAL,), {"b1": SHARING}, id="rule 2 alone looks at the share as it is"),
    ],
)
def test_one_large_workload_against_a_borrower(rules: tuple[FairRule, ...], want: dict[str, str]) -> None:
    # a needs 4 of 9, so it borrows 1; b uses all 9 in one Workload, and would have nothing left without it.
    world = make_world(*queues(), running("b1", 9, "b"), make_workload("in", queue="a", gpus=4), rules=rules)

    assert evicts(world.settle()) == want


def test_shares_end_up_even_and_no_further() -> None:
    world = make_world(
        queue("a", 0),
        queue("b", 0),
        queue("lender", 4),
        *(running(f"b{index}", 1, "b") for index in range(4)),
        *(make_workload(f"a{index}", queue="a", gpus=1, at=index) for index in range(4)),
        rules=(FINAL,),
    )

    evicted = evicts(world.settle())

    assert len(evicted) == 1
    assert set(evicted.values()) == {SHARING}


def test_in_its_own_queue_priority_decides() -> None:
    world = make_world(
        *queues(),
        running("low", 3, "a"),
        running("b1", 3, "b"),
        running("c1", 3, "c"),
        make_workload("in", queue="a", gpus=3, priority=5),
    )

    assert evicts(world.settle()) == {"low": "InClusterQueue"}


def test_a_queue_of_weight_0_that_borrows_preempts_no_finite_share() -> None:
    world = make_world(
        queue("a", 0, fair_weight_milli=0),
        queue("b", 0),
        queue("lender", 4),
        running("b1", 4, "b"),
        make_workload("in", queue="a", gpus=1),
    )

    assert evicts(world.settle()) == {}


def test_a_queue_without_cohort_has_only_its_own() -> None:
    lone = make_cluster_queue("lone", quota=2, preemption=RECLAIM)
    world = make_world(lone, running("low", 2, "lone"), make_workload("in", queue="lone", gpus=2, priority=1))

    assert evicts(world.settle()) == {"low": "InClusterQueue"}
