"""DeviceClasses, ResourceClaimTemplates and devices as values, and their conversion from the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.objects.devices import (
    DeviceClassObject,
    ResourceClaimTemplateObject,
    ResourceSliceObject,
    WireCapacity,
    WireDevice,
    WireExactRequest,
    WireSelectorOfDevices,
)
from api.parsing.cel.values import to_quantity, to_semver
from api.parsing.times import to_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """A DeviceClass. `selectors` are CEL expressions; `extended_resource` stands for it in requests."""

    name: str
    created_at: float = 0.0
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """Why a request cannot be counted. `field` is below devices.requests[], `value` what it holds."""

    why: str
    field: str = ""
    value: str = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """One request of a claim: `count` devices of a class that match the selectors.

    `capacity` is how much it asks of capacities of devices that several claims share.
    `problem`: why it cannot be counted, if it cannot.
    """

    device_class: str = ""
    count: int = 1
    selectors: tuple[str, ...] = ()
    capacity: Mapping[str, str | int | float] = field(default_factory=dict)
    problem: RequestProblem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTemplate:
    """A ResourceClaimTemplate."""

    namespace: str
    name: str
    requests: tuple[DeviceRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as its driver publishes it.

    `variable` is what CEL expressions read as `device`; `counters` are what it takes of shared counters,
    `capacity` what claims may share of it.
    """

    variable: Mapping[str, Any]
    counters: tuple[tuple[str, str | int | float], ...] = ()
    capacity: Mapping[str, WireCapacity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSlice:
    """A part of what a driver publishes; the pool is whole with `slice_count` slices of one generation."""

    name: str
    driver: str = ""
    pool: str = ""
    generation: int = 0
    slice_count: int = 0
    devices: tuple[Device, ...] = ()


def to_device_class(wire: DeviceClassObject) -> DeviceClass:
    """Return the DeviceClass. Raises ValueError for an unreadable time of creation."""
    return DeviceClass(
        name=wire.metadata.name,
        created_at=to_seconds(wire.metadata.creation_timestamp),
        selectors=_expressions(wire.spec.selectors),
        extended_resource=wire.spec.extended_resource_name or "",
    )


def to_claim_template(wire: ResourceClaimTemplateObject) -> ClaimTemplate:
    """Return the template, with a problem at each request that no quota can count."""
    requests = wire.spec.spec.devices.requests or ()
    return ClaimTemplate(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        requests=tuple(_request(one.exactly, bool(one.first_available)) for one in requests),
    )


def to_resource_slice(wire: ResourceSliceObject) -> ResourceSlice:
    """Return the slice. Raises CelError for an amount or a version that cannot be read."""
    spec = wire.spec
    return ResourceSlice(
        name=wire.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.resource_slice_count,
        devices=tuple(_device(spec.driver, one) for one in spec.devices or ()),
    )


def _expressions(selectors: tuple[WireSelectorOfDevices, ...] | None) -> tuple[str, ...]:
    return tuple(one.cel.expression for one in selectors or () if one.cel is not None)


def _request(exactly: WireExactRequest | None, is_choice: bool) -> DeviceRequest:
    # In Kueue's words and order. Source: Kueue, pkg/dra/claims.go, countDevicesPerClass.
    if is_choice:
        return DeviceRequest(problem=RequestProblem("FirstAvailable device selection is not supported"))
    if exactly is None:
        return DeviceRequest(problem=RequestProblem("Exactly must be set if FirstAvailable is nil"))
    return DeviceRequest(
        device_class=exactly.device_class_name,
        count=exactly.count,
        selectors=_expressions(exactly.selectors),
        capacity=(exactly.capacity.requests if exactly.capacity is not None else None) or {},
        problem=_problem(exactly),
    )


def _problem(exactly: WireExactRequest) -> RequestProblem | None:
    mode = exactly.allocation_mode or "ExactCount"
    if exactly.admin_access:
        return RequestProblem("AdminAccess is not supported", field=".exactly.adminAccess")
    if mode == "ExactCount":
        return None
    why = "AllocationMode 'All' is not supported" if mode == "All" else f"unsupported allocation mode: {mode}"
    return RequestProblem(why, field=".exactly.allocationMode", value=f'"{mode}"')


class _Domains(dict[str, dict[str, Any]]):
    """Values by domain; a domain that the device does not have is empty, as in Kubernetes."""

    def __missing__(self, domain: str) -> dict[str, Any]:
        return {}


def _device(driver: str, wire: WireDevice) -> Device:
    uses = wire.consumes_counters or ()
    return Device(
        variable={
            "driver": driver,
            "attributes": _by_domain(driver, {k: _value(v) for k, v in (wire.attributes or {}).items()}),
            "capacity": _by_domain(
                driver, {k: to_quantity(v.value) for k, v in (wire.capacity or {}).items()}
            ),
        },
        counters=tuple((name, one.value) for use in uses for name, one in (use.counters or {}).items()),
        capacity=wire.capacity or {},
    )


def _by_domain(driver: str, values: Mapping[str, Any]) -> _Domains:
    """Return values such as gpu.example.com/model by domain and name; without a domain, the driver's."""
    found = _Domains()
    for key, value in values.items():
        domain, _, name = key.rpartition("/")
        found.setdefault(domain or driver, {})[name] = value
    return found


def _value(attribute: Mapping[str, str | int | bool]) -> Any:
    version = attribute.get("version")
    return to_semver(str(version)) if version is not None else next(iter(attribute.values()), None)
