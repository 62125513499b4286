"""Which changes of a Workload give it another shape: those that the flavor search or the placement reads."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from api.jobs.resource_requests import PodSetRequests, pod_set_requests
from api.keys import PLACEMENT_KEYS, RESERVATION
from api.objects.common import Meta, WireToleration
from api.objects.templates import WireAffinity, WireNodeAffinity, WireNodeSelector
from api.workload import PodSet, TopologyRequest, Workload
from queues.pending.shape import shape_of
from tests.builders import make_condition, make_pod_set, make_template, make_workload, with_conditions

PLACEMENT_KEY = min(PLACEMENT_KEYS)
ZONE_A, ZONE_B = {"zone": "a"}, {"zone": "b"}
TOLERATES = (WireToleration(key="gpu", operator="Exists"),)
AFFINITY = WireAffinity(
    node_affinity=WireNodeAffinity(required_during_scheduling_ignored_during_execution=WireNodeSelector())
)


def shape(pod_set: PodSet | None = None, **fields: Any) -> bytes:
    return shape_with(make_workload(pod_sets=(pod_set or make_pod_set(),), **fields))


def shape_with(workload: Workload, **asked: Any) -> bytes:
    """The shape with the requests of the templates, or with those given."""
    requests = tuple(
        PodSetRequests(name=one.name, count=one.count, **asked) if asked else pod_set_requests(one)
        for one in workload.pod_sets
    )
    return shape_of(workload, requests)


def selecting(node_selector: dict[str, str]) -> PodSet:
    return make_pod_set(template=make_template({"gpu": 1}, node_selector=node_selector))


def carrying(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> PodSet:
    template = make_template({"gpu": 1})
    metadata = Meta(annotations=annotations, labels=labels)
    return make_pod_set(template=replace(template, metadata=metadata))


def affine(affinity: WireAffinity) -> PodSet:
    template = make_template({"gpu": 1})
    assert template.spec is not None
    return make_pod_set(template=replace(template, spec=replace(template.spec, affinity=affinity)))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(shape(make_pod_set(count=2)), id="the number of pods"),
        pytest.param(shape(make_pod_set(requests={"gpu": 2})), id="what a pod requests"),
        pytest.param(shape(make_pod_set("worker")), id="the name of a pod set, by which flavors go"),
        pytest.param(shape(make_pod_set(min_count=1)), id="partial admission"),
        pytest.param(
            shape(make_pod_set(topology_request=TopologyRequest(required="rack"))), id="a topology request"
        ),
        pytest.param(shape(selecting(ZONE_A)), id="a node selector"),
        pytest.param(
            shape(make_pod_set(template=make_template({"gpu": 1}, tolerations=TOLERATES))), id="a toleration"
        ),
        pytest.param(shape(affine(AFFINITY)), id="an affinity"),
        pytest.param(shape(annotations={PLACEMENT_KEY: "x"}), id="a placement option of the Workload"),
        pytest.param(shape(carrying({PLACEMENT_KEY: "x"})), id="a placement option as a template annotation"),
        pytest.param(shape(carrying(labels={PLACEMENT_KEY: "x"})), id="a placement option as template label"),
        pytest.param(shape(annotations={RESERVATION: "r"}), id="the reservation that it names"),
    ],
)
def test_what_the_search_reads_gives_another_shape(other: bytes) -> None:
    assert other != shape()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(shape(name="other", uid="u"), id="name and uid"),
        pytest.param(shape(priority=100), id="the priority, which makes another class beside it"),
        pytest.param(shape(at=60.0), id="the time of creation"),
        pytest.param(shape(annotations={"team": "vision"}), id="an annotation that no policy reads"),
        pytest.param(shape(carrying({"team": "vision"}, {"app": "x"})), id="metadata that no policy reads"),
        pytest.param(
            shape_with(with_conditions(make_workload(pod_sets=(make_pod_set(),)), make_condition("Evicted"))),
            id="its conditions",
        ),
    ],
)
def test_what_the_search_does_not_read_leaves_the_shape(other: bytes) -> None:
    assert other == shape()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            shape(make_pod_set(requests={"cpu": "1000m"})),
            shape(make_pod_set(requests={"cpu": 1})),
            id="one amount in two notations",
        ),
        pytest.param(
            shape(make_pod_set(template=make_template(limits={"gpu": 1}))),
            shape(make_pod_set(requests={"gpu": 1})),
            id="a limit in place of a request",
        ),
        pytest.param(
            shape(selecting({"zone": "a", "disk": "ssd"})),
            shape(selecting({"disk": "ssd", "zone": "a"})),
            id="a node selector in another order",
        ),
    ],
)
def test_one_request_written_in_two_ways_has_one_shape(one: bytes, other: bytes) -> None:
    assert one == other


def test_two_values_of_a_selector_are_two_shapes() -> None:
    assert shape(selecting(ZONE_A)) != shape(selecting(ZONE_B))


def test_equal_charges_with_different_needs_on_the_node_are_two_shapes() -> None:
    # The configuration excludes a resource from quota, but the nodes still have to have it.
    workload = make_workload(pod_sets=(make_pod_set(),))
    plain = shape_with(workload, per_pod={"gpu": 1}, on_node={"gpu": 1})

    assert shape_with(workload, per_pod={"gpu": 1}, on_node={"gpu": 1, "rdma": 1}) != plain
