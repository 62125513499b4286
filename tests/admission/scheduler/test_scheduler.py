"""One cycle over several queues: what goes first, is skipped, keeps capacity, or shrinks.

Rules of Kueue's pkg/scheduler/scheduler.go and its documentation of cohorts and partial admission.
"""

from __future__ import annotations

from typing import Any

import pytest

from admission.decisions.decision import Admit
from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from api.queueing import (
    FlavorFungibility,
    FungibilityPolicy,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
)
from tests.builders import (
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_workload,
    messages,
    released,
    reserved,
    waits,
)

STRICT = QueueingStrategy.STRICT_FIFO
LOWER = PreemptionPolicy.LOWER_PRIORITY
RECLAIM_LOWER = Preemption(reclaim_within_cohort=LOWER)
RECLAIM_ANY = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)


def test_a_queue_within_its_quota_goes_before_one_that_borrows() -> None:
    world = World().put(
        make_cluster_queue("borrower", cohort="team", quota=0),
        make_cluster_queue("owner", cohort="team", quota=4),
        make_workload("urgent", queue="borrower", gpus=4, priority=9),
        make_workload("own", queue="owner", gpus=4, at=5),
    )

    decisions = world.cycle()

    assert admits(decisions) == ["own"]
    assert waits(decisions) == {"urgent": "WaitingForQuota"}
    assert world.active("borrower") == ["urgent"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"priority": 1, "at": 5.0}, {"priority": 0, "at": 1.0}, id="higher priority"),
        pytest.param({"at": 1.0}, {"at": 2.0}, id="the older"),
        pytest.param({"uid": "a"}, {"uid": "b"}, id="the lower uid"),
    ],
)
def test_of_equal_borrowers_goes_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    world = World().put(
        make_cluster_queue("lender", cohort="team", quota=4),
        make_cluster_queue("x", cohort="team"),
        make_cluster_queue("y", cohort="team"),
        make_workload("second", queue="x", gpus=4, **second),
        make_workload("first", queue="y", gpus=4, **first),
    )

    assert admits(world.cycle()) == ["first"]


def test_queues_of_one_cohort_are_all_served_while_there_is_room() -> None:
    world = World().put(
        make_cluster_queue("x", cohort="team", quota=2),
        make_cluster_queue("y", cohort="team", quota=2),
        make_workload("a", queue="x", gpus=2),
        make_workload("b", queue="y", gpus=2),
    )

    assert sorted(admits(world.cycle())) == ["a", "b"]


def test_one_head_of_each_queue_is_taken_per_cycle() -> None:
    world = World().put(make_cluster_queue(quota=9), make_workload("a"), make_workload("b", at=1))

    assert admits(world.cycle()) == ["a"]
    assert admits(world.cycle()) == ["b"]


# The owner's head needs 4 of its 4, of which 2 are lent to a Workload that it may not evict.
@pytest.mark.parametrize(
    ("preemption", "want"),
    [
        pytest.param(RECLAIM_LOWER, [], id="what it may not take back, it keeps from others"),
        pytest.param(RECLAIM_ANY, ["newcomer"], id="what it can always take back, it leaves to them"),
    ],
)
def test_a_head_that_waits_for_evictions(preemption: Preemption, want: list[str]) -> None:
    lent = reserved(make_workload("lent", queue="borrower", gpus=2, priority=9))
    untouchable = (
        [lent] if preemption is RECLAIM_LOWER else [reserved(make_workload("own", queue="owner", gpus=2))]
    )
    world = World().put(
        make_cluster_queue("owner", cohort="team", quota=4, preemption=preemption, queueing_strategy=STRICT),
        make_cluster_queue("borrower", cohort="team"),
        *untouchable,
        make_workload("head", queue="owner", gpus=4),
        make_workload("newcomer", queue="borrower", gpus=2, at=5),
    )

    assert admits(world.settle()) == want


def test_two_heads_that_want_the_same_victim_do_not_both_evict() -> None:
    within = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world = World().put(
        make_cluster_queue("x", cohort="team", quota=2, preemption=within),
        make_cluster_queue("y", cohort="team", quota=2, preemption=within),
        make_cluster_queue("borrower", cohort="team"),
        reserved(make_workload("v1", queue="borrower", gpus=2), at=1),
        reserved(make_workload("v2", queue="borrower", gpus=2), at=2),
        make_workload("a", queue="x", gpus=2),
        make_workload("b", queue="y", gpus=2, at=1),
    )

    decisions = world.cycle()

    # Both would take v2, the last to start; the second looks again and takes the other.
    assert evicts(decisions) == {"v1": "InCohortReclamation", "v2": "InCohortReclamation"}
    assert waits(decisions) == {
        "a": "WaitingForPreemptedWorkloads",
        "b": "WaitingForPreemptedWorkloads",
    }


