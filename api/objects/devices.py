"""Dynamic resource allocation, resource.k8s.io/v1: classes, claim templates, and what drivers publish."""

from __future__ import annotations

from typing import Any

from api.objects.common import Meta, Wire


class WireCel(Wire, frozen=True):
    """One CEL expression."""

    expression: str = ""


class WireSelectorOfDevices(Wire, frozen=True):
    """One selector; a device must match all that a class or request has."""

    cel: WireCel | None = None


class DeviceClassSpec(Wire, frozen=True):
    """DeviceClass.spec. Pods may ask for its devices by `extended_resource_name` (KEP-5004)."""

    selectors: tuple[WireSelectorOfDevices, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClassObject(Wire, frozen=True):
    """resource.k8s.io/v1 DeviceClass."""

    metadata: Meta
    spec: DeviceClassSpec = DeviceClassSpec()


class WireCapacityRequests(Wire, frozen=True):
    """How much of each capacity of a shared device is asked for."""

    requests: dict[str, str | int | float] | None = None


class WireExactRequest(Wire, frozen=True):
    """devices.requests[].exactly. The API server fills in the mode ExactCount and the count 1."""

    device_class_name: str = ""
    selectors: tuple[WireSelectorOfDevices, ...] | None = None
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    capacity: WireCapacityRequests | None = None


class WireDeviceRequest(Wire, frozen=True):
    """devices.requests[]: either one request, or several of which the first that fits is used."""

    name: str = ""
    exactly: WireExactRequest | None = None
    first_available: tuple[dict[str, Any], ...] | None = None


class WireDeviceClaim(Wire, frozen=True):
    """The devices that a claim asks for."""

    requests: tuple[WireDeviceRequest, ...] | None = None


class WireClaimSpec(Wire, frozen=True):
    """The spec of a ResourceClaim, and of those that a template makes."""

    devices: WireDeviceClaim = WireDeviceClaim()


class ClaimTemplateSpec(Wire, frozen=True):
    """ResourceClaimTemplate.spec."""

    spec: WireClaimSpec = WireClaimSpec()


class ResourceClaimTemplateObject(Wire, frozen=True):
    """resource.k8s.io/v1 ResourceClaimTemplate."""

    metadata: Meta
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


class WireAmount(Wire, frozen=True):
    """A counter."""

    value: str | int | float = 0


class WireCapacityRange(Wire, frozen=True):
    """Amounts from `min` to `max`, in steps above `min`."""

    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None


class WireCapacityPolicy(Wire, frozen=True):
    """requestPolicy: what may be asked of a capacity that several claims share, and what if nothing is."""

    default: str | int | float | None = None
    valid_values: tuple[str | int | float, ...] | None = None
    valid_range: WireCapacityRange | None = None


class WireCapacity(Wire, frozen=True):
    """A capacity of a device."""

    value: str | int | float = 0
    request_policy: WireCapacityPolicy | None = None


class WireCounterUse(Wire, frozen=True):
    """consumesCounters[]: what a device takes of the counters that it shares with others."""

    counters: dict[str, WireAmount] | None = None


class WireDevice(Wire, frozen=True):
    """spec.devices[] of a ResourceSlice. An attribute has one of the keys string, int, bool and version."""

    name: str = ""
    attributes: dict[str, dict[str, str | int | bool]] | None = None
    capacity: dict[str, WireCapacity] | None = None
    consumes_counters: tuple[WireCounterUse, ...] | None = None


class WirePool(Wire, frozen=True):
    """spec.pool: slices of the newest generation count, once all of them are there."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Wire, frozen=True):
    """ResourceSlice.spec."""

    driver: str = ""
    pool: WirePool = WirePool()
    devices: tuple[WireDevice, ...] | None = None


class ResourceSliceObject(Wire, frozen=True):
    """resource.k8s.io/v1 ResourceSlice."""

    metadata: Meta
    spec: ResourceSliceSpec = ResourceSliceSpec()
