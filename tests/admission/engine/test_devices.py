"""Devices of dynamic resource allocation in quotas. Rules: Kueue's (pkg/dra), in its words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.decisions.decision import Admit, Wait
from admission.engine.engine import EngineSettings
from api.devices.catalog import DeviceCatalog
from api.devices.values import (
    ClaimTemplate,
    DeviceClass,
    ResourceSlice,
    to_claim_template,
    to_resource_slice,
)
from api.jobs.device_mapping import DeviceSettings, DeviceSource, Measure
from api.jobs.resource_requests import ResourceSettings
from api.objects.devices import ResourceClaimTemplateObject, ResourceSliceObject
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.parsing.cel.parser import Program
from api.parsing.cel.values import CelError
from api.workload import Admission, PodSet, Workload
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    admitted,
    make_cluster_queue,
    make_condition,
    make_pod_set,
    make_workload,
    released,
    with_conditions,
)

CLASS = DeviceClass(name="gpu.example.com", selectors=("device.driver == 'gpu.example.com'",))
MAPPED = DeviceSettings(resources={CLASS.name: "gpu"})
AT = "spec.podSets[0].template.spec"
CLAIM = f"{AT}.resourceClaims[0]"


def template(name: str = "two", **request: Any) -> ClaimTemplate:
    """Return a template with one request of two devices, or with the fields of `exactly` given."""
    exactly = {"deviceClassName": CLASS.name, "count": 2, **request}
    asked = {"name": "r", "exactly": exactly} if request.get("first") is None else request["first"]
    body = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [asked]}}},
    }
    return to_claim_template(msgspec.convert(body, ResourceClaimTemplateObject))


def selected(expression: str, name: str = "two", count: int = 2) -> ClaimTemplate:
    return template(name, count=count, selectors=[{"cel": {"expression": expression}}])


def published(*models: str, name: str = "node-1", slices: int = 1, memory: str = "40Gi") -> ResourceSlice:
    devices = [
        {
            "name": f"d{index}",
            "attributes": {"model": {"string": model}},
            "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": memory}}}],
        }
        for index, model in enumerate(models)
    ]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": slices}
    spec = {"driver": "gpu.example.com", "pool": pool, "devices": devices}
    return to_resource_slice(msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSliceObject))


def claiming(name: str = "two", count: int = 1, **claim: Any) -> PodSet:
    claims = ({"name": "gpu", **(claim or {"resourceClaimTemplateName": name})},)
    return PodSet(
        name="main", count=count, template=WirePodTemplate(spec=WirePodSpec(resource_claims=claims))
    )


def asking(**requests: str) -> PodSet:
    """Return a pod set that asks for resources; a name's `__` stands for a slash."""
    given = {name.replace("__", "/"): text for name, text in requests.items()}
    container = WireContainer(name="c", resources=WireResources(requests=dict(given)))
    return PodSet(name="main", count=1, template=WirePodTemplate(spec=WirePodSpec(containers=(container,))))


def make_world(*values: object, devices: DeviceSettings = MAPPED) -> World:
    settings = EngineSettings(resources=ResourceSettings(devices=devices))
    return World(settings=settings).put(make_cluster_queue(quota=6), *values)


def message_of(world: World, workload: Workload) -> str:
    problem = world.engine.workloads.queue_problem(workload)
    return "" if problem is None else problem[1]


def admission_of(decision: object) -> Admission:
    assert isinstance(decision, Admit)
    return decision.admission


def usage_of(decision: object) -> dict[str, int]:
    return dict(admission_of(decision).pod_sets[0].usage)


def wait_of(decision: object) -> str:
    assert isinstance(decision, Wait)
    return decision.message


def test_devices_of_a_claim_template_count_in_the_quota_of_each_pod() -> None:
    world = make_world(
        CLASS,
        template(),
        make_workload("a", pod_sets=(claiming(count=2),)),
        make_workload("b", pod_sets=(claiming(count=1),), at=1),
        make_workload("c", pod_sets=(claiming(count=1),), at=2),
    )

    decisions = world.settle()

    assert admits(decisions) == ["a", "b"]
    assert usage_of(decisions[0]) == {"gpu": 4}


