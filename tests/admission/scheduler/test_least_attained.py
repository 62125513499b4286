"""Taking turns under LeastAttained: what goes first, what is preempted, and when that changes by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.decisions.decision import Evict
from admission.preemption.least_attained import pending_level
from api.jobs.resource_requests import PodSetRequests
from api.node import NodeInfo
from api.policy import AdmissionPolicy, Ordering, OrderingMode, PreemptionRules
from api.queueing import ResourceFlavor, Topology
from api.reasons import ConditionType
from api.workload import DomainCount, TopologyAssignment, Workload
from queues.pending.least_attained import FIRST
from tests.builders import (
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_condition,
    make_group,
    make_pod_set,
    make_workload,
    released,
    reserved,
    with_conditions,
)

GPU = "nvidia.com/gpu"
HOST = "kubernetes.io/hostname"
NOW = 100_000.0
# An instant at which levels are looked at.
LOOK = 102_000.0
TURNS = AdmissionPolicy(
    name="turns",
    ordering=Ordering(mode=OrderingMode.LEAST_ATTAINED, age_seconds=7200),
    preemption=PreemptionRules(minimum_runtime_seconds=600),
)


def make_world(*values: object, gpus: int = 8, policy: AdmissionPolicy = TURNS, **spec: Any) -> World:
    queue = make_cluster_queue(groups=(make_group(default=gpus, resource=GPU),), **spec)
    return World(now=NOW).put(policy, queue, *values)


def waiting(name: str, *, gpus: int = 8, at: float = NOW, ran: int = 0, **fields: Any) -> Workload:
    pods = (make_pod_set(requests={GPU: gpus}),)
    workload = make_workload(name, pod_sets=pods, at=at, **fields)
    return replace(workload, accumulated_execution_seconds=ran)


def running(name: str, *, gpus: int = 8, since: float, ran: int = 0, **fields: Any) -> Workload:
    return reserved(waiting(name, gpus=gpus, at=since, ran=ran, **fields), at=since)


def test_the_workload_that_has_received_least_goes_first() -> None:
    world = make_world(
        waiting("much", at=NOW - 500, ran=3600), waiting("little", at=NOW - 400, ran=450), waiting("new")
    )

    # 8 GPU-hours, one GPU-hour, nothing. Within a level age decides.
    assert world.active() == ["new", "much", "little"]


@pytest.mark.parametrize(
    ("victim", "want"),
    [
        pytest.param(running("v", since=NOW - 1200), {"v": "InClusterQueue"}, id="of a higher level it does"),
        pytest.param(running("v", gpus=5, since=NOW - 660), {}, id="of the same level it does not"),
        pytest.param(
            running("v", since=NOW - 540, ran=9999), {}, id="before its minimum run time it does not"
        ),
        pytest.param(running("v", since=NOW - 1200, priority=1), {}, id="of a higher priority it does not"),
    ],
)
def test_a_running_workload_is_preempted(victim: Workload, want: dict[str, str]) -> None:
    world = make_world(victim, waiting("new"))

    assert evicts(world.settle()) == want


def costly(name: str, save_seconds: int) -> Workload:
    """Return a Workload of half the GPUs that says how long it saves."""
    annotations = {"berth.dev/checkpoint-save-seconds": str(save_seconds)}
    return replace(running(name, gpus=4, since=NOW - 1200), annotations=annotations)


@pytest.mark.parametrize("slow", ["a", "b"])
def test_of_one_level_the_one_that_saves_faster_is_preempted(slow: str) -> None:
    victims = (costly(name, 300 if name == slow else 10) for name in "ab")
    world = make_world(*victims, waiting("new", gpus=4))

    assert set(evicts(world.settle())) == {"a", "b"} - {slow}


def test_without_the_policy_equal_priorities_do_not_preempt() -> None:
    world = make_world(running("v", since=0.0), waiting("new"), policy=AdmissionPolicy(name="turns"))

    assert evicts(world.settle()) == {}


def test_a_policy_that_comes_later_lets_equal_priorities_take_turns() -> None:
    world = make_world(running("v", since=0.0), waiting("new"), policy=AdmissionPolicy(name="turns"))
    world.settle()

    world.put(TURNS)

    assert list(evicts(world.settle())) == ["v"]


def test_a_turn_begins_when_the_minimum_run_time_is_over() -> None:
    world = make_world(running("v", since=NOW - 100, ran=9999), waiting("new"))
    assert evicts(world.settle()) == {}

    wake_at = world.engine.next_wake_at()
    assert wake_at is not None
    # Looked at on the minute: 500 s from now is 100,500, which is one.
    assert wake_at == NOW + 500
    world.now = wake_at

    assert list(evicts(world.settle())) == ["v"]


def test_the_victim_queues_behind_and_the_other_takes_its_turn() -> None:
    world = make_world(running("v", since=NOW - 1200), waiting("new"))
    decisions = world.carry_out(tuple(world.settle()))
    assert list(evicts(decisions)) == ["v"]
    world.put(replace(released(world.get("v"), at=NOW), accumulated_execution_seconds=1200))

    assert admits(world.settle()) == ["new"]
    assert world.active() + world.parked() == ["v"]


def test_the_highest_level_is_preempted_first_and_then_the_least_loss() -> None:
    world = make_world(
        running("wide", gpus=4, since=NOW - 1200, ran=9000),
        running("narrow", gpus=2, since=NOW - 1200, ran=18_000),
        running("young", gpus=2, since=NOW - 2400),
        waiting("new", gpus=2),
    )

    # 11 and 10 GPU-hours are one level, 1.3 one below.
    assert list(evicts(world.settle())) == ["narrow"]


def test_a_workload_that_has_waited_too_long_goes_before_all_levels() -> None:
    world = make_world(
        waiting("big", at=NOW - 7100, ran=0), waiting("new", gpus=1), running("v", gpus=1, since=NOW - 60)
    )
    world.put(replace(world.get("big"), accumulated_execution_seconds=0))
    world.settle()

    world.now = NOW + 100
    world.put(waiting("newer", gpus=1, at=NOW + 100))

    # 7 of 8 GPUs are free or could be; no other Workload may take them from it any more.
    decisions = world.settle()
    assert admits(decisions) == []
    assert world.active()[0] == "big"


def test_at_equal_level_the_last_created_is_preempted() -> None:
    """Though it started first: a Workload that just had its turn after long waiting is not evicted for it."""
    older = replace(running("older", gpus=4, since=NOW - 1200, ran=9000), created_at=NOW - 9000)
    newer = replace(running("newer", gpus=4, since=NOW - 1800, ran=9000), created_at=NOW - 8000)
    world = make_world(older, newer, waiting("new", gpus=4))

    assert list(evicts(world.settle())) == ["newer"]


@pytest.mark.parametrize(
    ("waited", "want"),
    [
        pytest.param(7199, 2, id="before the first age its level is what it has received"),
        pytest.param(7200, 1, id="an age is one level"),
        pytest.param(2 * 7200, 0, id="two are two"),
        pytest.param(3 * 7200, FIRST, id="in the lowest level another one puts it before all"),
        pytest.param(9 * 7200, FIRST, id="and there is nothing beyond that"),
    ],
)
def test_a_waiting_workload_climbs_the_levels(waited: float, want: int) -> None:
    assert TURNS.ordering is not None
    workload = waiting("w", at=NOW - waited)
    # Sixteen GPU-hours in an earlier attempt: the last of three levels. It waits since that was over.
    workload = replace(
        released(reserved(workload, at=0.0), at=NOW - waited), accumulated_execution_seconds=7200
    )
    requests = (PodSetRequests(name="main", count=1, per_pod={GPU: 8}),)

    assert pending_level(workload, requests, TURNS.ordering, now=NOW) == want


def test_a_workload_that_has_climbed_is_tried_before_a_later_one() -> None:
    aged = replace(waiting("aged", at=NOW - 7100), accumulated_execution_seconds=1800)
    world = make_world(aged, running("v", since=NOW - 60), waiting("new"))
    world.settle()
    assert world.active() + world.parked() == ["new", "aged"]

    # Time alone does it: nothing else happens before.
    while world.now < NOW + 100:
        wake_at = world.engine.next_wake_at()
        assert wake_at is not None
        world.now = wake_at
        world.settle()

    assert world.active() + world.parked() == ["aged", "new"]


def test_the_queue_goes_on_while_others_save() -> None:
    world = make_world(
        running("v1", gpus=4, since=NOW - 1200, ran=9000),
        running("v2", gpus=4, since=NOW - 1200, ran=9000),
        waiting("first", gpus=4, at=NOW - 9),
        waiting("second", gpus=4, at=NOW - 8),
    )

    assert set(evicts(world.settle())) == {"v1", "v2"}


def test_what_is_left_goes_to_those_it_was_left_for() -> None:
    world = make_world(
        running("v1", gpus=4, since=NOW - 1200, ran=9000),
        running("v2", gpus=4, since=NOW - 1200, ran=9000),
        waiting("first", gpus=8, at=NOW - 9),
        waiting("late", gpus=1, at=NOW - 8),
    )
    world.settle()
    world.put(leaves(world, "v1"))

    assert admits(world.settle()) == []

    world.put(leaves(world, "v2"))
    assert admits(world.settle()) == ["first"]


def test_what_is_left_over_is_kept_for_one_and_the_next_evicts_for_itself() -> None:
    """The first needs seven GPUs of eight, the second takes the eighth. The third does not wait for that."""
    world = make_world(
        running("v1", gpus=8, since=NOW - 1200, ran=9000),
        running("v2", gpus=4, since=NOW - 1200, ran=300),
        waiting("first", gpus=7, at=NOW - 9),
        waiting("second", gpus=1, at=NOW - 8),
        waiting("third", gpus=1, at=NOW - 7),
        gpus=12,
    )

    assert set(evicts(world.settle())) == {"v1", "v2"}

    world.put(leaves(world, "v1"))
    assert admits(world.settle()) == ["first", "second"]


def test_without_a_hold_one_eviction_is_waited_for_before_the_next() -> None:
    policy = replace(TURNS, preemption=PreemptionRules(minimum_runtime_seconds=600, hold_seconds=0))
    world = make_world(
        running("v1", gpus=4, since=NOW - 1200, ran=9000),
        running("v2", gpus=4, since=NOW - 1200, ran=9000),
        waiting("first", gpus=4, at=NOW - 9),
        waiting("second", gpus=4, at=NOW - 8),
        policy=policy,
    )

    assert len(evicts(world.settle())) == 1


def test_an_eviction_that_failed_is_asked_for_again() -> None:
    world = make_world(running("v", since=NOW - 1200, ran=9000), waiting("new"))
    (decision,) = (one for one in world.settle() if isinstance(one, Evict))

    world.engine.forget(decision.key, decision.uid, now=world.now)

    assert list(evicts(world.settle())) == ["v"]


def leaves(world: World, name: str) -> Workload:
    """Return the Workload as it is when it has stopped for another."""
    evicted = make_condition(ConditionType.EVICTED, reason="Preempted", at=world.now)
    return released(with_conditions(world.get(name), evicted), at=world.now)


def test_one_that_never_fits_holds_nothing_however_long_it_waits() -> None:
    world = make_world(waiting("huge", gpus=9, at=NOW - 9000), waiting("new", gpus=1))

    assert admits(world.settle()) == ["new"]


def test_a_gang_empties_the_cheapest_node() -> None:
    """Three nodes of eight: one pod of eight takes the node where least is lost, not the least of each."""
    nodes = [
        NodeInfo(name=f"n{number}", labels={HOST: f"n{number}"}, allocatable={GPU: 8, "pods": 110})
        for number in range(3)
    ]
    flavor = ResourceFlavor(name="default", topology_name="hosts")
    world = make_world(Topology(name="hosts", levels=(HOST,)), flavor, *nodes, gpus=24)
    for name, node, gpus in (
        ("a", "n0", 8),
        ("b1", "n1", 2),
        ("b2", "n1", 2),
        ("c1", "n2", 1),
        ("c2", "n2", 7),
    ):
        workload = running(name, gpus=gpus, since=NOW - 30_000)
        world.put(on_node(workload, node))

    decisions = world.put(waiting("gang")).settle()

    # n1 has four GPUs free: two Workloads of two lose less than any other way.
    assert sorted(evicts(decisions)) == ["b1", "b2"]


def test_a_gang_empties_the_node_of_the_workloads_that_have_received_most() -> None:
    """A Workload of a middle level stays, though fewer GPUs would stop for the gang there."""
    nodes = [
        NodeInfo(name=f"n{number}", labels={HOST: f"n{number}"}, allocatable={GPU: 8, "pods": 110})
        for number in range(2)
    ]
    flavor = ResourceFlavor(name="default", topology_name="hosts")
    world = make_world(Topology(name="hosts", levels=(HOST,)), flavor, *nodes, gpus=16)
    world.put(on_node(running("middle", gpus=2, since=NOW - 7200), "n0"))
    world.put(on_node(running("most", gpus=8, since=NOW - 7200), "n1"))

    assert list(evicts(world.put(waiting("gang")).settle())) == ["most"]


def on_node(workload: Workload, node: str) -> Workload:
    """Return the running Workload placed on the node."""
    assert workload.admission is not None
    place = TopologyAssignment(levels=(HOST,), domains=(DomainCount(values=(node,), count=1),))
    pod_sets = tuple(replace(one, topology=place) for one in workload.admission.pod_sets)
    return replace(workload, admission=replace(workload.admission, pod_sets=pod_sets))


def test_nothing_starts_on_what_leaving_victims_still_hold() -> None:
    """The victim frees five GPUs more than its preemptor needs; they are free only when it has stopped."""
    world = World(now=NOW).put(
        TURNS,
        make_cluster_queue("a", groups=(make_group(default=8, resource=GPU),), cohort="all"),
        make_cluster_queue("b", groups=(make_group(default=0, resource=GPU),), cohort="all"),
        reserved(waiting("v", gpus=7, queue="a", at=0.0), queue="a", at=0.0),
        waiting("new", gpus=2, queue="a"),
        waiting("other", gpus=2, queue="b"),
    )

    decisions = world.settle()

    assert list(evicts(decisions)) == ["v"]
    assert admits(decisions) == []


@pytest.mark.timeout(30)  # It would never end.
def test_a_level_that_is_left_this_very_instant_but_for_rounding_is_looked_at_later() -> None:
    # 13 GPUs reach ten hours of one GPU after 2769.23… seconds: in floating point a hair less than ten hours.
    since = LOOK - 36_000 / 13
    assert 13 * (LOOK - since) < 36_000
    world = make_world(running("w", gpus=13, since=since), gpus=20)
    world.put(waiting("next", at=LOOK))
    world.now = LOOK

    world.settle()

    soonest = world.engine.next_wake_at()
    assert soonest is not None
    assert soonest > LOOK