def test_one_whose_needs_are_met_by_anothers_victim_waits_for_it_without_evicting_more() -> None:
    within = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world = World().put(
        make_cluster_queue("x", cohort="team", quota=2, preemption=within),
        make_cluster_queue("y", cohort="team", quota=2, preemption=within),
        make_cluster_queue("borrower", cohort="team"),
        reserved(make_workload("large", queue="borrower", gpus=4)),
        make_workload("a", queue="x", gpus=2),
        make_workload("b", queue="y", gpus=2, at=1),
    )

    decisions = world.cycle()

    assert evicts(decisions) == {"large": "InCohortReclamation"}
    assert waits(decisions)["b"] == "WaitingForPreemptedWorkloads"
    assert messages(decisions)["b"] == "Workload fits once the workloads that another preempts have stopped"


# `b` fits once the victim of `a` has stopped, in the first of its two flavors.
@pytest.mark.parametrize(
    ("spot", "sharing"),
    [
        pytest.param(0, None, id="the queue comes to rest where the next flavor has no quota"),
        pytest.param(0, FairPreemption(), id="the queue comes to rest, under fair sharing too"),
        pytest.param(2, None, id="the next flavor is not taken instead, though it has quota"),
    ],
)
def test_one_that_waits_for_anothers_victim_waits_for_its_flavor(
    spot: int, sharing: FairPreemption | None
) -> None:
    two: dict[str, Any] = {
        "groups": (make_group("default", "spot", default=2, spot=spot),),
        "fungibility": FlavorFungibility(when_can_preempt=FungibilityPolicy.MAY_STOP_SEARCH),
    }
    world = World(EngineSettings(fair_sharing=sharing)).put(
        ResourceFlavor(name="spot"),
        make_cluster_queue("x", cohort="team", quota=2, preemption=RECLAIM_ANY),
        make_cluster_queue("y", cohort="team", preemption=RECLAIM_ANY, **two),
        make_cluster_queue("borrower", cohort="team"),
        reserved(make_workload("large", queue="borrower", gpus=4)),
        make_workload("a", queue="x", gpus=2),
        make_workload("b", queue="y", gpus=2, at=1),
    )

    decisions = world.settle(most=9)
    world.put(released(world.get("large")))
    later = world.settle(most=9)

    assert (admits(decisions), list(evicts(decisions))) == ([], ["large"])
    assert {one.key.name: flavors_of(one) for one in later if isinstance(one, Admit)} == {
        "a": ["default"],
        "b": ["default"],
    }


def flavors_of(decision: Admit) -> list[str]:
    return [flavor for one in decision.admission.pod_sets for flavor in one.flavors.values()]


def counts_of(decision: object) -> list[int]:
    assert isinstance(decision, Admit)
    return [one.count for one in decision.admission.pod_sets]


def test_a_pod_set_that_may_shrink_runs_with_as_many_pods_as_fit() -> None:
    pods = (make_pod_set(count=8, min_count=2),)
    (decision,) = World().put(make_cluster_queue(quota=5), make_workload(pod_sets=pods)).settle()

    assert counts_of(decision) == [5]


def test_a_pod_set_does_not_shrink_below_its_floor() -> None:
    pods = (make_pod_set(count=8, min_count=6),)
    decisions = World().put(make_cluster_queue(quota=5), make_workload(pod_sets=pods)).settle()

    assert admits(decisions) == []
    assert waits(decisions) == {"w": "ExceedsMaxQuota"}


def test_pod_sets_shrink_in_proportion_to_what_they_can_spare() -> None:
    pods = (
        make_pod_set("driver", 1),
        make_pod_set("workers", 9, min_count=1),
        make_pod_set("x", 5, min_count=1),
    )
    (decision,) = World().put(make_cluster_queue(quota=9), make_workload(pod_sets=pods)).settle()

    assert counts_of(decision) == [1, 5, 3]


def test_shrinking_is_not_tried_while_all_pods_fit_by_evictions() -> None:
    queue = make_cluster_queue(quota=4, preemption=Preemption(within_cluster_queue=LOWER))
    pods = (make_pod_set(count=4, min_count=1),)
    world = World().put(
        queue,
        reserved(make_workload("low", gpus=2)),
        make_workload("high", pod_sets=pods, priority=5),
    )

    decisions = world.settle()

    assert (admits(decisions), evicts(decisions)) == ([], {"low": "InClusterQueue"})


def test_one_that_reclaims_its_quota_for_fewer_pods_starts_with_all_that_fit_then() -> None:
    """Kueue tries all pods first in every cycle, whatever the evictions before were for."""
    world = World().put(
        make_cluster_queue("x", cohort="team", quota=2),
        make_cluster_queue("y", cohort="team", quota=2, preemption=RECLAIM_ANY),
        reserved(make_workload("borrows", queue="x", gpus=3)),
        make_workload("shrinks", queue="y", pod_sets=(make_pod_set(count=3, min_count=2),)),
    )

    decisions = world.carry_out(world.cycle())
    (decision, *_) = world.settle()

    assert evicts(decisions) == {"borrows": "InCohortReclamation"}
    assert (admits([decision]), counts_of(decision)) == (["shrinks"], [3])