@pytest.mark.parametrize(
    ("pod_set", "values", "want"),
    [
        pytest.param(
            claiming("none"),
            (),
            f"{CLAIM}: Internal error: failed to get claim spec for ResourceClaimTemplate none in podset"
            ' main: ResourceClaimTemplate.resource.k8s.io "none" not found; create it in team',
            id="a template that is missing",
        ),
        pytest.param(
            claiming(resourceClaimName="shared"),
            (),
            "KueueDRAIntegration feature does not support use of resource claims: a claim by name",
            id="a claim by name",
        ),
        pytest.param(
            claiming(),
            (template(deviceClassName="other"),),
            f'{CLAIM}.resourceClaimTemplateName: Not found: "DeviceClass other is not mapped in DRA'
            ' configuration for podset main"; add it to resources.deviceClassMappings',
            id="a class without mapping",
        ),
        pytest.param(
            claiming(),
            (template(allocationMode="All"),),
            f'{CLAIM}.devices.requests[0].exactly.allocationMode: Invalid value: "All":'
            " ResourceClaimTemplate two: AllocationMode 'All' is not supported",
            id="all devices of a node",
        ),
        pytest.param(
            claiming(),
            (template(adminAccess=True),),
            f"{CLAIM}.devices.requests[0].exactly.adminAccess: Invalid value: null:"
            " ResourceClaimTemplate two: AdminAccess is not supported",
            id="devices that are in use",
        ),
        pytest.param(
            claiming(),
            (template(first={"name": "r", "firstAvailable": [{"name": "x"}]}),),
            f"{CLAIM}.devices.requests[0]: Invalid value: null:"
            " ResourceClaimTemplate two: FirstAvailable device selection is not supported",
            id="a choice of requests",
        ),
        pytest.param(
            claiming(),
            (selected("device.driver =="),),
            "ResourceClaimTemplate two: CEL compilation failed: syntax error",
            id="a selector that is not CEL",
        ),
        pytest.param(
            claiming(),
            (selected("device.nothing"), published("A100")),
            "ResourceClaimTemplate two: CEL evaluation failed for DeviceClass gpu.example.com: no such key",
            id="a selector that cannot be evaluated",
        ),
        pytest.param(
            claiming(),
            (selected("device.attributes['gpu.example.com'].model == 'A100'"), published("A100", "H100")),
            "insufficient matching devices for CEL selector in DeviceClass gpu.example.com:"
            " 1 device(s) match in the cluster but 2 requested",
            id="fewer devices than a selector asks for",
        ),
    ],
)
def test_what_cannot_be_counted_is_not_admitted_and_says_why(
    pod_set: PodSet, values: tuple[object, ...], want: str
) -> None:
    workload = make_workload(pod_sets=(pod_set,))
    world = make_world(CLASS, *values, workload)

    assert admits(world.settle()) == []
    assert want in message_of(world, workload)


LACKING = pytest.mark.parametrize(
    ("values", "missing"),
    [
        pytest.param((CLASS,), template(), id="the template"),
        pytest.param(
            (template(count=1, selectors=[{"cel": {"expression": "true"}}]), published("A")),
            CLASS,
            id="the class",
        ),
        pytest.param((CLASS, selected("true")), published("A100", "A100"), id="the devices"),
    ],
)


@LACKING
def test_a_workload_starts_once_what_it_lacks_appears(values: tuple[object, ...], missing: object) -> None:
    world = make_world(*values, make_workload(pod_sets=(claiming(),)))
    assert admits(world.settle()) == []

    world.put(missing)

    assert admits(world.settle()) == ["w"]


