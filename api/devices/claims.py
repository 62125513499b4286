"""The amounts of a Workload's devices, by pod set, as its quota counts them.

Devices are asked for by claims (spec.resourceClaims of a pod, made from a ResourceClaimTemplate) or by a
resource that stands for a class. What cannot be counted is refused with Kueue's sentence, so that no Workload
is admitted regardless of quota. Source: Kueue, pkg/dra/claims.go and pkg/workload/workload.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from api.devices.catalog import DeviceCatalog
from api.devices.extended import extended_amounts
from api.devices.problems import invalid, missing, not_now
from api.devices.sources import source_amounts
from api.devices.values import ClaimTemplate, DeviceClass, DeviceRequest
from api.jobs.device_mapping import DeviceSettings
from api.jobs.resource_requests import PodSetRequests, RequestError
from api.parsing.cel.parser import compile_cel
from api.parsing.cel.values import CelError
from api.parsing.quantities import add_amounts
from api.workload import PodSet, Workload

_OFF = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"
_SHARED = (
    "KueueDRAIntegration feature does not support use of resource claims: a claim by name may be shared with"
    " pods of others; name a ResourceClaimTemplate instead"
)


@dataclass(frozen=True, slots=True)
class DeviceAmounts:
    """What one pod of a set asks of devices: amounts to add, and resources that they stand instead of."""

    added: Mapping[str, int] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()


_NOTHING = DeviceAmounts()


def asks_for_devices(workload: Workload) -> bool:
    """Return whether pods of the Workload have resource claims."""
    return any(
        one.template.spec is not None and one.template.spec.resource_claims for one in workload.pod_sets
    )


def device_amounts(
    workload: Workload, catalog: DeviceCatalog, settings: DeviceSettings
) -> tuple[DeviceAmounts, ...]:
    """Return the amounts of one pod of each pod set, in their order; () if it asks for no devices.

    Raises RequestError with the first thing that cannot be counted.
    """
    has_claims = asks_for_devices(workload)
    if not settings.is_on:
        if has_claims and settings.refuses_if_off:
            raise RequestError(_OFF)
        return ()
    is_extended = settings.with_extended and bool(catalog.extended)
    if not has_claims and not is_extended:
        return ()
    amounts = tuple(
        _of_pod_set(index, pod_set, workload.key.namespace, catalog, settings)
        for index, pod_set in enumerate(workload.pod_sets)
    )
    return amounts if any(one is not _NOTHING for one in amounts) else ()


def with_devices(
    requests: tuple[PodSetRequests, ...], devices: tuple[DeviceAmounts, ...]
) -> tuple[PodSetRequests, ...]:
    """Return the requests with those of devices, as `device_amounts` has computed them.

    They are added to what the configuration has made of the other resources, as in Kueue. What stands for
    devices is no resource of a node.
    """
    if not devices:
        return requests
    return tuple(_with(one, amounts) for one, amounts in zip(requests, devices, strict=True))


def _with(requests: PodSetRequests, amounts: DeviceAmounts) -> PodSetRequests:
    gone = amounts.replaced
    per_pod = {name: value for name, value in requests.per_pod.items() if name not in gone}
    add_amounts(per_pod, amounts.added)
    on_node = {name: value for name, value in requests.on_node.items() if name not in gone}
    return msgspec.structs.replace(requests, per_pod=per_pod, on_node=on_node)


def _of_pod_set(
    index: int, pod_set: PodSet, namespace: str, catalog: DeviceCatalog, settings: DeviceSettings
) -> DeviceAmounts:
    added: dict[str, int] = {}
    path = f"spec.podSets[{index}].template.spec"
    for place, template in _templates(path, pod_set, namespace, catalog):
        add_amounts(added, _of_template(place, template, pod_set.name, catalog, settings))
    replaced: frozenset[str] = frozenset()
    if settings.with_extended and catalog.extended:
        extended = extended_amounts(path, pod_set, catalog, settings)
        replaced = frozenset(extended)
        for key, amount in extended.values():
            add_amounts(added, {key: amount})
    return DeviceAmounts(added, replaced) if added or replaced else _NOTHING


def _templates(
    path: str, pod_set: PodSet, namespace: str, catalog: DeviceCatalog
) -> Iterator[tuple[str, ClaimTemplate]]:
    """Yield the templates that the pods name, each with the field that names it."""
    spec = pod_set.template.spec
    for index, claim in enumerate((spec.resource_claims if spec is not None else None) or ()):
        place = f"{path}.resourceClaims[{index}]"
        if claim.get("resourceClaimName") is not None:
            raise RequestError(_SHARED)
        name = claim.get("resourceClaimTemplateName")
        if name is None:
            continue
        template = catalog.templates.get((namespace, name))
        if template is None:
            raise not_now(
                place,
                f"failed to get claim spec for ResourceClaimTemplate {name} in podset {pod_set.name}:"
                f' ResourceClaimTemplate.resource.k8s.io "{name}" not found; create it in {namespace}',
            )
        yield place, template


def _of_template(
    place: str, template: ClaimTemplate, pod_set: str, catalog: DeviceCatalog, settings: DeviceSettings
) -> dict[str, int]:
    what = f"ResourceClaimTemplate {template.name}: "
    for index, request in enumerate(template.requests):
        at = f"{place}.devices.requests[{index}]"
        _check_syntax(at, request, what)
        if request.problem is not None:
            why = request.problem
            raise invalid(f"{at}{why.field}", f"{what}{why.why}", value=why.value)
    _check_selectors(place, template, catalog, what)
    added: dict[str, int] = {}
    for index, request in enumerate(template.requests):
        name = request.device_class
        if not name:
            continue
        resource = settings.resources.get(name)
        if resource is None:
            raise missing(
                f"{place}.resourceClaimTemplateName",
                f"DeviceClass {name} is not mapped in DRA configuration for podset {pod_set}",
                fix="add it to resources.deviceClassMappings of the configuration file",
            )
        sources = settings.sources.get(name, ())
        if sources:
            at = f"{place}.devices.requests[{index}]"
            add_amounts(added, source_amounts(at, request, _class_of(at, name, catalog), sources, catalog))
        else:
            add_amounts(added, {resource: request.count})
    return added


def _check_syntax(at: str, request: DeviceRequest, what: str) -> None:
    for expression in request.selectors:
        try:
            compile_cel(expression, ("device",))
        except CelError as error:
            raise invalid(f"{at}.exactly.selectors", f"{what}CEL compilation failed: {error}") from error


def _check_selectors(place: str, template: ClaimTemplate, catalog: DeviceCatalog, what: str) -> None:
    """Raise RequestError if fewer devices match the selectors than the template asks for.

    Requests of one template share no device. Those without selectors are left to the allocator, as in Kueue.
    """
    used: set[int] = set()
    for index, request in enumerate(template.requests):
        if not request.selectors:
            continue
        at = f"{place}.devices.requests[{index}]"
        selectors = (*_class_of(at, request.device_class, catalog).selectors, *request.selectors)
        try:
            found = [one for one in catalog.matching(selectors) if id(one) not in used]
        except CelError as error:
            raise invalid(
                f"{at}.exactly.selectors",
                f"{what}CEL evaluation failed for DeviceClass {request.device_class}: {error}",
            ) from error
        if len(found) < request.count:
            raise not_now(
                f"{at}.exactly.selectors",
                f"{what}insufficient matching devices for CEL selector in DeviceClass {request.device_class}:"
                f" {len(found)} device(s) match in the cluster but {request.count} requested",
            )
        used.update(id(one) for one in found[: request.count])


def _class_of(at: str, name: str, catalog: DeviceCatalog) -> DeviceClass:
    found = catalog.classes.get(name)
    if found is None:
        raise not_now(
            at,
            f'failed to get DeviceClass {name}: deviceclasses.resource.k8s.io "{name}" not found; create it',
        )
    return found
