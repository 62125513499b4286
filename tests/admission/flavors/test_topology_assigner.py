"""Topology beside quota: what is admitted where, what is evicted for a place, what waits for one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from admission.decisions.decision import Admit, Decision, Evict, Wait
from admission.engine.engine import Engine, EngineSettings
from api import keys
from api.jobs.resource_requests import ResourceSettings, Transformation
from api.node import NodeInfo, PodUsage
from api.objects.common import WireSelector
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.queueing import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from api.reasons import PendingReason
from api.workload import Condition, PodSet, SliceConstraint, TopologyRequest, Workload, WorkloadKey
from tests.admission.placement.fleets import FLAVOR, GPU, HOST, LEVELS, RACK, make_node

RACK_REQUIRED = TopologyRequest(required=RACK)


def make_engine(
    *,
    gpus_a_node: int = 8,
    quota: int = 100,
    settings: EngineSettings | None = None,
    plain: str | None = None,
) -> Engine:
    """Return an engine with two racks of two nodes, and one queue that evicts lower priorities.

    `plain` is a resource that the queue has in a flavor without topology.
    """
    engine = Engine(settings)
    quotas = FlavorQuotas(name=FLAVOR, resources={GPU: ResourceQuota(nominal=quota)})
    groups = [ResourceGroup(covered_resources=(GPU,), flavors=(quotas,))]
    if plain is not None:
        beside = FlavorQuotas(name="plain", resources={plain: ResourceQuota(nominal=quota)})
        groups.append(ResourceGroup(covered_resources=(plain,), flavors=(beside,)))
    for value in (
        Namespace(name="ns"),
        Topology(name="default", levels=LEVELS),
        ResourceFlavor(name=FLAVOR, topology_name="default"),
        ResourceFlavor(name="plain"),
        ClusterQueue(
            name="cq",
            namespace_selector=WireSelector(),
            resource_groups=tuple(groups),
            preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY),
        ),
        LocalQueue(namespace="ns", name="lq", cluster_queue="cq"),
    ):
        engine.objects.upsert(value, now=0.0)
    for number in range(4):
        engine.objects.upsert(make_node(f"n{number}", "b0", f"r{number // 2}", gpus_a_node), now=0.0)
    return engine


def make_workload(
    name: str, pods: int, *, topology: TopologyRequest | None = RACK_REQUIRED, priority: int = 0
) -> Workload:
    """Return a Workload of pods of one GPU each."""
    resources = WireResources(requests={GPU: 1})
    template = WirePodTemplate(spec=WirePodSpec(containers=(WireContainer(resources=resources),)))
    return Workload(
        key=WorkloadKey("ns", name),
        uid=name,
        created_at=1.0,
        queue_name="lq",
        priority=priority,
        pod_sets=(PodSet(name="main", count=pods, template=template, topology_request=topology),),
    )


def decide(engine: Engine, *workloads: Workload) -> list[Decision]:
    """Put the Workloads in and decide until nothing more can be decided."""
    for workload in workloads:
        engine.objects.upsert(workload, now=2.0)
    decisions: list[Decision] = []
    while engine.wake_heads(now=2.0):
        decisions += engine.cycle(now=2.0)
        engine.validate()
    return decisions


def places(decision: Decision) -> dict[str, int]:
    """Return the pods by node of an admitted Workload."""
    assert isinstance(decision, Admit)
    topology = decision.admission.pod_sets[0].topology
    assert topology is not None
    return {domain.values[-1]: domain.count for domain in topology.domains}


def test_resources_outside_quota_distinguish_workloads_that_need_other_nodes() -> None:
    engine = make_engine(settings=EngineSettings(resources=ResourceSettings(exclude_prefixes=("disk.io/",))))
    spec = WirePodSpec(
        containers=(WireContainer(resources=WireResources(requests={GPU: 1, "disk.io/nvme": 1})),)
    )
    disk = PodSet(name="main", count=1, template=WirePodTemplate(spec=spec))
    with_disk = replace(make_workload("a-disk", 1, topology=None), pod_sets=(disk,))
    plain = make_workload("b-plain", 1, topology=None)

    decisions = decide(engine, with_disk, plain)

    # Equal in quota, so it would be parked with the one before it.
    assert [one.key.name for one in decisions if isinstance(one, Admit)] == ["b-plain"]


CREDITS = Transformation(input=GPU, outputs={"credits": Fraction(10)})


def test_a_flavor_without_topology_is_used_for_what_the_pods_do_not_request_of_nodes() -> None:
    """Kueue: such a flavor may provide quota-only resources, which resource transformations make."""
    settings = EngineSettings(resources=ResourceSettings(transformations=(CREDITS,)))
    engine = make_engine(settings=settings, plain="credits")

    (admit,) = decide(engine, make_workload("w", 4))

    assert isinstance(admit, Admit)
    assert admit.admission.pod_sets[0].flavors == {GPU: FLAVOR, "credits": "plain"}
    assert places(admit) == {"n0": 4}


def test_a_flavor_without_topology_is_refused_for_what_the_pods_request_of_nodes() -> None:
    engine = make_engine(plain="disk")
    resources = WireResources(requests={GPU: 1, "disk": 1})
    spec = WirePodSpec(containers=(WireContainer(resources=resources),))
    pods = PodSet(name="main", count=1, template=WirePodTemplate(spec=spec), topology_request=RACK_REQUIRED)

    (wait,) = decide(engine, replace(make_workload("w", 1), pod_sets=(pods,)))

    assert isinstance(wait, Wait)
    assert wait.reason is PendingReason.NO_MATCHING_FLAVOR
    assert "Flavor 'plain' does not support TopologyAwareScheduling" in wait.message


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(7, {"n0": 6}, id="pods beyond the last whole slice get no place"),
        pytest.param(6, {"n0": 6}, id="whole slices are placed"),
    ],
)
def test_slices_are_placed_whole_while_quota_is_charged_for_all_pods(pods: int, want: dict[str, int]) -> None:
    topology = TopologyRequest(preferred=RACK, slices=(SliceConstraint(topology=HOST, size=2),))

    (admit,) = decide(make_engine(), make_workload("w", pods, topology=topology))

    assert places(admit) == want
    assert isinstance(admit, Admit)
    assert (admit.admission.pod_sets[0].count, admit.admission.pod_sets[0].usage) == (pods, {GPU: pods})


def test_fewer_pods_than_one_slice_have_no_place() -> None:
    topology = TopologyRequest(preferred=RACK, slices=(SliceConstraint(topology=HOST, size=2),))

    (wait,) = decide(make_engine(), make_workload("w", 1, topology=topology))

    assert isinstance(wait, Wait)
    assert wait.reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED


def test_a_gang_lands_in_one_rack() -> None:
    (admit,) = decide(make_engine(), make_workload("w", 12))

    assert places(admit) == {"n0": 8, "n1": 4}


def test_a_gang_that_no_rack_can_hold_never_fits() -> None:
    (wait,) = decide(make_engine(), make_workload("w", 17))

    assert isinstance(wait, Wait)
    assert wait.reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED
    assert 'topology "default" allows to fit only 16 out of 17 pod(s). Total nodes: 4' in wait.message


def test_a_gang_without_a_rack_waits_until_one_comes_free() -> None:
    engine = make_engine()
    first, second, third = (make_workload(name, 12) for name in ("a", "b", "c"))
    *_, wait = decide(engine, first, second, third)
    assert isinstance(wait, Wait)
    assert wait.key == third.key

    engine.objects.remove(Workload, first.key, now=3.0)

    (admit,) = decide(engine)
    assert (admit.key, places(admit)) == (third.key, {"n0": 8, "n1": 4})


def test_a_place_is_taken_from_lower_priority_although_quota_is_left() -> None:
    engine = make_engine()
    decide(engine, make_workload("a", 12), make_workload("b", 12))

    decisions = decide(engine, make_workload("urgent", 16, priority=5))

    (evict,) = [one for one in decisions if isinstance(one, Evict)]
    assert evict.key.name in ("a", "b")


def test_no_workload_is_evicted_for_a_place_that_does_not_exist() -> None:
    engine = make_engine()
    decide(engine, make_workload("a", 12))

    decisions = decide(engine, make_workload("huge", 17, priority=5))

    assert [type(one) for one in decisions] == [Wait]


def test_a_new_node_wakes_a_workload_that_waits_for_a_place() -> None:
    engine = make_engine()
    decide(engine, make_workload("w", 17))

    engine.objects.upsert(make_node("n4", "b0", "r0", 8), now=3.0)

    (admit,) = decide(engine)
    assert sum(places(admit).values()) == 17


def test_a_pod_that_ends_wakes_a_workload_that_waits_for_its_place() -> None:
    engine = make_engine(gpus_a_node=1)
    pod = PodUsage(namespace="sys", name="p", node="n0", requests={GPU: 1, "pods": 1})
    engine.objects.upsert(pod, now=0.0)
    engine.objects.remove(NodeInfo, "n2", now=0.0)
    (wait,) = decide(engine, make_workload("w", 2))
    assert isinstance(wait, Wait)

    engine.objects.remove(PodUsage, ("sys", "p"), now=3.0)

    (admit,) = decide(engine)
    assert places(admit) == {"n0": 1, "n1": 1}


@pytest.mark.parametrize(
    ("change", "is_woken"),
    [
        pytest.param(None, True, id="a pod on one of its nodes ends"),
        pytest.param({"node": "n0", "requests": {GPU: 0}}, True, id="a pod on one of its nodes shrinks"),
        pytest.param({"node": "elsewhere"}, True, id="a pod goes elsewhere"),
        pytest.param({"node": "n0", "requests": {GPU: 2}}, False, id="a pod on one of its nodes grows"),
        pytest.param({"name": "q", "node": "elsewhere"}, False, id="a pod starts on another's node"),
    ],
)
def test_only_room_on_nodes_of_the_flavor_wakes_a_waiting_workload(
    change: dict[str, Any] | None, is_woken: bool
) -> None:
    engine, pod = make_engine(), PodUsage(namespace="sys", name="p", node="n0", requests={GPU: 1})
    engine.objects.upsert(pod, now=0.0)
    decide(engine, make_workload("w", 33))
    assert not engine.wake_heads(now=3.0)

    if change is None:
        engine.objects.remove(PodUsage, ("sys", "p"), now=3.0)
    else:
        engine.objects.upsert(replace(pod, **change), now=3.0)

    assert engine.wake_heads(now=3.0) is is_woken


def test_a_pod_that_ends_on_a_node_of_no_flavor_wakes_no_workload() -> None:
    engine = make_engine()
    engine.objects.upsert(PodUsage(namespace="sys", name="p", node="elsewhere", requests={GPU: 1}), now=0.0)
    decide(engine, make_workload("w", 33))

    engine.objects.remove(PodUsage, ("sys", "p"), now=3.0)

    assert not engine.wake_heads(now=3.0)


@pytest.mark.parametrize(
    ("topology", "want"),
    [
        pytest.param(None, {"n0": 3}, id="a queue of topologies alone places every Workload"),
        pytest.param(TopologyRequest(preferred=HOST), {"n0": 3}, id="on one node where that is preferred"),
    ],
)
def test_pods_are_placed(topology: TopologyRequest | None, want: dict[str, int]) -> None:
    (admit,) = decide(make_engine(), make_workload("w", 3, topology=topology))

    assert places(admit) == want


def test_an_admission_seen_in_the_object_holds_its_place() -> None:
    engine = make_engine()
    workload = make_workload("w", 16)
    (admit,) = decide(engine, workload)
    assert isinstance(admit, Admit)
    again = make_engine()

    again.objects.upsert(replace(workload, admission=admit.admission, conditions=_reserved()), now=2.0)

    (other,) = decide(again, make_workload("x", 16))
    assert places(other) == {"n2": 8, "n3": 8}


def _reserved() -> dict[str, Condition]:
    return {"QuotaReserved": Condition(type="QuotaReserved", status=True)}


def test_a_pod_set_that_shrank_charges_what_it_still_asks_for() -> None:
    workload = make_workload("w", 5)
    (admit,) = decide(make_engine(), workload)
    assert isinstance(admit, Admit)
    shrunk = replace(make_workload("w", 4), admission=admit.admission, conditions=_reserved())
    engine = make_engine(quota=5)

    engine.objects.upsert(shrunk, now=2.0)

    (other,) = decide(engine, make_workload("x", 1))
    assert isinstance(other, Admit)


UNCONSTRAINED = TopologyRequest(unconstrained=True)


@pytest.mark.parametrize(
    ("first", "then", "others", "want"),
    [
        pytest.param(3, 8, 0, {"n0": 8}, id="more on the same node"),
        pytest.param(3, 10, 13, {"n0": 3, "n2": 7}, id="more on another node, where all of them fit"),
        pytest.param(3, 3, 0, {"n0": 3}, id="as many"),
        pytest.param(3, 2, 0, {"n0": 2}, id="fewer"),
        pytest.param(3, 20, 13, None, id="more than nodes have room for"),
    ],
)
def test_a_slice_keeps_the_places_of_the_one_that_it_replaces(
    first: int, then: int, others: int, want: dict[str, int] | None
) -> None:
    """Its pods run there: they cannot be moved, and pods elsewhere would count as misplaced."""
    engine = make_engine()
    marks = {keys.ELASTIC_JOB: "true", keys.SLICE_NAME: "old"}
    old = make_workload("old", first, topology=UNCONSTRAINED)
    old = replace(old, annotations=marks, owner_uid="job")
    (admit,) = decide(engine, old)
    assert isinstance(admit, Admit)
    decide(engine, replace(old, admission=admit.admission, conditions=_reserved()))
    if others:
        decide(engine, make_workload("fill", 8), make_workload("more", others - 8))
    new = make_workload("new", then, topology=UNCONSTRAINED)
    marks = {**marks, keys.SLICE_REPLACEMENT_FOR: "ns/old"}

    decisions = decide(engine, replace(new, annotations=marks, owner_uid="job"))

    assert [places(one) for one in decisions if isinstance(one, Admit)] == ([want] if want else [])
