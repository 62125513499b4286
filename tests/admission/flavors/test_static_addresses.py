"""Workloads whose pods have static addresses: which nodes they get, and what becomes of their reservations.

rack r0: nodes n0 and n1 with a pool of three addresses; rack r1: nodes n2 and n3 with one of four
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from admission.decisions.decision import Decision, Evict, Reassign
from api.jobs.static_address import reservations_text
from api.node import NodeInfo
from api.objects.common import Meta
from api.policy import AdmissionPolicy, PlacementRules, StrategyChoice
from api.queueing import Preemption, PreemptionPolicy
from api.workload import PodSet, TopologyRequest, Workload, WorkloadKey
from tests.admission.flavors.worlds import fill
from tests.builders import (
    World,
    admits,
    evicts,
    finished,
    make_template,
    make_workload,
    messages,
)

STATIC, RESERVED = "berth.dev/static-address", "berth.dev/addresses"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
POOLS = {"r0": "10.0.0.1-10.0.0.3", "r1": "10.0.1.0/30"}
LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)


def make_node(name: str, rack: str, addresses: str, *, cpus: int = 8) -> NodeInfo:
    return NodeInfo(
        name=name,
        labels={HOST: name, RACK: rack},
        allocatable={"cpu": 1000 * cpus, "pods": 110},
        addresses=addresses,
    )


NODES = tuple(make_node(f"n{n}", f"r{n // 2}", POOLS[f"r{n // 2}"]) for n in range(4))


def make_world(
    *nodes: NodeInfo, levels: tuple[str, ...] = (RACK, HOST), addresses: int | None = None
) -> World:
    amounts = {"cpu": 100_000, **({} if addresses is None else {"berth.dev/address": addresses})}
    return fill(World(), *(nodes or NODES), amounts=amounts, levels=levels, preemption=LOWER)


def make_static(
    name: str, pods: int = 1, *, cpus: int = 1, at: float = 0, rack: str | None = None, **fields: Any
) -> Workload:
    """Return a Workload whose pods ask for addresses; with `rack` all on one of them."""
    template = structs.replace(make_template({"cpu": cpus}), metadata=Meta(annotations={STATIC: "true"}))
    topology = TopologyRequest(required=rack) if rack is not None else None
    pod_set = PodSet(name="main", count=pods, template=template, topology_request=topology)
    return make_workload(name, pod_sets=(pod_set,), at=at, **fields)


def start(world: World) -> list[Decision]:
    """Decide, and let the objects show it: admissions with addresses, evictions as if all pods ended."""
    decisions = world.settle()
    world.carry_out(tuple(decisions))
    for key, _ in list(world.engine.workloads.admissions()):
        if settled := addresses(world, key.name):
            workload = world.get(key.name)
            text = reservations_text({"main": tuple(settled)})
            world.put(replace(workload, annotations={**workload.annotations, RESERVED: text}))
    return decisions


def addresses(world: World, name: str) -> list[str]:
    """Return the addresses of a Workload that holds quota."""
    slots = world.engine.addresses.settle(WorkloadKey("team", name))
    return [slot.address for slot in slots.get("main", ())]


def hosts(world: World, name: str) -> dict[str, int]:
    """Return how many pods of a Workload are on which host."""
    admissions = {key.name: admission for key, admission in world.engine.workloads.admissions()}
    (assigned,) = admissions[name].pod_sets
    assert assigned.topology is not None
    return {domain.values[-1]: domain.count for domain in assigned.topology.domains}


@pytest.mark.covers("004_09")
def test_each_pod_gets_an_address_of_its_racks_pool_and_a_pool_is_not_given_twice() -> None:
    world = make_world().put(make_static("a", 2, at=1), make_static("b", 4, at=2), make_static("c", 2, at=3))

    decisions = start(world)

    # One address is left in r0 and none in r1, though all nodes have CPUs.
    assert admits(decisions) == ["a", "b"]
    assert addresses(world, "a") == ["10.0.0.1", "10.0.0.2"]
    assert addresses(world, "b") == ["10.0.1.0", "10.0.1.1", "10.0.1.2", "10.0.1.3"]
    assert {*hosts(world, "a")} <= {"n0", "n1"}
    said = messages(decisions)["c"]
    left_out = 'excluded: resource "berth.dev/address": 1, static addresses: 2'
    assert f"allows to fit only 1 out of 2 pod(s). Total nodes: 4; {left_out}" in said


def test_two_workloads_of_one_cycle_do_not_get_the_last_address_both() -> None:
    world = make_world(make_node("n0", "r0", "10.0.0.1-10.0.0.3"))
    world.put(make_static("a", 2, at=1), make_static("b", 2, at=2))

    assert admits(world.settle()) == ["a"]


def test_the_pool_of_a_rack_holds_a_gang_that_needs_several_of_its_nodes() -> None:
    world = make_world().put(make_static("gang", 4, cpus=4, rack=RACK))

    start(world)

    assert hosts(world, "gang") == {"n2": 2, "n3": 2}


@pytest.mark.covers("004_09")
def test_a_preempted_gang_keeps_its_addresses_and_returns_to_their_rack() -> None:
    world = make_world().put(make_static("gang", 3, cpus=4))
    start(world)
    assert {*hosts(world, "gang")} == {"n0", "n1"}

    other = make_workload(
        "other", pod_sets=(PodSet(name="main", count=4, template=make_template({"cpu": 8})),)
    )
    decisions = start(world.put(replace(other, priority=1)))
    assert [one.key.name for one in decisions if isinstance(one, Evict)] == ["gang"]
    start(world)
    # The pool is reserved, though nobody uses it.
    world.put(finished(world.get("other")), make_static("late", 1, at=5))
    world.settle()
    world.remove(Workload, WorkloadKey("team", "late"))
    start(world)

    assert addresses(world, "gang") == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert {*hosts(world, "gang")} == {"n0", "n1"}


def test_no_workload_is_evicted_for_addresses_that_it_keeps() -> None:
    world = make_world(*NODES[:2]).put(make_static("low", 3))
    start(world)

    decisions = start(world.put(make_static("high", 1, at=5, priority=1)))

    assert evicts(decisions) == {}
    assert admits(decisions) == []


@pytest.mark.parametrize("ends", ["finished", "deleted"])
def test_the_addresses_of_a_workload_that_is(ends: str) -> None:
    world = make_world(*NODES[:2]).put(make_static("first", 3))
    start(world)
    world.put(make_static("second", 2, at=5))
    assert admits(world.settle()) == []

    if ends == "finished":
        world.put(finished(world.get("first")))
    else:
        world.remove(Workload, WorkloadKey("team", "first"))

    assert admits(start(world)) == ["second"]
    assert addresses(world, "second") == ["10.0.0.1", "10.0.0.2"]


def test_a_restart_of_the_controller_gives_the_same_addresses() -> None:
    world = make_world().put(make_static("a", 2, at=1), make_static("b", 2, at=2))
    start(world)
    again = make_world().put(world.get("b"), world.get("a"))

    assert addresses(again, "a") == addresses(world, "a")
    assert addresses(again, "b") == addresses(world, "b")
    again.put(make_static("c", 4, at=3))
    assert admits(again.settle()) == []


@pytest.mark.parametrize(
    ("lost", "want"),
    [
        pytest.param(NODES[0], {"n1": 2}, id="of a rack moves to the other node of its pool"),
        pytest.param(make_node("n0", "r0", "10.0.9.1"), None, id="with a pool of its own waits for its node"),
    ],
)
def test_a_pod_whose_node_failed(lost: NodeInfo, want: dict[str, int] | None) -> None:
    """Its rack has free addresses in both cases; the other racks' nodes are free too."""
    others = NODES[1:] if want is not None else (make_node("n1", "r0", "10.0.9.2-10.0.9.9"), *NODES[2:])
    gang = make_static("gang", 2, cpus=5)
    gang = replace(gang, annotations={**gang.annotations, RESERVED: '{"main": ["10.0.0.1", "10.0.0.2"]}'})
    if want is None:
        gang = replace(gang, annotations={**gang.annotations, RESERVED: '{"main": ["10.0.9.1", "10.0.9.2"]}'})
    world = make_world(lost, *others).put(gang)
    # The second node has room for both pods once it has more CPUs.
    start(world)
    assert hosts(world, "gang") == {"n0": 1, "n1": 1}
    world.put(replace(others[0], allocatable={"cpu": 16_000, "pods": 110}))

    world.remove(NodeInfo, "n0")
    world.put(replace(world.get("gang"), unhealthy_nodes=("n0",)))
    world.now += 5
    decisions = world.engine.second_pass(now=world.now)

    assert [type(one) for one in decisions] == [Evict if want is None else Reassign]
    if want is not None:
        assert hosts(world, "gang") == want


