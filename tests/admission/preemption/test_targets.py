"""What a Workload may evict without fair sharing. Rules of Kueue's documentation of preemption."""

from __future__ import annotations

from typing import Any

import pytest

from admission.decisions.decision import Evict
from api.keys import JOB_UID
from api.queueing import Preemption, PreemptionPolicy
from api.reasons import ConditionType
from api.workload import Workload
from tests.builders import (
    World,
    evicts,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_quota,
    make_workload,
    reserved,
    waits,
    with_conditions,
)

NEVER = PreemptionPolicy.NEVER
LOWER = PreemptionPolicy.LOWER_PRIORITY
NEWER_EQUAL = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
ANY = PreemptionPolicy.ANY
RECLAMATION = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


def running(name: str, gpus: int, queue: str = "queue", *, started: float = 0.0, **fields: Any) -> Workload:
    return reserved(make_workload(name, queue=queue, gpus=gpus, **fields), at=started)


def incoming(gpus: int, queue: str = "queue", *, priority: int = 5, **fields: Any) -> Workload:
    return make_workload("incoming", queue=queue, gpus=gpus, priority=priority, at=50.0, **fields)


@pytest.mark.parametrize(
    ("policy", "victim", "want"),
    [
        pytest.param(NEVER, {"priority": 0}, {}, id="Never evicts none"),
        pytest.param(
            LOWER, {"priority": 0}, {"victim": "InClusterQueue"}, id="LowerPriority evicts the lower"
        ),
        pytest.param(LOWER, {"priority": 5, "at": 99.0}, {}, id="LowerPriority spares the equal"),
        pytest.param(
            NEWER_EQUAL,
            {"priority": 5, "at": 99.0},
            {"victim": "InClusterQueue"},
            id="at equal priority the newer goes",
        ),
        pytest.param(NEWER_EQUAL, {"priority": 5, "at": 1.0}, {}, id="at equal priority the older stays"),
        pytest.param(NEWER_EQUAL, {"priority": 6, "at": 99.0}, {}, id="the higher stays"),
    ],
)
def test_within_its_queue(policy: PreemptionPolicy, victim: dict[str, Any], want: dict[str, str]) -> None:
    queue = make_cluster_queue(quota=4, preemption=Preemption(within_cluster_queue=policy))
    world = World().put(queue, running("victim", 4, **victim), incoming(4))

    assert evicts(world.settle()) == want


@pytest.mark.parametrize(
    ("policy", "priority", "want"),
    [
        pytest.param(NEVER, 0, {}, id="Never leaves lent quota where it is"),
        pytest.param(LOWER, 0, {"victim": RECLAMATION}, id="LowerPriority takes it back from the lower"),
        pytest.param(LOWER, 9, {}, id="LowerPriority does not from the higher"),
        pytest.param(ANY, 9, {"victim": RECLAMATION}, id="Any takes it back from everyone"),
    ],
)
def test_from_others_in_the_cohort(policy: PreemptionPolicy, priority: int, want: dict[str, str]) -> None:
    world = World().put(
        make_cluster_queue(quota=4, cohort="team", preemption=Preemption(reclaim_within_cohort=policy)),
        make_cluster_queue("borrower", cohort="team"),
        running("victim", 4, "borrower", priority=priority),
        incoming(4),
    )

    assert evicts(world.settle()) == want


def test_a_queue_within_its_own_quota_is_safe() -> None:
    world = World().put(
        make_cluster_queue(quota=2, cohort="team", preemption=Preemption(reclaim_within_cohort=ANY)),
        make_cluster_queue("modest", quota=2, cohort="team"),
        running("safe", 2, "modest"),
        incoming(3),
    )

    assert evicts(world.settle()) == {}


