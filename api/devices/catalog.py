"""The catalog: all classes, templates and published devices of the cluster, and what matches selectors.

Answers are kept until a class or slice changes, since thousands of Workloads ask the same of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from api.devices.values import ClaimTemplate, Device, DeviceClass, ResourceSlice
from api.parsing.cel.parser import Budget, compile_cel
from api.parsing.cel.values import CelError

_VARIABLES = ("device",)
# Limits the memory of kept answers: tenants write selectors.
_MOST_ANSWERS = 1_000
# Of the selectors of one request over all devices: half a second, in which nothing is decided.
_MOST_STEPS = 1_000_000


@dataclass(slots=True, eq=False)
class DeviceCatalog:
    """What the cluster has of dynamic resource allocation. One task owns it."""

    classes: dict[str, DeviceClass] = field(default_factory=dict)
    templates: dict[tuple[str, str], ClaimTemplate] = field(default_factory=dict)
    slices: dict[str, ResourceSlice] = field(default_factory=dict)
    # Of each extended resource, the class that the scheduler allocates from.
    extended: dict[str, DeviceClass] = field(default_factory=dict)
    # What matches, or what is wrong with the selectors.
    _matching: dict[tuple[str | None, tuple[str, ...]], tuple[Device, ...] | str] = field(
        default_factory=dict
    )

    def put(self, value: DeviceClass | ClaimTemplate | ResourceSlice) -> bool:
        """Take in an object. Return whether anything has changed."""
        match value:
            case ClaimTemplate():
                key = (value.namespace, value.name)
                is_new = self.templates.get(key) != value
                self.templates[key] = value
            case DeviceClass():
                is_new = self.classes.get(value.name) != value
                self.classes[value.name] = value
            case ResourceSlice():
                is_new = self.slices.get(value.name) != value
                self.slices[value.name] = value
        if is_new:
            self._note(type(value))
        return is_new

    def remove(self, kind: type, key: Any) -> DeviceClass | ClaimTemplate | ResourceSlice | None:
        """Forget an object, by name or by namespace and name. Return it, None if it was not known."""
        tables: dict[type, dict[Any, Any]] = {
            ClaimTemplate: self.templates,
            DeviceClass: self.classes,
            ResourceSlice: self.slices,
        }
        gone: DeviceClass | ClaimTemplate | ResourceSlice | None = tables[kind].pop(key, None)
        if gone is not None:
            self._note(kind)
        return gone

    def matching(self, selectors: tuple[str, ...], driver: str | None = None) -> tuple[Device, ...]:
        """Return the devices that match all selectors: of a driver's whole pools, or all that are published.

        Raises CelError that names the failing expression.
        """
        key = (driver, selectors)
        known = self._matching.get(key)
        if known is None:
            if len(self._matching) >= _MOST_ANSWERS:
                self._matching.clear()
            try:
                known = tuple(self._evaluated(selectors, driver))
            except CelError as error:
                known = str(error)
            self._matching[key] = known
        if isinstance(known, str):
            raise CelError(known)
        return known

    def _evaluated(self, selectors: tuple[str, ...], driver: str | None) -> Iterator[Device]:
        budget = Budget(_MOST_STEPS)
        programs = [compile_cel(one, _VARIABLES) for one in selectors]
        for device in self._devices(driver):
            variables = {"device": device.variable}
            if all(_is_true(one.evaluate(variables, budget)) for one in programs):
                yield device

    def _devices(self, driver: str | None) -> Iterator[Device]:
        if driver is None:
            slices = sorted(self.slices.values(), key=lambda one: one.name)
        else:
            slices = _whole_pools([one for one in self.slices.values() if one.driver == driver])
        return (device for one in slices for device in one.devices)

    def _note(self, kind: type) -> None:
        """Forget answers that a changed object may have made wrong."""
        if kind is not ClaimTemplate:
            self._matching.clear()
        if kind is DeviceClass:
            self.extended = {}
            # The class created last; of those created in the same second, the first by name.
            # Source: Kubernetes, DeviceClassSpec.ExtendedResourceName.
            for one in sorted(self.classes.values(), key=lambda one: (-one.created_at, one.name)):
                if one.extended_resource:
                    self.extended.setdefault(one.extended_resource, one)


def _is_true(value: object) -> bool:
    if not isinstance(value, bool):
        raise CelError("must evaluate to bool")
    return value


def _whole_pools(slices: list[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices of the newest generation of each pool that is published completely."""
    newest: dict[str, int] = {}
    for one in slices:
        newest[one.pool] = max(newest.get(one.pool, one.generation), one.generation)
    current: dict[str, list[ResourceSlice]] = {}
    for one in sorted(slices, key=lambda one: one.name):
        if one.generation == newest[one.pool]:
            current.setdefault(one.pool, []).append(one)
    # A driver publishes the slices of a pool one by one.
    return [one for pool in current.values() if len(pool) == pool[0].slice_count for one in pool]