def test_a_policy_spreads_pods_with_addresses_within_their_racks() -> None:
    world = make_world()
    placement = PlacementRules(strategy=StrategyChoice.DISTRIBUTED)
    world.put(AdmissionPolicy(name="spread", placement=placement))
    world.put(make_static("gang", 7))

    start(world)

    by_rack = [
        sum(n for host, n in hosts(world, "gang").items() if int(host[1]) // 2 == rack) for rack in (0, 1)
    ]
    assert by_rack == [3, 4]
    assert len({*addresses(world, "gang")}) == 7


def test_a_queue_that_covers_addresses_charges_them() -> None:
    world = make_world(addresses=2).put(make_static("a", 2, at=1), make_static("b", 1, at=2))

    decisions = start(world)

    assert admits(decisions) == ["a"]
    assert "insufficient unused quota for berth.dev/address in flavor only" in messages(decisions)["b"]


def test_a_flavor_without_hosts_gives_no_addresses() -> None:
    decisions = make_world(levels=(RACK,)).put(make_static("a")).settle()

    assert (
        "flavor only gives no static addresses: it has no Topology down to kubernetes.io/hostname"
        in (messages(decisions)["a"])
    )


@pytest.mark.parametrize(
    ("node", "want"),
    [
        pytest.param(
            make_node("n9", "r0", "10.0.0.7-x"),
            "node n9 has the annotation berth.dev/addresses in which '10.0.0.7-x' is no address, range or "
            "block; it offers no addresses",
            id="cannot be read",
        ),
        pytest.param(
            make_node("n9", "r0", "10.0.0.3-10.0.0.5"),
            "node n9 offers the address 10.0.0.3, which is in the pool of node n0; it counts there alone",
            id="shares an address with another",
        ),
    ],
)
def test_a_pool_is_reported_that(node: NodeInfo, want: str) -> None:
    world = make_world().put(node)

    assert want in world.engine.nodes.label_problems("n9")
    assert admits(world.put(make_static("a", 3)).settle()) == ["a"]


def make_group(
    name: str, workers: int = 2, *, is_static: bool, cpus: int = 1, at: float = 0, reserved: str = ""
) -> Workload:
    """Return workers and a leader on one rack; the leader asks for an address, the workers if `is_static`."""
    plain = make_template({"cpu": cpus})
    static = structs.replace(plain, metadata=Meta(annotations={STATIC: "true"}))
    topology = TopologyRequest(required=RACK, pod_set_group="gang")
    pod_sets = (
        PodSet(
            name="workers",
            count=workers,
            template=static if is_static else plain,
            topology_request=topology,
        ),
        PodSet(name="leader", count=1, template=static, topology_request=topology),
    )
    own = {RESERVED: reserved} if reserved else {}
    return make_workload(name, pod_sets=pod_sets, at=at, annotations=own)


@pytest.mark.parametrize(
    ("taken", "group", "want"),
    [
        pytest.param(
            make_static("taken", 3),
            make_group("gang", is_static=False),
            {"leader": ["10.0.1.0"]},
            id="its rack",
        ),
        pytest.param(
            make_static("taken", 1),
            make_group("gang", 3, is_static=True),
            {"leader": ["10.0.1.3"], "workers": ["10.0.1.0", "10.0.1.1", "10.0.1.2"]},
            id="beside those of the workers",
        ),
        pytest.param(make_static("taken", 1), make_group("gang", 4, is_static=True), None, id="none left"),
        pytest.param(
            make_static("taken", 1),
            make_group("gang", is_static=False, reserved='{"leader": ["10.0.0.3"]}'),
            {"leader": ["10.0.0.3"]},
            id="the one that it had",
        ),
        pytest.param(
            make_static("taken", 1),
            make_group(
                "gang",
                is_static=True,
                reserved='{"leader": ["10.0.1.1"], "workers": ["10.0.1.0", "10.0.1.3"]}',
            ),
            {"leader": ["10.0.1.1"], "workers": ["10.0.1.0", "10.0.1.3"]},
            id="those that all had",
        ),
    ],
)
def test_a_leader_has_an_address_of_its_own(
    taken: Workload, group: Workload, want: dict[str, list[str]] | None
) -> None:
    # On the first rack, whose pool is the smaller one.
    assert taken.pod_sets[0].template.spec is not None
    spec = structs.replace(taken.pod_sets[0].template.spec, node_selector={RACK: "r0"})
    template = structs.replace(taken.pod_sets[0].template, spec=spec)
    world = make_world().put(replace(taken, pod_sets=(replace(taken.pod_sets[0], template=template),)))
    start(world)
    world.put(replace(group, created_at=1))

    assert admits(world.settle()) == ([] if want is None else ["gang"])
    given = world.engine.addresses.settle(WorkloadKey("team", "gang"))
    assert {name: [slot.address for slot in slots] for name, slots in given.items()} == (want or {})
