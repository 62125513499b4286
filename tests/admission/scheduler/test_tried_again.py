"""A Workload that waits and could start is tried, though the time that it was promised has not come."""

from __future__ import annotations

from typing import Any

import pytest

from api.node import NodeInfo
from api.policy import BackfillMode
from api.queueing import Preemption, PreemptionPolicy, QueueingStrategy, ResourceFlavor, Topology
from tests.admission.timed import TimedWorld, key, make_policy, template
from tests.builders import World, make_cluster_queue, make_group, make_pod_set, make_workload, waits

HOST = "kubernetes.io/hostname"


def gang(pods: int, *, gpus: int = 1, **fields: Any) -> dict[str, Any]:
    """Return the fields of a Workload of `pods` pods."""
    return {"pod_sets": (make_pod_set(count=pods, template=template(gpus), **fields),)}


def test_a_workload_promised_its_own_quota_starts_sooner_on_borrowed_quota_that_comes_free() -> None:
    world = TimedWorld(now=0)
    world.put(
        ResourceFlavor(name="spot"),
        make_cluster_queue(
            "lender", cohort="both", groups=(make_group("default", "spot", default=0, spot=2),)
        ),
        make_cluster_queue(cohort="both", groups=(make_group("default", "spot", default=2, spot=0),)),
        make_policy(BackfillMode.EASY),
    )
    world.submit("at-home", 2, runs=300)
    world.submit("beyond", 2, runs=100, says=400)
    world.submit("waiting", 2, runs=20, at=1)

    world.run()

    assert world.promised("waiting") == [300]
    assert world.started["waiting"] == 100


def test_a_workload_that_may_run_with_fewer_pods_starts_with_them_before_the_promise_of_all() -> None:
    world = TimedWorld(now=0)
    world.put(make_cluster_queue(quota=2), make_policy(BackfillMode.EASY))
    world.submit("short", 1, runs=20)
    world.submit("long", 1, runs=50)
    world.submit("elastic", runs=20, at=1, **gang(2, min_count=1))

    world.run()

    assert world.promised("elastic") == [50]
    assert world.started["elastic"] == 20


def test_a_start_that_was_found_beside_all_promises_is_tried_though_the_clock_has_gone_on() -> None:
    reclaims = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world = TimedWorld(now=1000)
    world.put(
        make_cluster_queue("borrower", quota=8, cohort="c", preemption=reclaims),
        make_cluster_queue("lender", cohort="c", groups=(make_group(missing=8),)),
        make_policy(BackfillMode.CONSERVATIVE),
    )
    for name, gpus in (("running", 8), ("too-large", 32), ("promised", 8)):
        world.put(make_workload(name, at=1000, uid=f"uid-{gpus}-{name}", queue="borrower", gpus=gpus))
    for _ in range(3):
        world.engine.cycle(now=1000)
    world.put(make_cluster_queue("lender", quota=8, cohort="c"))
    for cycle in range(10):
        # As in the control loop: the clock goes on from one cycle to the next.
        world.engine.cycle(now=1001 + cycle / 100)

    assert not world.engine.wake_heads(now=1001.1)
    assert world.engine.workloads.is_holding(key("promised"))


def test_a_workload_held_back_for_a_promise_of_another_tree_is_tried_when_that_moves() -> None:
    nodes = [
        NodeInfo(name=name, labels={HOST: name}, allocatable={"gpu": 2, "pods": 9}) for name in ("a", "b")
    ]
    world = TimedWorld(now=0)
    world.put(
        Topology(name="t", levels=(HOST,)),
        ResourceFlavor(name="default", topology_name="t"),
        *nodes,
        make_cluster_queue(quota=4),
        make_cluster_queue("other", quota=2),
        make_policy(BackfillMode.EASY),
    )
    world.submit("outruns", 2, runs=1000, says=50)
    world.submit("promised", runs=20, at=1, **gang(2, gpus=2))
    world.submit("held-back", runs=30, at=30, queue="other", **gang(4, min_count=1))

    world.run()

    assert world.promised("promised")[:2] == [50, 110]
    assert world.started["held-back"] == 50


