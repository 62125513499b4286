"""What victims leave over is kept for the Workload that is to have it: their quota as well as their nodes.

old     a node that takes no more pods; the victims run there
n1-n3   free nodes, and no quota left for them before the victims have gone
"""

from __future__ import annotations

from dataclasses import replace

from admission.snapshot.hold_totals import HeldRoom
from api.jobs.resource_requests import PODS
from api.keys import HOSTNAME
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.policy import AdmissionPolicy, PreemptionRules
from api.queueing import QueueingStrategy, ResourceFlavor, Topology
from api.workload import TopologyRequest, Workload, WorkloadKey
from queues.reservations.plan import PlanTable
from tests.admission.preemption.test_capacity_holds import LOWER, end, make_node
from tests.admission.preemption.test_lost_work import placed
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_pod_set,
    make_workload,
    reserved,
)

HOLD_SECONDS = 60


def make_world(*values: object, quota: int = 16) -> World:
    """Return a queue `a` of `quota` GPUs, `b` that borrows from it, and `apart` in a tree of its own."""
    rules = PreemptionRules(minimum_runtime_seconds=0, hold_seconds=HOLD_SECONDS)
    old = replace(make_node("old"), allocatable={"gpu": 64, PODS: 110}, is_unschedulable=True)
    return World().put(
        AdmissionPolicy(name="policy", preemption=rules),
        Topology(name="t", levels=(HOSTNAME,)),
        ResourceFlavor(name="default", topology_name="t"),
        *(make_node(name) for name in ("n1", "n2", "n3", "n4")),
        old,
        make_cluster_queue(
            "a",
            quota=quota,
            cohort="all",
            preemption=LOWER,
            queueing_strategy=QueueingStrategy.BEST_EFFORT_FIFO,
        ),
        make_cluster_queue("b", cohort="all"),
        make_cluster_queue("apart", quota=8, preemption=LOWER),
        *values,
    )


def victim(name: str, gpus: int, *, queue: str = "a", grace: int = 30) -> Workload:
    """Return a Workload of one pod that runs on the old node."""
    spec = WirePodSpec(containers=(_asking(gpus),), termination_grace_period_seconds=grace)
    pod_set = make_pod_set(template=WirePodTemplate(spec=spec))
    return placed(reserved(make_workload(name, queue=queue, pod_sets=(pod_set,))), "old")


def _asking(gpus: int) -> WireContainer:
    return WireContainer(name="c", resources=WireResources(requests={"gpu": gpus}))


def wants(name: str, pods: int = 1, *, queue: str = "a", priority: int = 0, at: float = 900) -> Workload:
    """Return a Workload of pods that take a node each."""
    request = TopologyRequest(unconstrained=True)
    pod_set = make_pod_set(count=pods, requests={"gpu": 8}, topology_request=request)
    return make_workload(name, queue=queue, pod_sets=(pod_set,), priority=priority, at=at)


def awaited(world: World, name: str) -> list[str]:
    """Return whose end room is kept over for a Workload."""
    kept = world.engine.plan.tables()[PlanTable.HOLDS][WorkloadKey(NAMESPACE, name)]
    assert isinstance(kept, HeldRoom)
    return [key.name for key in kept.hold.victims]


def test_quota_that_a_victim_leaves_over_is_kept_though_its_nodes_are_not_wanted() -> None:
    world = make_world(victim("large", 16), wants("first", priority=5), wants("second", priority=4))
    assert list(evicts(world.settle())) == ["large"]
    end(world, "large")

    # The Workload that would borrow comes in the cycle in which `first` is tried, and `second` is not.
    world.put(wants("borrower", queue="b", at=1000))

    assert admits(world.settle()) == ["first", "second"]


def test_a_preemptor_waits_for_what_another_victim_leaves_over_too() -> None:
    """`second` needs 8 GPUs of its own victim, and 8 that `slow` leaves over, which takes long to stop."""
    world = make_world(
        victim("slow", 24, grace=600),
        wants("first", 2, priority=5),
        victim("quick", 8),
        wants("second", 2, priority=4, at=901),
        quota=32,
    )
    assert sorted(evicts(world.settle())) == ["quick", "slow"]
    end(world, "quick")
    world.now += 30 + 5 + HOLD_SECONDS + 1

    assert admits(world.put(wants("borrower", queue="b", at=1000)).settle()) == []

    end(world, "slow")
    assert admits(world.settle()) == ["first", "second"]


def test_quota_of_another_tree_is_not_waited_for() -> None:
    """`elsewhere` goes in the same cycle as `large`, and takes longer, but its quota is not theirs."""
    world = make_world(
        victim("large", 16),
        victim("elsewhere", 8, queue="apart", grace=600),
        wants("first", priority=5),
        wants("other", queue="apart", priority=5),
        wants("second", priority=4, at=901),
    )
    assert sorted(evicts(world.settle())) == ["elsewhere", "large"]

    assert awaited(world, "second") == ["large"]
