"""What a request is charged of its devices, where the devices themselves are not counted.

Parts of a device (as of MIG, KEP-4815) take of counters that they share, and claims may share a device's
capacity (KEP-5075). The charge is that of the largest matching device, as the allocator has not chosen yet.
Source: Kueue, pkg/dra/counters.go and capacity.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from api.devices.catalog import DeviceCatalog
from api.devices.problems import invalid, not_now
from api.devices.values import Device, DeviceClass, DeviceRequest
from api.jobs.device_mapping import DeviceSource, Measure
from api.jobs.resource_requests import Amounts
from api.objects.devices import WireCapacityPolicy, WireCapacityRange
from api.parsing.cel.values import CelError
from api.parsing.quantities import add_amounts, parse


def source_amounts(
    at: str,
    request: DeviceRequest,
    device_class: DeviceClass,
    sources: Iterable[DeviceSource],
    catalog: DeviceCatalog,
) -> Amounts:
    """Return the amounts that a request is charged. `at` is its field.

    Raises RequestError if fewer devices match than it asks for, or none has what is charged.
    """
    total: Amounts = {}
    for source in sources:
        found = _matching(at, request, device_class, source, catalog)
        if source.measure is Measure.COUNTER:
            charge = _counter(at, source, found)
        else:
            charge = _capacity(at, source, found, request)
        add_amounts(total, {source.resource: max(0, ceil(charge)) * request.count})
    return total


def _matching(
    at: str, request: DeviceRequest, device_class: DeviceClass, source: DeviceSource, catalog: DeviceCatalog
) -> tuple[Device, ...]:
    selectors = (source.selector, *device_class.selectors, *request.selectors)
    try:
        found = catalog.matching(selectors, source.driver)
    except CelError as error:
        raise not_now(at, f"CEL evaluation error in a selector: {error}") from error
    if len(found) < request.count:
        raise not_now(
            at,
            f"insufficient matching devices for {source.measure} driver: {len(found)} device(s) match"
            f" but {request.count} requested",
        )
    return found


def _counter(at: str, source: DeviceSource, devices: tuple[Device, ...]) -> Fraction:
    taken = [parse(value) for device in devices for name, value in device.counters if name == source.name]
    if not taken:
        raise not_now(at, f'matched devices have no consumesCounters entry for counter "{source.name}"')
    return max(taken)


def _capacity(at: str, source: DeviceSource, devices: tuple[Device, ...], request: DeviceRequest) -> Fraction:
    offered = [one.capacity[source.name] for one in devices if source.name in one.capacity]
    if not offered:
        raise not_now(at, f'matched devices have no capacity dimension "{source.name}"')
    asked, charges = request.capacity.get(source.name), []
    for one in offered:
        policy = one.request_policy or WireCapacityPolicy()
        given = asked if asked is not None else policy.default
        charges.append(_rounded(parse(one.value if given is None else given), policy))
    served = [charge for charge in charges if charge is not None]
    if not served:
        raise invalid(
            at,
            "capacity request cannot be satisfied by any matched device's RequestPolicy for dimension"
            f' "{source.name}"',
        )
    return max(served)


def _rounded(amount: Fraction, policy: WireCapacityPolicy) -> Fraction | None:
    """Return the amount that the allocator takes for one that is asked for; None if it takes none."""
    if policy.valid_values:
        return min((one for one in map(parse, policy.valid_values) if one >= amount), default=None)
    return amount if policy.valid_range is None else _in_range(amount, policy.valid_range)


def _in_range(amount: Fraction, valid: WireCapacityRange) -> Fraction | None:
    if valid.min is not None:
        least = parse(valid.min)
        amount = max(amount, least)
        if valid.step is not None and (step := parse(valid.step)) > 0:
            amount = least + ceil((amount - least) / step) * step
    return None if valid.max is not None and amount > parse(valid.max) else amount
