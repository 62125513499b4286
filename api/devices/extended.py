"""Resources that stand for a DeviceClass (KEP-5004): pods ask for it and get devices of the class.

A quota counts them as what the class is mapped to, or under their own name. Nodes do not offer them, since
kube-scheduler allocates the devices: placement does not count them.
Source: Kueue, pkg/dra/extended_resources.go.
"""

from __future__ import annotations

from api.devices.catalog import DeviceCatalog
from api.devices.problems import invalid
from api.jobs.device_mapping import DeviceSettings, Measure
from api.jobs.resource_requests import pod_requests
from api.objects.templates import WireContainer
from api.parsing.quantities import QuantityError, parse
from api.workload import PodSet

_INSTEAD = {
    Measure.COUNTER: "counters configured; use ResourceClaimTemplates with CEL selectors for"
    " counter-based quota",
    Measure.CAPACITY: "capacity sources configured; use ResourceClaimTemplates with capacity.requests for"
    " capacity-based quota",
}


def extended_amounts(
    path: str, pod_set: PodSet, catalog: DeviceCatalog, settings: DeviceSettings
) -> dict[str, tuple[str, int]]:
    """Return, of each such resource that a pod asks for, what a quota counts it as and how many.

    `path` is the field of the pod's spec. Raises RequestError for an amount that is no whole number and for a
    class whose devices are counted by parts.
    """
    spec = pod_set.template.spec
    if spec is None:
        return {}
    places = {
        f"{path}.{kind}[{index}]": container
        for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers))
        for index, container in enumerate(containers or ())
    }
    names = {
        name: place
        for place, container in reversed(places.items())
        for name in _requests(container)
        if name in catalog.extended
    }
    if not names:
        return {}
    for place, container in places.items():
        _check_whole(place, container, names)
    try:
        total = pod_requests(spec)
    except QuantityError:
        # It is reported with the other resources.
        return {}
    found = {}
    for name, place in names.items():
        device_class = catalog.extended[name].name
        sources = settings.sources.get(device_class)
        if sources:
            why = _INSTEAD[sources[0].measure]
            raise invalid(
                place,
                f"extended resource {name} resolves to DeviceClass {device_class} with {why}",
                value=f'"{name}"',
            )
        if total.get(name, 0) > 0:
            found[name] = (settings.resources.get(device_class, name), total[name])
    return found


def _requests(container: WireContainer) -> dict[str, str | int | float]:
    """Return the requests; what has only a limit requests as much."""
    resources = container.resources
    return {} if resources is None else {**(resources.limits or {}), **(resources.requests or {})}


def _check_whole(place: str, container: WireContainer, names: dict[str, str]) -> None:
    for name, text in _requests(container).items():
        try:
            is_whole = name not in names or parse(text).denominator == 1
        except QuantityError:
            continue
        if not is_whole:
            raise invalid(
                f"{place}.resources.requests.{name}",
                "extended resource quantity must be an integer",
                value=f'"{text}"',
            )