def test_taking_back_stops_where_the_lender_is_within_its_quota_again() -> None:
    world = World().put(
        make_cluster_queue(quota=4, cohort="team", preemption=Preemption(reclaim_within_cohort=ANY)),
        make_cluster_queue("borrower", quota=2, cohort="team"),
        running("own", 2, "borrower", started=1),
        running("lent", 3, "borrower", started=2),
        incoming(4),
    )

    assert evicts(world.settle()) == {"lent": RECLAMATION}


# The queue has 2 of its own and 4 in the cohort; it needs 4, so it borrows 2 after evicting.
@pytest.mark.parametrize(
    ("policy", "threshold", "victim_priority", "want"),
    [
        pytest.param(NEVER, None, 0, {}, id="not while borrowing, unless the policy says so"),
        pytest.param(
            LOWER, None, 0, {"victim": WHILE_BORROWING}, id="LowerPriority: a lower one, while borrowing"
        ),
        pytest.param(LOWER, 0, 0, {"victim": WHILE_BORROWING}, id="up to the threshold"),
        pytest.param(LOWER, 0, 1, {}, id="not above the threshold"),
        pytest.param(LOWER, None, 5, {}, id="not an equal one"),
    ],
)
def test_evicting_others_while_borrowing(
    policy: PreemptionPolicy, threshold: int | None, victim_priority: int, want: dict[str, str]
) -> None:
    preemption = Preemption(
        reclaim_within_cohort=ANY, borrow_within_cohort=policy, borrow_max_priority=threshold
    )
    world = World().put(
        make_cluster_queue(quota=2, cohort="team", preemption=preemption),
        make_cluster_queue("borrower", cohort="team"),
        make_cluster_queue("lender", quota=2, cohort="team"),
        running("victim", 4, "borrower", priority=victim_priority),
        incoming(4),
    )

    assert evicts(world.settle()) == want


def test_below_its_quota_a_queue_takes_back_what_it_lent_beside_its_own_of_lower_priority() -> None:
    """Of its 4 it uses 2 and lent 2; the incoming 4 do not fit while it uses any itself."""
    preemption = Preemption(within_cluster_queue=LOWER, reclaim_within_cohort=ANY)
    world = World().put(
        make_cluster_queue(quota=4, cohort="team", preemption=preemption),
        make_cluster_queue("borrower", cohort="team"),
        running("own", 2),
        running("lent", 2, "borrower", priority=9),
        incoming(4),
    )

    assert evicts(world.settle()) == {"own": "InClusterQueue", "lent": RECLAMATION}


@pytest.mark.parametrize(
    ("small", "want"),
    [
        pytest.param(2, ["small"], id="at its quota, it evicts what it lacks and borrows the rest"),
        pytest.param(1, ["other", "small"], id="below its quota, it evicts its own until it need not borrow"),
    ],
)
def test_a_queue_borrows_after_evictions_only_where_it_has_used_its_quota(
    small: int, want: list[str]
) -> None:
    """The queue has 5 and needs 3; the lender has 1 to spare and lent 2."""
    preemption = Preemption(within_cluster_queue=LOWER, reclaim_within_cohort=ANY)
    world = World().put(
        make_cluster_queue(quota=5, cohort="team", preemption=preemption),
        make_cluster_queue("borrower", cohort="team"),
        make_cluster_queue("lender", quota=3, cohort="team"),
        running("high", 2, priority=9),
        running("small", small),
        running("other", 1, priority=1),
        running("lent", 2, "borrower"),
        incoming(3),
    )

    assert sorted(evicts(world.settle())) == want


# root        Cohort `mine` has the quota that `far` borrows: `queue` claims it whatever the priority.
# ├── mine (4)
# │   └── queue
# └── theirs
#     └── far
def test_the_tree_gives_an_advantage_over_a_queue_further_from_the_quota() -> None:
    preemption = Preemption(reclaim_within_cohort=ANY)
    world = World().put(
        make_cohort("root"),
        make_cohort("mine", parent="root", quota=4),
        make_cohort("theirs", parent="root"),
        make_cluster_queue(cohort="mine", preemption=preemption),
        make_cluster_queue("far", cohort="theirs"),
        running("victim", 4, "far", priority=9),
        incoming(4),
    )

    assert evicts(world.settle()) == {"victim": RECLAMATION}


