"""Which resource of a quota counts a class's devices: `resources.deviceClassMappings` of Kueue's file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Measure(StrEnum):
    """What of a device a source charges: a counter that parts share, or a capacity that claims share."""

    COUNTER = "counter"
    CAPACITY = "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSource:
    """Of devices of `driver` that match `selector`, the measure `name` is charged, as `resource`."""

    measure: Measure
    resource: str
    driver: str
    name: str
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """How devices are counted.

    `is_on` (feature gate KueueDRAIntegration): pods that ask for devices are queued; if it is off they are
    refused, unless `refuses_if_off` (KueueDRARejectWorkloadsWhenDRADisabled) is off as well: then they are
    queued and their devices are not counted. `with_extended` (KueueDRAIntegrationExtendedResource): resources
    that stand for a class are counted as its devices. `resources` and `sources` are by class; with sources,
    these are charged and not the devices.
    """

    is_on: bool = True
    refuses_if_off: bool = True
    with_extended: bool = True
    resources: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    sources: Mapping[str, tuple[DeviceSource, ...]] = field(default_factory=dict)


def resources_by_class(pairs: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """Return the resource of each class from pairs of a resource and its classes; the first one counts."""
    found: dict[str, str] = {}
    for resource, classes in pairs:
        for name in classes:
            found.setdefault(name, resource)
    return found
