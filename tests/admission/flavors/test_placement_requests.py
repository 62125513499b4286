"""What the pods of a Workload ask of the nodes: of one that is placed, waits for its place, or may start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.decisions.assignment import Assignment, Attempt, Mode
from admission.decisions.flavor_mode import Grade, Granular
from admission.flavors.flavor_assigner import FlavorSearch
from admission.flavors.topology_assigner import (
    check_tolerations,
    delayed_requests,
    place,
    placed_pod_sets,
    places_of,
    requests_again,
    with_later_places,
    with_requests,
)
from admission.placement.replacement import RemainingPlace
from admission.placement.topology.place import Place
from admission.placement.topology.placement_options import PlacementOptions, Strategy
from admission.placement.topology.request import Bandwidth, NodeRules, PlacementRequest
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import PodSetRequests
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.objects.common import WireToleration
from api.objects.templates import WireAffinity
from api.policy import AdmissionPolicy, DomainRules, PlacementRules, ScoringWeights, StrategyChoice
from api.queueing import ClusterQueue, ResourceFlavor, Topology
from api.reasons import PendingReason
from api.workload import (
    DELAYED_PENDING,
    DELAYED_READY,
    CheckState,
    DomainCount,
    PodSet,
    PodSetAssignment,
    TopologyAssignment,
    TopologyRequest,
    Workload,
)
from queues.pending.pending_queue import Pending
from queues.quota.resources import FlavorResource
from queues.steps import finish
from tests.builders import (
    World,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_template,
    make_workload,
    reserved,
)

ANYWHERE = TopologyRequest(unconstrained=True)
OF_PODS, OF_FLAVOR, OF_CHECK = (
    WireToleration(key=key, operator="Exists") for key in ("pods", "flavor", "check")
)
AFFINITY = WireAffinity()
TOPOLOGY = Topology(name="t", levels=(HOSTNAME,))
PLACED = ResourceFlavor(name="placed", topology_name="t", tolerations=(OF_FLAVOR,))
PLAIN = ResourceFlavor(name="plain")
BY_POLICY = PlacementRules(
    strategy=StrategyChoice.CONSOLIDATED,
    domain_rules=DomainRules(),
    weights=ScoringWeights(
        resource_availability=0.5, topology_alignment=0.5, domain_utilization=0.0, historical_performance=0.0
    ),
    bandwidth_label="speed",
    avoids_fragmentation=True,
)
NO_GPUS = {"pods": 1}


def make_node(name: str, gpus: int = 4) -> NodeInfo:
    return NodeInfo(
        name=name,
        labels={HOSTNAME: name, "zone": "x", "pool": "new"},
        allocatable={"gpu": gpus, "pods": 99},
    )


def make_world(*values: object, quota: int = 99) -> World:
    """Return two nodes of 4 GPUs, and a queue with a flavor that has a topology beside one that has none."""
    groups = (make_group(placed=quota), make_group(plain=quota, resource="cpu"))
    return World().put(
        TOPOLOGY, PLACED, PLAIN, make_node("n1"), make_node("n2"), make_cluster_queue(groups=groups), *values
    )


def on(*nodes: str) -> TopologyAssignment:
    return TopologyAssignment(
        levels=(HOSTNAME,), domains=tuple(DomainCount(values=(node,), count=1) for node in nodes)
    )


def pods(name: str = "main", count: int = 1, gpus: int = 1, **fields: Any) -> PodSet:
    return make_pod_set(name, count, {"gpu": gpus}, **{"topology_request": ANYWHERE, **fields})


def picky(name: str = "picky") -> PodSet:
    """Return two pods of two GPUs that choose their nodes themselves."""
    template = make_template({"gpu": 2}, node_selector={"zone": "x"}, tolerations=(OF_PODS,))
    assert template.spec is not None
    spec = type(template.spec)(
        containers=template.spec.containers,
        node_selector=template.spec.node_selector,
        tolerations=template.spec.tolerations,
        affinity=AFFINITY,
    )
    return pods(name, 2, template=type(template)(spec=spec))


def given(
    name: str, count: int = 1, *, flavors: dict[str, str] | None = None, **fields: Any
) -> PodSetAssignment:
    return PodSetAssignment(
        name=name, count=count, flavors=flavors or {"gpu": "placed"}, usage={"gpu": count}, **fields
    )


def update(name: str = "picky", **fields: Any) -> CheckState:
    """Return a check that adds to the pods of one pod set."""
    return CheckState(name="check", state="Ready", pod_set_updates=({"name": name, **fields},))


ADDS = update(nodeSelector={"pool": "new"}, tolerations=[{"key": "check", "operator": "Exists"}])


def hold(
    world: World, sets: tuple[PodSet, ...], *assignments: PodSetAssignment, **fields: Any
) -> HeldWorkload:
    """Return a Workload with these pod sets that holds what is given."""
    workload = reserved(make_workload(pod_sets=sets, **fields))
    assert workload.admission is not None
    admission = replace(workload.admission, pod_sets=assignments)
    world.put(replace(workload, admission=admission))
    return world.engine._cache.held[workload.key]


def snapshot_of(world: World) -> Snapshot:
    return world.engine._cache.snapshot()


def request(name: str = "main", count: int = 1, gpus: int = 1, **fields: Any) -> PlacementRequest:
    """Return what `pods` ask of the nodes by default."""
    return PlacementRequest(
        **{
            "pod_set": name,
            "flavor": "placed",
            "count": count,
            "per_pod": {"gpu": gpus, "pods": 1},
            "topology": ANYWHERE,
            "rules": NodeRules(tolerations=(OF_FLAVOR,)),
            **fields,
        }
    )


PICKY_RULES = NodeRules(node_selector=(("zone", "x"),), affinity=AFFINITY, tolerations=(OF_PODS, OF_FLAVOR))
WITH_ADDED = NodeRules(
    node_selector=(("pool", "new"), ("zone", "x")),
    affinity=AFFINITY,
    tolerations=(OF_PODS, OF_FLAVOR, OF_CHECK),
)


# --- of Workloads that hold quota ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sets", "assignments", "checks", "want"),
    [
        pytest.param(
            (pods(),), (given("main", topology=on("n1")),), (), [request()], id="pods that are placed"
        ),
        pytest.param((pods(),), (given("main"),), (), [], id="not pods that have no place"),
        pytest.param(
            (picky(),),
            (given("picky", 2, topology=on("n1", "n2")),),
            (),
            [request("picky", 2, 2, rules=PICKY_RULES)],
            id="the nodes that pods and flavor allow",
        ),
        pytest.param(
            (picky(),),
            (given("picky", 2, topology=on("n1", "n2")),),
            (ADDS,),
            [request("picky", 2, 2, rules=WITH_ADDED)],
            id="the nodes that a check adds",
        ),
        pytest.param(
            (picky(),),
            (given("picky", 2, topology=on("n1", "n2")),),
            (update("other", nodeSelector={"pool": "new"}), update(tolerations="unreadable")),
            [request("picky", 2, 2, rules=PICKY_RULES)],
            id="nothing of what a check adds to others, or writes wrongly",
        ),
        pytest.param(
            (pods("a", gpus=3), pods("b", gpus=4), pods("c")),
            (given("a"), given("b", topology=on("n1")), given("c", topology=on("n2"))),
            (),
            [request("b", gpus=4), request("c")],
            id="each pod set for itself, where one before them has no place",
        ),
        pytest.param(
            (pods("new"),),
            (given("old", topology=on("n2")), given("new", topology=on("n1"))),
            (),
            [request("new")],
            id="not those of a pod set that the Workload does not have any more",
        ),
        pytest.param(
            (pods("a"), pods("b")),
            (
                given("a", flavors={"gpu": "plain"}, topology=on("n2")),
                given("b", flavors={"cpu": "plain", "gpu": "placed"}, topology=on("n1")),
            ),
            (),
            [request("b")],
            id="those on the flavor that has a topology",
        ),
        pytest.param(
            (pods(count=4),),
            (given("main", 2, topology=on("n1", "n2")),),
            (),
            [request(count=2)],
            id="as many pods as were admitted",
        ),
    ],
)
def test_to_be_placed_again_a_workload_asks_for(
    sets: tuple[PodSet, ...],
    assignments: tuple[PodSetAssignment, ...],
    checks: tuple[CheckState, ...],
    want: list[PlacementRequest],
) -> None:
    world = make_world()
    held = hold(world, sets, *assignments, checks=checks)

    assert list(requests_again(snapshot_of(world), held)) == want


def test_of_a_queue_with_a_policy_it_asks_for_what_the_policy_says() -> None:
    world = make_world(AdmissionPolicy(name="policy", placement=BY_POLICY))
    held = hold(world, (pods(),), given("main", topology=on("n1")))

    (found,) = requests_again(snapshot_of(world), held)

    assert found == request(options=found.options)
    assert found.options is not None
    assert found.options.strategy is Strategy.CONSOLIDATED


def test_of_a_queue_that_is_gone_it_asks_for_what_its_pods_say() -> None:
    world = make_world(AdmissionPolicy(name="policy", placement=BY_POLICY))
    held = hold(world, (pods(),), given("main", topology=on("n1")))
    world.remove(ClusterQueue, "queue")

    assert requests_again(snapshot_of(world), held) == (request(),)


def test_the_present_places_of_a_workload_come_with_what_its_pods_ask_for_now() -> None:
    world = make_world()
    held = hold(
        world,
        (pods("a"), pods("b"), pods("c")),
        given("a"),
        given("b", topology=on("n1")),
        given("c", topology=on("n2")),
    )
    asked = (PodSetRequests(name="b", count=1, per_pod={"gpu": 7}, on_node={"gpu": 2}),)

    assert placed_pod_sets(snapshot_of(world), held, asked) == (
        RemainingPlace(request=request("b", gpus=2), assignment=on("n1")),
        # Nothing is known of what its pods use.
        RemainingPlace(request=request("c", per_pod=NO_GPUS), assignment=on("n2")),
    )


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"delayed_topology_request": DELAYED_PENDING}, 1, id="it waits for nodes"),
        pytest.param({}, 0, id="it is placed by no one"),
        pytest.param({"delayed_topology_request": DELAYED_READY}, 0, id="its places were decided"),
        pytest.param(
            {"delayed_topology_request": DELAYED_PENDING, "topology": on("n1")}, 0, id="it has its place"
        ),
    ],
)
def test_a_place_is_asked_for_where(fields: dict[str, Any], want: int) -> None:
    world = make_world()
    held = hold(world, (pods(),), given("main", **fields))
    asked = (PodSetRequests(name="main", count=1, per_pod={}, on_node={"gpu": 2}),)

    assert delayed_requests(snapshot_of(world), held, asked) == (request(gpus=2),) * want


def test_an_admission_takes_the_nodes_of_its_first_flavor_once() -> None:
    held = hold(
        make_world(),
        (pods("a"), pods("b"), pods("c")),
        given("a", flavors={"gpu": "placed", "cpu": "plain"}, topology=on("n1")),
        given("b"),
        given("c", topology=on("n2")),
    )
    asked = (
        PodSetRequests(name="a", count=1, per_pod={"gpu": 7}, on_node={"gpu": 2}),
        PodSetRequests(name="b", count=1, per_pod={"gpu": 7}, on_node={"gpu": 3}),
    )

    assert places_of(held.admission, asked) == (
        Place(flavor="placed", assignment=on("n1"), per_pod={"gpu": 2, "pods": 1}),
        Place(flavor="placed", assignment=on("n2"), per_pod=NO_GPUS),
    )


@pytest.mark.parametrize(
    ("checks", "want"),
    [
        pytest.param((), (), id="none without checks"),
        pytest.param((ADDS,), (OF_CHECK,), id="those that a check adds"),
        pytest.param((update(),), (), id="none where a check adds nothing"),
        pytest.param((update("other", tolerations=[{"key": "x"}]),), (), id="none of another pod set"),
    ],
)
def test_pods_get_tolerations(checks: tuple[CheckState, ...], want: tuple[WireToleration, ...]) -> None:
    workload: Workload = make_workload(pod_sets=(picky(),), checks=checks)

    assert check_tolerations(workload, given("picky")) == want


# --- of heads --------------------------------------------------------------------------------------------


class NoVictims:
    """An oracle that knows no Workload to evict."""

    def grade(self, *args: Any) -> Grade:
        return Grade(Granular.NO_CANDIDATES, args[-1])


def pop(world: World) -> tuple[Snapshot, Pending]:
    snapshot = snapshot_of(world)
    pending = snapshot.queues["queue"].pending.pop()
    assert pending is not None
    return snapshot, pending


def place_head(world: World) -> tuple[Snapshot, Assignment]:
    """Return the flavors and places of the only pending Workload."""
    snapshot, pending = pop(world)
    queue = snapshot.queues["queue"]
    search = FlavorSearch(snapshot=snapshot, queue=queue, pending=pending, oracle=NoVictims())
    return snapshot, finish(place(snapshot, with_requests(snapshot, queue, pending, search.assign())))


TWO = (pods("a", 2, gpus=2), pods("b"))


def test_a_head_that_fits_gets_its_places() -> None:
    _, found = place_head(make_world(make_workload(pod_sets=(*TWO, make_pod_set("c", requests={"cpu": 1})))))

    asked = (request("a", 2, 2), request("b"))
    assert (found.mode, found.placing, found.strategy) == (Mode.FIT, asked, "kueue")
    assert [choice.topology is not None for choice in found.pod_sets] == [True, True, False]
    assert [(one.flavor, one.per_pod) for one in found.places] == [
        ("placed", {"gpu": 2, "pods": 1}),
        ("placed", {"gpu": 1, "pods": 1}),
    ]
    assert [one.assignment for one in found.places] == [one.topology for one in found.pod_sets[:2]]


def test_a_head_without_a_place_now_needs_evictions_and_says_which_pods_lack_it() -> None:
    world = make_world()
    hold(world, (pods(gpus=3),), given("main", topology=on("n1")))
    world.put(make_workload("waits", pod_sets=(pods("a"), pods("b", 2, gpus=3))))

    snapshot, found = place_head(world)

    assert found.mode is Mode.PREEMPT
    assert [choice.mode for choice in found.pod_sets] == [Mode.PREEMPT, Mode.PREEMPT]
    assert [choice.choices["gpu"].mode for choice in found.pod_sets] == [Mode.PREEMPT, Mode.PREEMPT]
    assert [len(choice.reasons) for choice in found.pod_sets] == [0, 1]
    assert "1 out of 2 pod(s)" in found.message()
    # It may get them, so that no attempt has failed for good.
    assert [choice.attempts for choice in found.pod_sets] == [(), ()]
    assert found.places == ()
    # On the empty cluster it has places, and now none.
    assert len(with_later_places(snapshot, found, is_empty=True).places) == 2
    assert with_later_places(snapshot, found, is_empty=False) == found


@pytest.mark.parametrize("quota", [99, 3])
def test_a_head_without_a_place_on_the_empty_cluster_never_fits(quota: int) -> None:
    """Whether or not it has its quota now."""
    world = make_world(quota=quota + 3)
    if quota < 99:
        hold(world, (pods(gpus=3),), given("main", topology=on("n1")))
    world.put(make_workload("waits", pod_sets=(pods("a"), pods("b", gpus=5))))

    _, found = place_head(world)

    assert found.mode is Mode.NO_FIT
    a, b = found.pod_sets
    assert (b.mode, b.choices["gpu"].mode) == (Mode.NO_FIT, Mode.NO_FIT)
    assert a.mode is not Mode.NO_FIT
    assert a.attempts == ()
    assert b.attempts == (Attempt(group=0, flavor="placed", reason=PendingReason.TOPOLOGY_PLACEMENT_FAILED),)
    assert len([one for one in b.reasons if "fit any of 1 pod(s)" in one]) == 1
    assert found.pending_reason() is PendingReason.TOPOLOGY_PLACEMENT_FAILED


def test_a_head_without_a_flavor_asks_for_no_place() -> None:
    world = make_world(make_workload(pod_sets=(pods("a"), make_pod_set("b", requests={"disk": 1}))))

    _, found = place_head(world)

    assert (found.mode, found.places) == (Mode.NO_FIT, ())
    assert [choice.attempts for choice in found.pod_sets] == [(), ()]
    assert "disk unavailable" in found.message()


def test_pods_on_a_flavor_without_a_topology_ask_for_no_place() -> None:
    _, found = place_head(make_world(make_workload(pod_sets=(make_pod_set(requests={"cpu": 1}),))))

    assert (found.mode, found.placing, found.places, found.strategy) == (Mode.FIT, (), (), "")


def test_where_no_flavor_has_a_topology_no_place_is_asked_for() -> None:
    world = World().put(make_cluster_queue(quota=4), make_workload())

    assert place_head(world)[1].placing == ()


def test_pods_that_are_placed_later_are_marked_and_ask_for_no_place_now() -> None:
    world = make_world(make_workload(pod_sets=(pods("a"), make_pod_set("b", requests={"cpu": 1}))))
    snapshot_of(world).queues["queue"].delayed_flavors = frozenset({"placed", "plain"})

    _, found = place_head(world)

    # Only a flavor with a topology has places at all.
    assert [choice.delayed for choice in found.pod_sets] == [DELAYED_PENDING, None]
    assert (found.mode, found.placing) == (Mode.FIT, ())


@pytest.mark.parametrize(
    ("annotations", "want", "want_bandwidth"),
    [
        pytest.param(
            {},
            PlacementOptions(
                strategy=Strategy.CONSOLIDATED,
                rules=BY_POLICY.domain_rules,
                weights=BY_POLICY.weights,
                gpus_per_pod=2,
                avoids_fragmentation=True,
            ),
            None,
            id="what the policy says",
        ),
        pytest.param(
            {
                "placement-strategy": "Distributed",
                "preferred-domain": "leaf-1",
                "latency-sensitive": "True",
                "network-bandwidth": "100Gb",
            },
            PlacementOptions(
                strategy=Strategy.DISTRIBUTED,
                rules=BY_POLICY.domain_rules,
                weights=BY_POLICY.weights,
                gpus_per_pod=2,
                preferred_domain="leaf-1",
                is_latency_sensitive=True,
                avoids_fragmentation=True,
            ),
            Bandwidth(mbits=100_000, label="speed"),
            id="what its annotations say",
        ),
        pytest.param(
            {"latency-sensitive": "no", "placement-strategy": "tight"},
            PlacementOptions(
                strategy=Strategy.CONSOLIDATED,
                rules=BY_POLICY.domain_rules,
                weights=BY_POLICY.weights,
                gpus_per_pod=2,
                avoids_fragmentation=True,
            ),
            None,
            id="what the policy says where annotations make no sense",
        ),
    ],
)
def test_under_a_policy_a_head_asks_for(
    annotations: dict[str, str], want: PlacementOptions, want_bandwidth: Bandwidth | None
) -> None:
    own = {f"berth.dev/{key}": value for key, value in annotations.items()}
    gpu = "nvidia.com/gpu"
    template = make_template({gpu: 2})
    workload = make_workload(pod_sets=(make_pod_set(template=template),), annotations=own)
    world = make_world(AdmissionPolicy(name="policy", placement=BY_POLICY), workload)
    world.put(make_cluster_queue(groups=(make_group(resource=gpu, placed=9),)))

    _, found = place_head(world)

    (asked,) = found.placing
    assert asked.options == want
    assert asked.rules == NodeRules(tolerations=(OF_FLAVOR,), bandwidth=want_bandwidth)
    assert asked.keeps_domains_whole
    assert found.strategy == want.strategy


@pytest.mark.parametrize(
    ("type_", "want"),
    [
        pytest.param("Training", Strategy.CONSOLIDATED, id="training is packed"),
        pytest.param("inference", Strategy.DISTRIBUTED, id="inference is spread"),
        pytest.param("other", Strategy.BALANCED, id="what is neither gets the strategy between"),
    ],
)
def test_by_the_type_of_the_workload(type_: str, want: Strategy) -> None:
    rules = PlacementRules(strategy=StrategyChoice.BY_WORKLOAD_TYPE)
    world = make_world(AdmissionPolicy(name="policy", placement=rules))
    world.put(make_workload(pod_sets=(pods(),), annotations={"berth.dev/workload-type": type_}))

    (asked,) = place_head(world)[1].placing

    assert asked.options is not None
    assert asked.options.strategy is want


def test_of_two_flavors_the_pods_are_placed_on_the_first_by_name_that_has_a_topology() -> None:
    also = ResourceFlavor(name="also", topology_name="t")
    world = make_world(also, make_workload(pod_sets=(make_pod_set(requests={"gpu": 1, "cpu": 1}),)))
    world.put(make_cluster_queue(groups=(make_group(placed=4), make_group(also=4, resource="cpu"))))

    _, found = place_head(world)

    assert [one.flavor for one in found.placing] == ["also"]
    assert found.usage == {FlavorResource("placed", "gpu"): 1, FlavorResource("also", "cpu"): 1000}
