"""What is free is kept as events come: it is the same as if it had been worked out from scratch."""

from __future__ import annotations

import random
from dataclasses import replace

from admission.placement.topology.place import Place, place_of
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.node import PodUsage
from api.queueing import ResourceFlavor, Topology
from api.workload import TopologyAssignment
from tests.admission.placement.fleets import (
    FLAVOR,
    GPU,
    HOST,
    LEVELS,
    RACK,
    counts,
    make_fleet,
    make_node,
    make_request,
)

REQUESTS = (
    make_request(6, gpus=2, required=RACK),
    make_request(9, preferred=RACK),
    make_request(4, unconstrained=True),
    make_request(8, required="block", slices=((RACK, 4), (HOST, 2))),
)


def test_what_is_kept_equals_what_is_worked_out_from_scratch() -> None:
    rng = random.Random(7)
    topology_cache, nodes, places = make_fleet({}), {}, list[Place]()
    pods: dict[str, PodUsage] = {}
    for _ in range(120):
        event = rng.randrange(5)
        name = f"n{rng.randrange(12)}"
        if event == 0:
            number = int(name[1:])
            nodes[name] = make_node(name, f"b{number % 2}", f"r{number % 4}", rng.choice((4, 8)))
            topology_cache.put_node(nodes[name])
        elif event == 1 and rng.random() < 0.3:
            nodes.pop(name, None)
            topology_cache.drop_node(name)
        elif event == 2 and places:
            topology_cache.usage.use([places.pop(rng.randrange(len(places)))], sign=-1)
        elif event == 3:
            pods[name] = PodUsage(namespace="ns", name=name, node=name, requests={GPU: rng.randrange(3)})
            topology_cache.put_pod(pods[name] if rng.random() < 0.7 else replace(pods.pop(name), node=""))
        else:
            request = rng.choice(REQUESTS)
            found = topology_cache.place([request])
            if not isinstance(found, Unplaced):
                places.append(place_of(request, found["main"]))
                topology_cache.usage.use(places[-1:], sign=1)

        fresh = make_fleet({})
        for node in nodes.values():
            fresh.put_node(node)
        for pod in pods.values():
            fresh.put_pod(pod)
        fresh.usage.use(places, sign=1)
        for request in REQUESTS:
            assert counts(topology_cache, request) == counts(fresh, request)
            for is_empty in (False, True):
                want = fresh.place([request], is_empty=is_empty)
                # The second time it is a look-up.
                for _ in range(2):
                    assert topology_cache.place([request], is_empty=is_empty) == want
        topology_cache.usage.validate(places)


def test_two_flavors_share_a_host() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8]}})
    flavors = {name: ResourceFlavor(name=name, topology_name="default") for name in (FLAVOR, "other")}
    assert topology_cache.set_flavors(flavors, {"default": Topology(name="default", levels=LEVELS)})
    request = make_request(6, required=HOST)
    found = topology_cache.place([request])
    assert not isinstance(found, Unplaced)
    place = place_of(request, found["main"])

    assert topology_cache.usage.fits([place])
    topology_cache.usage.use(
        [Place(flavor="other", assignment=place.assignment, per_pod=place.per_pod)], sign=1
    )

    assert not topology_cache.usage.fits([place])
    assert counts(topology_cache, make_request(2, required=HOST)) == {"main": {"n0": 2}}


def test_the_empty_cluster_is_asked_without_a_trace() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8]}})
    request = make_request(8, required=HOST)
    topology_cache.usage.use(
        [Place(flavor=FLAVOR, assignment=_where(topology_cache), per_pod={GPU: 8})], sign=1
    )

    assert isinstance(topology_cache.place([request]), Unplaced)
    assert not isinstance(topology_cache.place([request], is_empty=True), Unplaced)
    two = (request, make_request(1, name="more", required=HOST))
    assert isinstance(topology_cache.place(two, is_empty=True), Unplaced)
    assert not isinstance(topology_cache.place([request], is_empty=True), Unplaced)


def _where(topology_cache: TopologyCache) -> TopologyAssignment:
    found = topology_cache.place([make_request(1, gpus=8, required=HOST)])
    assert not isinstance(found, Unplaced)
    return found["main"]