@pytest.mark.parametrize(
    ("victims", "need", "want"),
    [
        pytest.param(
            {"low": {"gpus": 2, "priority": 0}, "mid": {"gpus": 2, "priority": 1}},
            2,
            ["low"],
            id="the lower priority first",
        ),
        pytest.param(
            {"old": {"gpus": 2, "started": 1.0}, "new": {"gpus": 2, "started": 2.0}},
            2,
            ["new"],
            id="at equal priority the last to start",
        ),
        pytest.param(
            {"small": {"gpus": 1, "priority": 0}, "large": {"gpus": 3, "priority": 1}},
            3,
            ["large"],
            id="one that turns out not to be needed is put back",
        ),
        pytest.param(
            {"a": {"gpus": 2, "priority": 0}, "b": {"gpus": 2, "priority": 1}},
            4,
            ["a", "b"],
            id="as many as it takes",
        ),
    ],
)
def test_the_victims(victims: dict[str, dict[str, Any]], need: int, want: list[str]) -> None:
    queue = make_cluster_queue(quota=4, preemption=Preemption(within_cluster_queue=LOWER))
    world = World().put(queue, *(running(name, **fields) for name, fields in victims.items()), incoming(need))

    assert sorted(evicts(world.settle())) == want


def test_no_workload_is_evicted_where_it_would_not_be_enough() -> None:
    queue = make_cluster_queue(quota=4, preemption=Preemption(within_cluster_queue=LOWER))
    world = World().put(queue, running("low", 2), running("high", 2, priority=9), incoming(4))

    decisions = world.settle()

    assert evicts(decisions) == {}
    assert waits(decisions) == {"incoming": "WaitingForQuota"}


def test_a_leaving_workload_is_counted_on_first_and_not_evicted_again() -> None:
    queue = make_cluster_queue(quota=4, preemption=Preemption(within_cluster_queue=LOWER))
    leaving = with_conditions(
        running("leaving", 2, priority=1), make_condition(ConditionType.EVICTED, reason="Preempted", at=900.0)
    )
    world = World().put(queue, leaving, running("low", 2), incoming(2))

    decisions = world.settle()

    assert evicts(decisions) == {}
    assert waits(decisions) == {"incoming": "WaitingForPreemptedWorkloads"}


def test_only_workloads_that_hold_what_is_needed_are_candidates() -> None:
    queue = make_cluster_queue(quota=make_quota(4), preemption=Preemption(within_cluster_queue=LOWER))
    elsewhere = reserved(make_workload("elsewhere", gpus=9), flavor="another")
    world = World().put(queue, elsewhere, running("victim", 4, priority=1), incoming(4))

    assert evicts(world.settle()) == {"victim": "InClusterQueue"}


def test_the_victim_learns_its_preemptor_the_rule_and_the_paths_of_both() -> None:
    world = World().put(
        make_cohort("root"),
        make_cluster_queue(quota=4, cohort="root", preemption=Preemption(reclaim_within_cohort=ANY)),
        make_cluster_queue("borrower", cohort="root"),
        running("victim", 4, "borrower", resource_version="3"),
        incoming(4, labels={JOB_UID: "job-1"}),
    )

    eviction = next(one for one in world.settle() if isinstance(one, Evict))

    assert eviction.message == (
        "Preempted to accommodate a workload (UID: uid-incoming, JobUID: job-1) due to reclamation within "
        "the cohort; preemptor path: /root/queue; preemptee path: /root/borrower"
    )
    assert (eviction.resource_version, eviction.cluster_queue) == ("3", "borrower")
    assert eviction.preemptor == incoming(4).key