@LACKING
def test_a_workload_starts_though_what_it_lacks_comes_before_its_place(
    values: tuple[object, ...], missing: Any
) -> None:
    world = make_world(*values)
    # At the start of a controller the lists of kinds come in any order, and queues are built after all.
    for value in (make_cluster_queue("other"), make_workload(pod_sets=(claiming(),)), missing):
        world.engine.objects.upsert(value, now=world.now)

    assert admits(world.settle()) == ["w"]


def test_requests_of_one_template_share_no_device() -> None:
    both = template()
    both = replace(both, requests=selected("true").requests * 2)
    workload = make_workload(pod_sets=(claiming(),))
    world = make_world(CLASS, both, published("A", "A", "A"), workload)

    assert "1 device(s) match in the cluster but 2 requested" in message_of(world, workload)
    world.put(published("A", "A", "A", "A"))
    assert message_of(world, workload) == ""


def test_a_deleted_template_holds_its_pending_workloads_back_and_no_admitted_one() -> None:
    workload, waiting = (make_workload(n, pod_sets=(claiming(),)) for n in ("a", "b"))
    world = make_world(CLASS, template(), workload)
    (admit,) = world.settle()
    world.put(admitted(workload, admission_of(admit)), waiting)

    world.engine.objects.remove(ClaimTemplate, (NAMESPACE, "two"), now=world.now)

    assert admits(world.settle()) == []
    assert "not found" in message_of(world, waiting)
    assert [key.name for key, _ in world.engine.workloads.admissions()] == ["a"]


# --- the feature gates -----------------------------------------------------------------------------------


def test_without_the_gate_a_workload_with_claims_is_refused_or_not_counted() -> None:
    workload = make_workload(pod_sets=(claiming(),))
    off = DeviceSettings(is_on=False)
    world = make_world(workload, devices=off)

    assert "KueueDRAIntegration feature gate is not enabled" in message_of(world, workload)
    world = make_world(workload, devices=replace(off, refuses_if_off=False))
    assert message_of(world, workload) == ""


# --- extended resources ----------------------------------------------------------------------------------

EXTENDED = replace(CLASS, extended_resource="example.com/gpu")


def test_an_extended_resource_counts_as_its_class_is_mapped() -> None:
    workload = make_workload(pod_sets=(asking(example__x="1"),))
    pod_set = make_pod_set(requests={"example.com/gpu": "2"})
    world = make_world(EXTENDED, replace(workload, pod_sets=(pod_set,)))

    (decision,) = world.settle()

    assert usage_of(decision) == {"gpu": 2}


def test_an_extended_resource_without_mapping_counts_under_its_own_name() -> None:
    pod_set = make_pod_set(requests={"example.com/gpu": "2"})
    world = make_world(EXTENDED, make_workload(pod_sets=(pod_set,)), devices=DeviceSettings())

    (decision,) = world.settle()

    assert "example.com/gpu" in wait_of(decision)


@pytest.mark.parametrize("change", [DeviceSettings(with_extended=False), DeviceSettings(is_on=False)])
def test_without_its_gate_an_extended_resource_is_any_other(change: DeviceSettings) -> None:
    pod_set = make_pod_set(requests={"example.com/gpu": "2"})
    devices = replace(change, resources=MAPPED.resources)
    world = make_world(EXTENDED, make_workload(pod_sets=(pod_set,)), devices=devices)

    assert admits(world.settle()) == []


def test_the_class_created_last_and_then_the_first_by_name_stands_behind_a_resource() -> None:
    world = make_world(
        replace(EXTENDED, name="b", created_at=5.0),
        replace(EXTENDED, name="a", created_at=5.0),
        replace(EXTENDED, name="old", created_at=1.0),
        make_workload(pod_sets=(make_pod_set(requests={"example.com/gpu": "1"}),)),
        devices=DeviceSettings(resources={"b": "x", "a": "gpu", "old": "y"}),
    )

    (decision,) = world.settle()

    assert usage_of(decision) == {"gpu": 1}