def test_a_preemptor_that_is_tried_again_while_its_victims_stop_keeps_its_promise() -> None:
    lower = Preemption(reclaim_within_cohort=PreemptionPolicy.LOWER_PRIORITY)
    policy = make_policy(BackfillMode.OPPORTUNISTIC)
    world = TimedWorld(now=0)
    world.put(
        make_cluster_queue("borrower", quota=2, cohort="both"),
        make_cluster_queue(quota=3, cohort="both", preemption=lower),
        policy,
    )
    world.submit("victim", 1, runs=600, priority=1, queue="borrower")
    world.submit("above", 3, runs=300, priority=2, at=1, queue="borrower")
    world.submit("preemptor", 2, runs=20, priority=2, at=2)
    world.submit("next", 4, runs=20, priority=2, at=3)

    world.run()

    assert world.promised("preemptor") == [12]


def test_of_two_that_are_promised_one_after_the_other_each_starts_in_its_time() -> None:
    """`older` was evicted, and is promised a start behind `younger`, which had its promise before that."""
    lower = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = TimedWorld(now=0)
    world.put(make_cluster_queue(quota=2, preemption=lower), make_policy(BackfillMode.EASY))
    world.submit("older", 2, runs=100)
    world.submit("younger", 2, runs=20, at=1)
    world.submit("urgent", 2, runs=20, at=2, priority=9)

    world.run()

    assert world.evicted == {"older": [2]}
    assert world.started["younger"] == world.promised("younger")[-1]
    assert world.started["older"] == world.promised("older")[-1] == world.ended["younger"]


def test_a_flavor_that_another_workload_passed_is_looked_at_again() -> None:
    group = make_group("default", "spot", default=4, spot=0)
    preemption = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    world = TimedWorld(now=0)
    world.put(
        ResourceFlavor(name="spot"),
        make_cluster_queue(cohort="both", groups=(group,)),
        make_cluster_queue("lender", cohort="both", groups=(group,), preemption=preemption),
    )
    world.submit("elastic", runs=300, **gang(2, gpus=2, min_count=1))
    world.submit("fixed", runs=100, **gang(2, gpus=2))
    world.submit("owner", 1, runs=20, at=50, queue="lender")

    world.run(until=70)

    # It was evicted for the owner of the quota, and goes on at once with what that has left.
    assert list(world.evicted) == ["elastic"]
    assert world.started["elastic"] == world.started["owner"]


@pytest.mark.parametrize("strategy", list(QueueingStrategy))
def test_a_workload_displaced_by_one_of_another_tree_that_does_not_start_is_tried_without_it(
    strategy: QueueingStrategy,
) -> None:
    """`short` has no quota until `runs` ends, and keeps the nodes that it would have for one cycle."""
    world = TimedWorld(now=0)
    world.put(
        Topology(name="t", levels=(HOST,)),
        ResourceFlavor(name="default", topology_name="t"),
        *(NodeInfo(name=name, labels={HOST: name}, allocatable={"gpu": 2, "pods": 9}) for name in ("a", "b")),
        make_cluster_queue(quota=4, queueing_strategy=strategy),
        make_cluster_queue("other", quota=2),
    )
    world.submit("runs", 2, runs=100)
    world.submit("short", runs=20, at=10, **gang(4))
    world.submit("waits", 2, runs=20, at=10, queue="other")

    world.run()

    assert world.started["short"] == 100
    assert world.started["waits"] == 10


# `large` has its quota and no nodes: it keeps both nodes from `small`, whose next flavor has no quota.
@pytest.mark.parametrize("strategy", list(QueueingStrategy))
def test_the_queue_rests_where_a_head_of_its_cohort_keeps_the_nodes_of_another_in_every_cycle(
    strategy: QueueingStrategy,
) -> None:
    two_flavors = (make_group("default", "spot", default=2, spot=0),)
    world = World().put(
        Topology(name="t", levels=(HOST,)),
        ResourceFlavor(name="default", topology_name="t"),
        ResourceFlavor(name="spot", topology_name="t"),
        *(NodeInfo(name=name, labels={HOST: name}, allocatable={"gpu": 2, "pods": 9}) for name in ("a", "b")),
        make_cluster_queue("large", cohort="both", quota=6, queueing_strategy=QueueingStrategy.STRICT_FIFO),
        make_cluster_queue("small", cohort="both", groups=two_flavors, queueing_strategy=strategy),
        make_workload("runs", queue="large", **gang(1, gpus=2)),
    )
    world.confirm(world.settle())
    world.put(
        make_workload("large", queue="large", **gang(2, gpus=2)),
        make_workload("small", queue="small", at=1, **gang(1, gpus=2)),
    )

    assert waits(world.settle(most=9)) == {"large": "WaitingForQuota", "small": "WaitingForQuota"}
