"""Room that was freed for a Workload is kept for it until it starts, though others could take it meanwhile.

Two trees share two nodes. The preemptor needs both, and its victims end one after the other:

    tree a      first on node n1, second on node n2, gone for "large" of 16 GPUs
    tree b      "small" of 8 GPUs comes when the first has ended
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from api.eviction import EvictionRequest, render_request
from api.jobs.resource_requests import PODS
from api.keys import EVICTION, HOSTNAME
from api.node import NodeInfo
from api.policy import AdmissionPolicy, PreemptionRules
from api.queueing import Preemption, PreemptionPolicy, QueueingStrategy, ResourceFlavor, Topology
from api.reasons import ConditionType, EvictionReason
from api.workload import Admission, DomainCount, TopologyAssignment, TopologyRequest, Workload, WorkloadKey
from queues.profile.holds import Hold
from queues.reservations.plan import PlanTable, PlanValues
from tests.admission.succession import successor
from tests.builders import (
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_condition,
    make_pod_set,
    make_workload,
    released,
    reserved,
    with_conditions,
)

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
HOLD_SECONDS = 300


def make_world(*, hold_seconds: int = HOLD_SECONDS) -> World:
    rules = PreemptionRules(minimum_runtime_seconds=0, hold_seconds=hold_seconds)
    request = TopologyRequest(unconstrained=True)
    both = make_pod_set(count=2, requests={"gpu": 8}, topology_request=request)
    return World().put(
        AdmissionPolicy(name="policy", preemption=rules),
        Topology(name="t", levels=(HOSTNAME,)),
        ResourceFlavor(name="default", topology_name="t"),
        *(make_node(name) for name in ("n1", "n2")),
        make_cluster_queue("a", quota=16, preemption=LOWER),
        make_cluster_queue("b", quota=16),
        placed("first", "n1"),
        placed("second", "n2"),
        make_workload("large", queue="a", pod_sets=(both,), priority=5, at=900),
    )


def make_node(name: str) -> NodeInfo:
    return NodeInfo(name=name, labels={HOSTNAME: name}, allocatable={"gpu": 8, PODS: 110}, is_ready=True)


def placed(name: str, node: str, *, gpus: int = 8) -> Workload:
    """Return a Workload of tree a that fills the node."""
    workload = reserved(make_workload(name, queue="a", gpus=gpus), at=100)
    assert workload.admission is not None
    (assignment,) = workload.admission.pod_sets
    topology = TopologyAssignment(levels=(HOSTNAME,), domains=(DomainCount(values=(node,), count=1),))
    admission = replace(workload.admission, pod_sets=(replace(assignment, topology=topology),))
    return replace(workload, admission=admission)


def small(priority: int = 0) -> Workload:
    pods = make_pod_set(requests={"gpu": 8}, topology_request=TopologyRequest(unconstrained=True))
    return make_workload("small", queue="b", pod_sets=(pods,), priority=priority, at=1000)


def end(world: World, name: str) -> None:
    """Let an evicted Workload stop and give its quota back; it does not come again."""
    evicted = make_condition(ConditionType.EVICTED, reason="Preempted", at=world.now)
    gone = released(with_conditions(world.get(name), evicted), at=world.now)
    world.put(replace(gone, active=False))


def test_what_the_first_victim_gives_back_is_kept_until_the_second_has_stopped() -> None:
    world = make_world()
    assert sorted(evicts(world.settle())) == ["first", "second"]
    end(world, "first")
    world.settle()

    assert admits(world.put(small()).settle()) == []

    end(world, "second")
    assert admits(world.settle()) == ["large"]


def test_a_new_leader_keeps_what_was_freed_and_no_workload_slips_in_between() -> None:
    world = make_world()
    world.settle()
    end(world, "first")
    evicted = make_condition(ConditionType.EVICTED, reason="Preempted", at=world.now)
    world.put(with_conditions(world.get("second"), evicted), small())
    # The leader dies here: both evictions are written, one victim has stopped.
    world.engine = successor(world.engine, settings=None, now=world.now)

    assert admits(world.settle()) == []
    end(world, "second")
    assert admits(world.settle()) == ["large"]


def test_without_a_hold_another_tree_slips_in() -> None:
    world = make_world(hold_seconds=0)
    world.settle()
    end(world, "first")
    world.settle()

    assert admits(world.put(small()).settle()) == ["small"]


@pytest.mark.parametrize("priority", [9, 0], ids=["of higher priority", "of lower priority"])
@pytest.mark.parametrize("strategy", list(QueueingStrategy))
def test_a_hold_keeps_out_a_higher_priority_and_ends_when_its_time_is_up(
    strategy: QueueingStrategy, priority: int
) -> None:
    """Also for a Workload tried after the one whose time is up: that one expects nothing any more."""
    world = make_world().put(make_cluster_queue("a", quota=16, preemption=LOWER, queueing_strategy=strategy))
    world.settle()
    end(world, "first")
    assert admits(world.put(small(priority=priority)).settle()) == []

    ends_at = world.engine.next_wake_at()
    assert ends_at is not None
    assert ends_at >= world.now + HOLD_SECONDS
    world.now = ends_at

    assert admits(world.settle()) == ["small"]


def _delete(world: World) -> None:
    world.remove(Workload, world.get("large").key)


def _deactivate(world: World) -> None:
    world.put(replace(world.get("large"), active=False))


@pytest.mark.parametrize("end_it", [_delete, _deactivate])
def test_a_hold_ends_with_its_workload_and_one_that_waited_is_tried_at_once(
    end_it: Callable[[World], None],
) -> None:
    world = make_world()
    world.settle()
    end(world, "first")
    world.put(small()).settle()

    end_it(world)

    assert admits(world.settle()) == ["small"]


@pytest.mark.parametrize("was_away", [False, True])
def test_an_expired_hold_is_granted_again_only_to_a_workload_that_comes_back(was_away: bool) -> None:
    """Nothing else is held meanwhile: a Workload that was away no longer keeps others out for ever."""
    world = make_world()
    world.settle()
    ends_at = world.engine.next_wake_at()
    assert ends_at is not None
    world.now = ends_at
    world.settle()
    if was_away:
        _deactivate(world)
        world.settle()
        world.put(replace(world.get("large"), active=True))
        world.settle()
    end(world, "first")
    world.settle()

    assert admits(world.put(small()).settle()) == ([] if was_away else ["small"])


@pytest.mark.parametrize("known_by", ["the victim's request", "the plan", None])
def test_a_new_leader_lets_a_known_preemptor_come_first(known_by: str | None) -> None:
    """Both wait after a change of leaders, the victim with more right to the head of the queue."""
    victim = make_workload("victim", queue="a", gpus=8, priority=5, at=1)
    preemptor = make_workload("preemptor", queue="a", gpus=8, at=2)
    request = EvictionRequest(
        reason=EvictionReason.PREEMPTED,
        requested_at=900,
        deadline=990,
        ask_at=900,
        reserved_at=1,
        preemptor=preemptor.key,
        preemptor_uid=preemptor.uid,
    )
    if known_by == "the victim's request":
        victim = replace(
            victim, annotations={EVICTION: render_request(request, namespace=victim.key.namespace)}
        )
    world = World().put(
        AdmissionPolicy(name="policy", preemption=PreemptionRules()),
        make_cluster_queue("a", quota=8, queueing_strategy=QueueingStrategy.BEST_EFFORT_FIFO),
        preemptor,
        victim,
    )
    if known_by == "the plan":
        adopt(world, make_hold(preemptor, victim))

    assert admits(world.cycle()) == ["preemptor" if known_by else "victim"]


@pytest.mark.parametrize(
    ("going", "want"),
    [
        pytest.param(["victim"], ["preemptor"], id="the other one still names it"),
        pytest.param(["victim", "other"], ["victim"], id="none names it any more"),
    ],
)
@pytest.mark.parametrize("how", ["its request is removed", "it is deleted and created again"])
def test_a_preemptor_comes_first_for_as_long_as_one_of_its_victims_names_it(
    going: list[str], want: list[str], how: str
) -> None:
    preemptor = make_workload("preemptor", queue="a", gpus=8, at=3)
    request = EvictionRequest(
        reason=EvictionReason.PREEMPTED,
        requested_at=900,
        deadline=990,
        ask_at=900,
        reserved_at=1,
        preemptor=preemptor.key,
        preemptor_uid=preemptor.uid,
    )
    plain = {
        name: make_workload(name, queue="a", gpus=8, priority=5, at=at)
        for at, name in enumerate(("victim", "other"), start=1)
    }
    annotations = {EVICTION: render_request(request, namespace=preemptor.key.namespace)}
    world = World().put(
        AdmissionPolicy(name="policy", preemption=PreemptionRules()),
        make_cluster_queue("a", quota=8, queueing_strategy=QueueingStrategy.BEST_EFFORT_FIFO),
        *(replace(one, annotations=annotations) for one in plain.values()),
    )
    for name in going:
        if how != "its request is removed":
            world.remove(Workload, plain[name].key)
        world.put(plain[name])

    # It comes into the queue last: what it is owed is known from its victims alone.
    world.put(preemptor)

    assert admits(world.cycle()) == want


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"uid": "former"}, id="it was for another of the same name"),
        pytest.param({"cluster_queue": "b"}, id="its Workload waits in another ClusterQueue"),
        pytest.param({"until": 1000.0}, id="its time is up"),
        pytest.param({"key": WorkloadKey("team", "gone")}, id="its Workload is gone"),
    ],
)
def test_a_hold_that_is_not_true_any_more_is_not_taken_over(change: dict[str, Any]) -> None:
    world = make_world()
    hold = replace(make_hold(world.get("large"), world.get("first")), **change)

    assert adopt(world, hold) == 1
    assert not world.engine.plan.tables()[PlanTable.HOLDS]


def make_hold(preemptor: Workload, *victims: Workload) -> Hold:
    return Hold(
        key=preemptor.key,
        uid=preemptor.uid,
        cluster_queue=preemptor.queue_name,
        priority=preemptor.priority,
        admission=Admission(cluster_queue=preemptor.queue_name, pod_sets=()),
        victims=tuple(victim.key for victim in victims),
        until=2000.0,
    )


def adopt(world: World, hold: Hold) -> int:
    return world.engine.plan.adopt(PlanValues(holds={hold.key: hold}), now=world.now, is_whole=True)