def test_a_class_that_changes_its_resource_changes_what_pending_workloads_ask_for() -> None:
    workload = make_workload(pod_sets=(make_pod_set(requests={"example.com/gpu": "1"}),))
    world = make_world(EXTENDED, make_cluster_queue(quota=0), workload)
    assert "gpu" in wait_of(world.settle()[0])

    world.put(replace(EXTENDED, extended_resource="example.com/tpu"))

    assert "example.com/gpu" in wait_of(world.settle()[0])


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(released, id="its admission is gone"),
        pytest.param(
            lambda held: with_conditions(held, make_condition("QuotaReserved", False, reason="Evicted")),
            id="another program left its admission there",
        ),
    ],
)
def test_a_workload_that_loses_its_quota_is_counted_again_by_what_holds_now(
    lose: Callable[[Workload], Workload],
) -> None:
    workload = make_workload(pod_sets=(make_pod_set(requests={"example.com/gpu": "1"}),))
    world = make_world(EXTENDED, workload)
    (admit,) = world.settle()
    held = admitted(workload, admission_of(admit))
    world.put(held)
    world.engine.objects.remove(DeviceClass, CLASS.name, now=world.now)

    world.put(lose(held))

    assert "example.com/gpu" in wait_of(world.settle()[0])


def test_a_part_of_an_extended_device_is_refused() -> None:
    workload = make_workload(pod_sets=(make_pod_set(requests={"example.com/gpu": "500m"}),))
    world = make_world(EXTENDED, workload)

    assert message_of(world, workload) == (
        f'{AT}.containers[0].resources.requests.example.com/gpu: Invalid value: "500m":'
        " extended resource quantity must be an integer"
    )


# --- parts of devices ------------------------------------------------------------------------------------

SOURCE = DeviceSource(
    measure=Measure.COUNTER, resource="gpu", driver="gpu.example.com", name="memory", selector="true"
)
COUNTED = DeviceSettings(
    resources={CLASS.name: "gpu"},
    sources={CLASS.name: (SOURCE,)},
)


def test_a_part_of_a_device_is_charged_what_the_largest_match_takes_of_the_counter() -> None:
    world = make_world(
        CLASS,
        template(),
        published("A", memory="1"),
        published("A", name="node-2", memory="2"),
        make_workload(pod_sets=(claiming(),)),
        devices=COUNTED,
    )
    workload = make_workload(pod_sets=(claiming(),))
    assert "0 device(s) match but 2 requested" in message_of(world, workload)

    world.put(published("A", slices=2, memory="1"), published("A", name="node-2", slices=2, memory="2"))

    (decision,) = world.settle()
    assert usage_of(decision) == {"gpu": 4}


def test_devices_without_the_counter_cannot_be_charged() -> None:
    workload = make_workload(pod_sets=(claiming(),))
    other = replace(SOURCE, name="compute")
    world = make_world(
        CLASS,
        template(),
        published("A", "A"),
        workload,
        devices=replace(COUNTED, sources={CLASS.name: (other,)}),
    )

    assert 'no consumesCounters entry for counter "compute"' in message_of(world, workload)


def test_an_extended_resource_whose_devices_are_counted_by_parts_is_refused() -> None:
    workload = make_workload(pod_sets=(make_pod_set(requests={"example.com/gpu": "1"}),))
    world = make_world(EXTENDED, workload, devices=COUNTED)

    assert "with counters configured; use ResourceClaimTemplates" in message_of(world, workload)


def shared(*capacities: dict[str, Any]) -> ResourceSlice:
    """Return a pool of one device for each capacity `memory`."""
    devices = [{"name": f"d{index}", "capacity": {"memory": one}} for index, one in enumerate(capacities)]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "pool": pool, "devices": devices}
    return to_resource_slice(msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSliceObject))


def sharing(asked: str | None, count: int = 1) -> ClaimTemplate:
    capacity: dict[str, Any] = {} if asked is None else {"capacity": {"requests": {"memory": asked}}}
    return template(count=count, **capacity)


SHARED = replace(COUNTED, sources={CLASS.name: (replace(SOURCE, measure=Measure.CAPACITY),)})
STEPS = {"value": "10", "requestPolicy": {"validRange": {"min": "2", "step": "2", "max": "6"}}}
VALUES = {"value": "9", "requestPolicy": {"validValues": ["2", "4"]}}


