"""Pods on nodes by the gradient of fragmentation."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from admission.placement.topology.place import Place, place_of, taken_per_pod
from admission.placement.topology.placement_options import PlacementOptions, Strategy
from admission.placement.topology.request import PlacementRequest
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.node import NodeInfo
from api.policy import DomainRules
from api.queueing import ResourceFlavor, Topology

GPU, MILLI, HOST, RACK = "nvidia.com/gpu", "berth.dev/gpu-milli", "kubernetes.io/hostname", "rack"


def make_node(name: str, gpus: int, cpus: int = 96) -> NodeInfo:
    """Return a node in the rack that the first letter of its name stands for."""
    return NodeInfo(
        name=name,
        labels={HOST: name, RACK: name[0]},
        allocatable={GPU: gpus, "cpu": 1000 * cpus, "pods": 100},
    )


def make_fleet(*nodes: NodeInfo) -> TopologyCache:
    cache = TopologyCache()
    for node in nodes:
        cache.put_node(node)
    flavor = ResourceFlavor(name="gpus", topology_name="racks")
    cache.set_flavors({"gpus": flavor}, {"racks": Topology(name="racks", levels=(RACK, HOST))})
    return cache


def ask(count: int = 1, rules: DomainRules | None = None, **amounts: int) -> PlacementRequest:
    names = {"gpus": GPU, "milli": MILLI, "cpu": "cpu"}
    per_pod = taken_per_pod({names[name]: amount for name, amount in amounts.items()})
    options = PlacementOptions(strategy=Strategy.PACKED, rules=rules, gpus_per_pod=amounts.get("gpus", 0))
    return PlacementRequest(pod_set="main", flavor="gpus", count=count, per_pod=per_pod, options=options)


def put(cache: TopologyCache, request: PlacementRequest) -> dict[str, int] | None:
    """Place the pods and take their places. Return the pods on each node, None without a place."""
    found = cache.place([request])
    if isinstance(found, Unplaced):
        return None
    place = place_of(request, found["main"])
    cache.usage.use([place], sign=1)
    cache.learn([place])
    return {one.values[-1]: one.count for one in found["main"].domains}


def test_a_share_goes_where_a_gpu_is_in_use_and_not_where_all_are_free() -> None:
    cache = make_fleet(make_node("a0", 4), make_node("b0", 4), make_node("b1", 2))
    assert put(cache, ask(milli=600, cpu=4000)) == {"b1": 1}
    assert put(cache, ask(milli=300, cpu=4000)) == {"b1": 1}
    assert put(cache, ask(gpus=4, cpu=4000)) == {"a0": 1}
    assert put(cache, ask(gpus=4, cpu=4000)) == {"b0": 1}
    assert put(cache, ask(gpus=2, cpu=4000)) is None


def test_work_with_much_cpu_goes_where_cpu_is_left_over() -> None:
    cache = make_fleet(make_node("a0", 8, cpus=64), make_node("b0", 4, cpus=96))
    for _ in range(2):
        put(cache, ask(gpus=1, cpu=8_000))
    # It would leave three GPUs of a0 without CPU.
    assert put(cache, ask(gpus=1, cpu=32_000)) == {"b0": 1}


def test_several_pods_stay_within_the_narrowest_domain_that_holds_them() -> None:
    cache = make_fleet(*(make_node(name, 4) for name in ("a0", "b0", "b1", "c0", "c1")))
    put(cache, ask(milli=500, cpu=1000))
    found = put(cache, ask(count=4, gpus=2, cpu=1000))
    assert found in ({"b0": 2, "b1": 2}, {"c0": 2, "c1": 2})


def test_size_rules_bind_gangs_and_no_single_pods() -> None:
    rules = DomainRules(max_nodes_per_leaf=1, max_gpus_per_leaf=4)
    cache = make_fleet(*(make_node(name, 4) for name in ("a0", "a1", "b0")))
    assert put(cache, ask(gpus=3, rules=rules)) == {"a0": 1}
    assert put(cache, ask(count=2, gpus=2, rules=rules)) == {"b0": 2}


def test_the_empty_cluster_is_not_the_present_one() -> None:
    cache = make_fleet(make_node("a0", 1), make_node("b0", 1))
    request = ask(milli=700)
    assert put(cache, request) == {"a0": 1}
    assert put(cache, request) == {"b0": 1}
    assert put(cache, request) is None
    assert not isinstance(cache.place([request], is_empty=True), Unplaced)


@pytest.mark.parametrize("seed", range(4))
def test_places_are_those_of_a_search_that_judges_every_node_again(seed: int) -> None:
    rng = random.Random(seed)
    nodes = {
        name: make_node(name, rng.choice([1, 2, 4]), rng.choice([32, 96]))
        for name in ("a0", "a1", "b0", "b1", "c0", "c1")
    }
    cache, held = make_fleet(*nodes.values()), list[Place]()
    asked: list[Mapping[str, int]] = [
        {"milli": 300, "cpu": 2000},
        {"milli": 700, "cpu": 9000},
        {"gpus": 1, "cpu": 8000},
        {"gpus": 2, "cpu": 1000},
        {"cpu": 12_000},
    ]
    for _ in range(60):
        request = ask(rng.choice([1, 1, 1, 2]), None, **rng.choice(asked))
        found = cache.place([request])
        fresh = make_fleet(*nodes.values())
        fresh.usage.use(held, sign=1)
        fresh.mix = fresh.search("gpus").mix = cache.mix
        assert fresh.place([request]) == found
        if not isinstance(found, Unplaced):
            held.append(place_of(request, found["main"]))
            cache.usage.use(held[-1:], sign=1)
            cache.learn(held[-1:])
        if len(held) > 4:
            cache.usage.use([held.pop(rng.randrange(len(held)))], sign=-1)
        name = rng.choice(sorted(nodes))
        if rng.random() < 0.2:
            nodes[name] = make_node(name, rng.choice([1, 2, 4]), rng.choice([32, 96]))
            cache.put_node(nodes[name])
