"""Quota that comes free is offered to its own ClusterQueue before others borrow it."""

from __future__ import annotations

import pytest

from api.queueing import Namespace, Preemption, PreemptionPolicy, ResourceFlavor
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    evicts,
    finished,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_workload,
    reserved,
)

RECLAIMING = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)


def two_queues() -> World:
    """An owner of three GPUs, all in use, and a borrower without quota; Workloads of both wait.

    Those of the borrower are older.
    """
    world = World().put(
        make_cluster_queue("owner", quota=3, cohort="cohort", preemption=RECLAIMING),
        make_cluster_queue("borrower", cohort="cohort"),
        *(reserved(make_workload(f"running-{index}", queue="owner", gpus=1)) for index in range(3)),
        *(make_workload(f"guest-{index}", queue="borrower", gpus=1, at=1) for index in range(3)),
    )
    world.settle()
    return world


def end(world: World, count: int) -> None:
    world.now += 1
    for index in range(count):
        world.put(finished(world.get(f"running-{index}")))


@pytest.mark.parametrize(
    ("ended", "waiting", "starts"),
    [
        pytest.param(2, 2, ["own-0", "own-1"], id="what-its-own-Workloads-fill-is-not-lent"),
        pytest.param(3, 2, ["own-0", "own-1", "guest-0"], id="what-they-leave-is-lent-at-the-same-instant"),
        pytest.param(2, 1, ["own-0", "guest-0"], id="one-alone-keeps-nothing-else-back"),
        pytest.param(2, 0, ["guest-0", "guest-1"], id="without-any-all-is-lent"),
    ],
)
def test_workloads_that_end_together_leave_room_for_their_own_queue_first(
    ended: int, waiting: int, starts: list[str]
) -> None:
    world = two_queues()
    world.put(*(make_workload(f"own-{index}", queue="owner", gpus=1, at=2) for index in range(waiting)))
    end(world, ended)

    decisions = world.settle()

    assert admits(decisions) == starts
    assert evicts(decisions) == {}


def test_a_next_workload_that_does_not_fit_within_the_quota_holds_up_a_borrower_for_one_cycle() -> None:
    world = two_queues()
    world.put(
        make_workload("own-0", queue="owner", gpus=1, at=2),
        make_workload("large", queue="owner", gpus=3, at=3),
    )
    end(world, 2)

    assert admits(world.cycle()) == ["own-0"]
    assert admits(world.cycle()) == ["guest-0"]


def test_a_wake_between_two_cycles_does_not_lend_what_an_owner_is_still_filling() -> None:
    world = two_queues()
    world.put(*(make_workload(f"own-{index}", queue="owner", gpus=1, at=2) for index in range(3)))
    end(world, 3)
    starts = admits(world.cycle())

    # Whatever wakes the tree: a namespace's labels here, nodes that another tree leaves on a busy cluster.
    world.put(Namespace(name=NAMESPACE, labels={"team": "a"}))
    starts += admits(world.cycle())

    assert starts == ["own-0", "own-1"]
    assert evicts(world.settle()) == {}


def test_what_came_free_while_no_workload_waited_is_lent_later_as_in_kueue() -> None:
    world = World().put(
        make_cluster_queue("owner", quota=3, cohort="cohort", preemption=RECLAIMING),
        make_cluster_queue("borrower", cohort="cohort"),
        *(reserved(make_workload(f"running-{index}", queue="owner", gpus=1)) for index in range(3)),
    )
    world.settle()
    end(world, 3)
    world.settle()

    world.put(*(make_workload(f"own-{index}", queue="owner", gpus=1, at=2) for index in range(3)))
    world.put(make_workload("guest", queue="borrower", gpus=1, at=1))

    assert admits(world.cycle()) == ["own-0", "guest"]


def test_where_nothing_has_come_free_a_cycle_admits_a_borrower_beside_an_owner_as_in_kueue() -> None:
    world = World().put(
        make_cluster_queue("owner", quota=3, cohort="cohort", preemption=RECLAIMING),
        make_cluster_queue("borrower", cohort="cohort"),
        *(make_workload(f"own-{index}", queue="owner", gpus=1, at=2) for index in range(3)),
        make_workload("guest", queue="borrower", gpus=1, at=1),
    )

    assert admits(world.cycle()) == ["own-0", "guest"]


def test_a_borrower_of_another_resource_starts_in_the_same_cycle() -> None:
    gpus, disks = make_group(default=2), make_group(resource="disk", slow=2)
    world = World().put(
        ResourceFlavor(name="slow"),
        make_cluster_queue("owner", groups=(gpus, disks), cohort="cohort", preemption=RECLAIMING),
        make_cluster_queue("borrower", groups=(make_group(resource="disk", slow=0),), cohort="cohort"),
        *(reserved(make_workload(f"running-{index}", queue="owner", gpus=1)) for index in range(2)),
    )
    world.settle()
    world.put(*(make_workload(f"own-{index}", queue="owner", gpus=1, at=2) for index in range(2)))
    world.put(make_workload("guest", queue="borrower", pod_sets=(make_pod_set(requests={"disk": 1}),), at=3))
    end(world, 2)

    assert sorted(admits(world.cycle())) == ["guest", "own-0"]


def test_room_that_a_borrower_leaves_goes_to_the_owner_first_as_well() -> None:
    world = World().put(
        make_cluster_queue("owner", quota=2, cohort="cohort", preemption=RECLAIMING),
        make_cluster_queue("borrower", cohort="cohort"),
        *(reserved(make_workload(f"running-{index}", queue="borrower", gpus=1)) for index in range(2)),
        make_workload("guest", queue="borrower", gpus=1, at=1),
    )
    world.settle()
    end(world, 2)
    world.put(*(make_workload(f"own-{index}", queue="owner", gpus=1, at=2) for index in range(2)))

    decisions = world.settle()

    assert admits(decisions) == ["own-0", "own-1"]
    assert evicts(decisions) == {}