@pytest.mark.parametrize(
    ("asked", "count", "capacities", "want"),
    [
        pytest.param("3", 1, [{"value": "10"}], 3, id="what is asked for"),
        pytest.param(None, 1, [{"value": "4"}, {"value": "5"}], 5, id="the largest device, if nothing is"),
        pytest.param(
            None, 1, [{"value": "10", "requestPolicy": {"default": "2"}}], 2, id="a default, if there is one"
        ),
        pytest.param("2", 2, [{"value": "9"}, {"value": "9"}], 4, id="as often as devices are asked for"),
        pytest.param("3", 1, [VALUES], 4, id="the next valid value"),
        pytest.param("3", 1, [STEPS], 4, id="the next step"),
        pytest.param("1", 1, [STEPS], 2, id="the least of a range"),
    ],
)
def test_a_share_of_a_device_is_charged_as_the_allocator_rounds_it(
    asked: str | None, count: int, capacities: list[dict[str, Any]], want: int
) -> None:
    workload = make_workload(pod_sets=(claiming(),))
    world = make_world(CLASS, sharing(asked, count), shared(*capacities), workload, devices=SHARED)

    (decision,) = world.settle()

    assert usage_of(decision) == {"gpu": want}


@pytest.mark.parametrize(
    ("asked", "capacity"),
    [
        pytest.param("7", STEPS, id="more than the range"),
        pytest.param("5", VALUES, id="more than any valid value"),
    ],
)
def test_a_share_that_no_device_offers_is_refused(asked: str, capacity: dict[str, Any]) -> None:
    workload = make_workload(pod_sets=(claiming(),))
    world = make_world(CLASS, sharing(asked), shared(capacity), workload, devices=SHARED)

    want = "capacity request cannot be satisfied by any matched device's RequestPolicy"
    assert want in message_of(world, workload)


def test_devices_without_the_capacity_cannot_be_charged() -> None:
    workload = make_workload(pod_sets=(claiming(),))
    world = make_world(CLASS, sharing("1", 1), published("A"), workload, devices=SHARED)

    assert 'matched devices have no capacity dimension "memory"' in message_of(world, workload)


def test_a_selector_that_fails_is_a_problem_of_its_workload_alone() -> None:
    claims = make_workload("a", pod_sets=(claiming(),))
    world = make_world(CLASS, published("a", "b"), claims, make_workload("other", gpus=1, at=2))

    world.put(selected("int(device.driver) > 0"))

    assert admits(world.settle()) == ["other"]
    assert "CEL evaluation failed for DeviceClass gpu.example.com: cannot convert value" in message_of(
        world, claims
    )


def test_selectors_have_one_budget_for_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.devices.catalog._MOST_STEPS", 1_000)
    claims = make_workload("a", pod_sets=(claiming(),))
    costly = selected(" && ".join(["device.driver == 'gpu.example.com'"] * 100))
    few, many = (make_world(CLASS, published(*"a" * count), costly, claims) for count in (2, 4))

    assert admits(few.settle()) == ["a"]
    assert admits(many.settle()) == []
    assert "takes more than 1000 steps over all devices; simplify the expression" in message_of(many, claims)


def test_errors_of_selectors_are_kept_until_a_device_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, evaluated = DeviceCatalog(), []
    catalog.put(published("a"))
    real = Program.evaluate

    def counted(program: Program, *args: Any) -> Any:
        evaluated.append(program)
        return real(program, *args)

    monkeypatch.setattr(Program, "evaluate", counted)
    for want in (1, 1):
        with pytest.raises(CelError, match="no such key: nothing"):
            catalog.matching(("device.nothing",))
        assert len(evaluated) == want
    catalog.put(published("a", "b"))
    with pytest.raises(CelError, match="no such key: nothing"):
        catalog.matching(("device.nothing",))
    assert len(evaluated) == 2
