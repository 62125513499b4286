"""Room that a more important head passes is kept from the heads of other queues, which go elsewhere.

queue a     `large` has evicted two others and waits for the second to stop; `urgent` comes before it in
            its queue, and is tried without heeding what is kept for `large`
queue b     `small` is tried in the same cycle
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.decisions.decision import Admit, Wait
from api.jobs.resource_requests import PODS
from api.policy import AdmissionPolicy, PreemptionRules
from api.queueing import QueueingStrategy, ResourceFlavor
from api.workload import TopologyRequest, Workload
from queues.reservations.plan import PlanTable
from tests.admission.preemption.test_capacity_holds import HOLD_SECONDS, LOWER, end, make_node, placed, small
from tests.admission.preemption.test_capacity_holds import make_world as make_nodes
from tests.builders import (
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_workload,
    reserved,
)

ANYWHERE = TopologyRequest(unconstrained=True)


def urgent() -> Workload:
    """Return a Workload of queue a that comes before `large`, and asks for more than there is."""
    return make_workload("urgent", queue="a", gpus=100, priority=9, at=1000)


def half_freed(world: World) -> World:
    """Return the world once `first` has stopped; what it held is kept for `large`."""
    assert sorted(evicts(world.settle())) == ["first", "second"]
    end(world, "first")
    world.settle()
    return world


def make_quotas() -> World:
    """Return a queue `a` of 16 GPUs in the first flavor, which `b` may borrow, and has 8 in another."""
    return World().put(
        AdmissionPolicy(
            name="policy", preemption=PreemptionRules(minimum_runtime_seconds=0, hold_seconds=HOLD_SECONDS)
        ),
        ResourceFlavor(name="spare"),
        make_cluster_queue(
            "a",
            quota=16,
            cohort="all",
            preemption=LOWER,
            queueing_strategy=QueueingStrategy.BEST_EFFORT_FIFO,
        ),
        make_cluster_queue("b", groups=(make_group(default=0, spare=8),), cohort="all"),
        reserved(make_workload("first", queue="a", gpus=8), at=100),
        reserved(make_workload("second", queue="a", gpus=8), at=100),
        make_workload("large", queue="a", gpus=16, priority=5, at=900),
    )


def test_a_head_of_another_queue_takes_a_node_beside_those_that_are_kept() -> None:
    world = half_freed(make_nodes())

    assert admits(world.put(make_node("n3"), urgent(), small()).cycle()) == ["small"]


def test_it_takes_another_flavor_where_the_quota_of_the_first_is_kept() -> None:
    world = half_freed(make_quotas())

    (admitted,) = (
        one
        for one in world.put(urgent(), make_workload("small", queue="b", gpus=8)).cycle()
        if isinstance(one, Admit)
    )

    assert admitted.admission.pod_sets[0].flavors == {"gpu": "spare"}


def test_where_there_is_nothing_else_it_is_refused_for_what_is_kept() -> None:
    world = half_freed(make_nodes())

    (wait,) = (one for one in world.put(urgent(), small()).cycle() if one.key.name == "small")

    assert isinstance(wait, Wait)
    assert "room is kept for another" in wait.message


@pytest.mark.parametrize("is_passed", [True, False])
def test_what_victims_leave_over_is_kept_for_it_whether_or_not_one_passes(is_passed: bool) -> None:
    """`large` needs n1 and most of n2, where `second` holds all: what is left there will do for `small`."""
    three = make_pod_set(count=3, requests={"gpu": 8}, topology_request=ANYWHERE)
    world = half_freed(
        make_nodes().put(
            replace(make_node("n2"), allocatable={"gpu": 20, PODS: 110}),
            make_cluster_queue("a", quota=28, preemption=LOWER),
            placed("second", "n2", gpus=20),
            make_workload("large", queue="a", pod_sets=(three,), priority=5, at=900),
        )
    )
    if is_passed:
        world.put(urgent())

    few = make_pod_set(requests={"gpu": 4}, topology_request=ANYWHERE)
    decisions = world.put(make_workload("small", queue="b", pod_sets=(few,), at=1000)).cycle()

    assert [one.message for one in decisions if isinstance(one, Wait) and one.key.name == "small"] == [
        "Workload fits only where preempted workloads are still running"
    ]
    assert small().key in world.engine.plan.tables()[PlanTable.HOLDS]
