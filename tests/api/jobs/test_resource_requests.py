"""The requests of pods. Rules: Kubernetes' (pod requests, LimitRange) and Kueue's (transformations)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from api.jobs.resource_requests import (
    LimitRange,
    RequestError,
    ResourceSettings,
    RuntimeClass,
    Transformation,
    TransformationStrategy,
    pod_set_requests,
    request_problem,
)
from api.objects.cluster import LimitRangeItem
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.workload import PodSet


def container(name: str = "c", **fields: Any) -> WireContainer:
    restart = fields.pop("restart_policy", None)
    return WireContainer(name=name, resources=WireResources(**fields), restart_policy=restart)


def pods(*containers: WireContainer, count: int = 1, **fields: Any) -> PodSet:
    spec = WirePodSpec(containers=containers, **fields)
    return PodSet(name="main", count=count, template=WirePodTemplate(spec=spec))


def limits(**fields: Any) -> tuple[LimitRange, ...]:
    return (LimitRange(namespace="team", name="bounds", limits=(LimitRangeItem(**fields),)),)


@pytest.mark.parametrize(
    ("pod_set", "want"),
    [
        pytest.param(
            pods(container(requests={"cpu": "500m", "memory": "1Gi"}), container(requests={"cpu": "1"})),
            {"cpu": 1500, "memory": 2**30},
            id="containers run together",
        ),
        pytest.param(
            pods(
                container(requests={"cpu": 1}),
                init_containers=(container(requests={"cpu": 3}), container(requests={"cpu": 2})),
            ),
            {"cpu": 3000},
            id="init containers run one after the other, before the containers",
        ),
        pytest.param(
            pods(
                container(requests={"cpu": 1}),
                init_containers=(
                    container(requests={"cpu": 1}, restart_policy="Always"),
                    container(requests={"cpu": 4}),
                ),
            ),
            {"cpu": 5000},
            id="a sidecar runs on beside the init containers after it",
        ),
        pytest.param(
            pods(
                container(requests={"cpu": 4}),
                init_containers=(container(requests={"cpu": 1}, restart_policy="Always"),),
            ),
            {"cpu": 5000},
            id="a sidecar runs beside the containers",
        ),
        pytest.param(
            pods(container(limits={"gpu": 2}, requests={"cpu": 1})),
            {"cpu": 1000, "gpu": 2},
            id="a limit replaces a missing request",
        ),
        pytest.param(
            pods(container(requests={"cpu": 1}), overhead={"cpu": "250m"}),
            {"cpu": 1250},
            id="overhead is added",
        ),
        pytest.param(
            pods(container(requests={"cpu": 1, "gpu": 1}), resources=WireResources(requests={"cpu": 6})),
            {"cpu": 6000, "gpu": 1},
            id="resources given for the pod as a whole replace those of its containers",
        ),
        pytest.param(pods(), {}, id="a pod without containers asks for nothing"),
        pytest.param(
            pods(container(requests={"cpu": "-1", "gpu": 1})),
            {"cpu": 0, "gpu": 1},
            id="a request below zero gives nothing to the queue",
        ),
    ],
)
def test_a_pods_requests_follow_kubernetes_rule(pod_set: PodSet, want: dict[str, int]) -> None:
    assert pod_set_requests(pod_set).per_pod == want


def test_the_overhead_of_a_runtime_class_is_added() -> None:
    classes = {"kata": RuntimeClass(name="kata", overhead={"cpu": "250m"})}
    pod_set = pods(container(requests={"cpu": 1}), runtime_class_name="kata")

    assert pod_set_requests(pod_set, runtime_classes=classes).per_pod == {"cpu": 1250}


def test_the_overhead_that_a_pod_has_already_is_not_replaced_by_its_runtime_classs() -> None:
    classes = {"kata": RuntimeClass(name="kata", overhead={"cpu": "250m"})}
    pod_set = pods(container(requests={"cpu": 1}), runtime_class_name="kata", overhead={"cpu": "100m"})

    assert pod_set_requests(pod_set, runtime_classes=classes).per_pod == {"cpu": 1100}


def test_a_containers_own_limit_comes_before_a_limit_ranges() -> None:
    pod_set = pods(container(limits={"cpu": 4}))

    assert pod_set_requests(pod_set, limits=limits(default={"cpu": "2"})).per_pod == {"cpu": 4000}


def test_limit_range_defaults_fill_what_containers_leave_out() -> None:
    bounds = limits(default={"cpu": "2", "memory": "1Gi"}, default_request={"cpu": "500m"})

    requests = pod_set_requests(pods(container(requests={"gpu": 1})), limits=bounds)

    assert requests.per_pod == {"gpu": 1, "cpu": 500, "memory": 2**30}


@pytest.mark.parametrize(
    ("done", "want"),
    [
        pytest.param(0, 5, id="none of which is done"),
        pytest.param(3, 2, id="less those that are done"),
        pytest.param(7, 0, id="and never fewer than none, where it was shrunk meanwhile"),
    ],
)
def test_all_pods_of_the_set_count(done: int, want: int) -> None:
    requests = pod_set_requests(pods(container(requests={"gpu": 2}), count=5), reclaimable=done)

    assert requests.count == want
    assert requests.total() == {"gpu": 2 * want}


def test_resources_are_dropped_by_prefix() -> None:
    settings = ResourceSettings(exclude_prefixes=("example.com/",))
    pod_set = pods(container(requests={"cpu": 1, "example.com/license": 3}))

    assert pod_set_requests(pod_set, settings=settings).per_pod == {"cpu": 1000}


@pytest.mark.parametrize(
    ("transformation", "want"),
    [
        pytest.param(
            Transformation(input="mig", outputs={"memory-gb": Fraction(5), "gpu": Fraction(1, 2)}),
            {"mig": 2, "memory-gb": 10, "gpu": 1, "cpu": 1000},
            id="Retain keeps the input beside its outputs",
        ),
        pytest.param(
            Transformation(
                input="mig",
                strategy=TransformationStrategy.REPLACE,
                outputs={"cpu": Fraction(1, 4)},
            ),
            {"cpu": 1500},
            id="Replace removes the input; outputs add to what was asked",
        ),
        pytest.param(
            Transformation(
                input="mig",
                strategy=TransformationStrategy.REPLACE,
                outputs={"credits": Fraction(10)},
                multiply_by="cpu",
            ),
            {"cpu": 1000, "credits": 20},
            id="multiplyBy multiplies by another resource",
        ),
    ],
)
def test_resources_are_transformed(transformation: Transformation, want: dict[str, int]) -> None:
    settings = ResourceSettings(transformations=(transformation,))
    pod_set = pods(container(requests={"mig": 2, "cpu": 1}))

    assert pod_set_requests(pod_set, settings=settings).per_pod == want


def test_a_resource_that_is_dropped_multiplies_nothing() -> None:
    transformation = Transformation(input="mig", outputs={"credits": Fraction(10)}, multiply_by="cpu")
    settings = ResourceSettings(exclude_prefixes=("cpu",), transformations=(transformation,))
    pod_set = pods(container(requests={"mig": 2, "cpu": 3}))

    assert pod_set_requests(pod_set, settings=settings).per_pod == {"mig": 2, "credits": 20}


def test_a_broken_quantity_is_named_with_its_pod_set() -> None:
    with pytest.raises(RequestError, match=r"pod set 'main'.*'3 cats' is not a quantity"):
        pod_set_requests(pods(container(requests={"cpu": "3 cats"})))


def test_a_broken_limit_is_named_with_its_pod_set() -> None:
    with pytest.raises(RequestError, match=r"pod set 'main'.*'lots' is not a quantity"):
        request_problem(pods(container(requests={"cpu": 1}, limits={"cpu": "lots"})))


@pytest.mark.parametrize(
    ("pod_set", "bounds", "want"),
    [
        pytest.param(pods(container(requests={"cpu": 1})), (), None, id="no bounds, no problem"),
        pytest.param(
            pods(container(requests={"cpu": 4}, limits={"cpu": 2})),
            (),
            "resources validation failed: pod set 'main', container 'c': requests 4 cpu, "
            "above its own limit of 2",
            id="a request above its limit",
        ),
        pytest.param(
            pods(container(requests={"cpu": 4})),
            limits(max={"cpu": "3"}),
            "resources didn't satisfy LimitRange constraints: pod set 'main', container 'c': requests 4 cpu, "
            "above the maximum 3 of LimitRange team/bounds",
            id="a container above the maximum",
        ),
        pytest.param(
            pods(container(requests={"cpu": 3, "memory": "1Gi"})),
            limits(max={"cpu": "3"}, min={"memory": "1Gi"}),
            None,
            id="a container of just the maximum and the minimum",
        ),
        pytest.param(
            pods(container(requests={"cpu": 4})),
            (
                LimitRange(
                    namespace="team",
                    name="bounds",
                    limits=(LimitRangeItem(type="Pod", max={"cpu": "8"}), LimitRangeItem(max={"cpu": "3"})),
                ),
            ),
            "container 'c': requests 4 cpu, above the maximum 3",
            id="a container above the maximum of a second item",
        ),
        pytest.param(
            pods(container(requests={"cpu": "100m"})),
            limits(min={"cpu": "200m"}),
            "requests 100m cpu, below the minimum 200m",
            id="a container below the minimum",
        ),
        pytest.param(
            pods(container(requests={"cpu": 2}), container("d", requests={"cpu": 2})),
            limits(type="Pod", max={"cpu": "3"}),
            "its pod: requests 4 cpu, above the maximum 3",
            id="a pod above the maximum though no container is",
        ),
    ],
)
def test_pods_that_kubernetes_would_refuse_are_named(
    pod_set: PodSet, bounds: tuple[LimitRange, ...], want: str | None
) -> None:
    problem = request_problem(pod_set, bounds)

    assert problem is None if want is None else want in (problem or "")
