"""What a pod set requests: template, limit ranges, overhead and transformations to amounts per pod.

The steps are Kueue's, worked out on values and never written back to the Workload:
1. RuntimeClass overhead, LimitRange defaults, a limit where a request is missing;
2. Kubernetes' rule for a pod: the larger of what runs together and what the init containers need in turn;
3. resources dropped by prefix, resources derived from others;
4. times the pods that are still to run.
Whether the requests are allowed (within limits and limit ranges) is asked apart, by `request_problem`,
because Kueue asks it when the Workload is nominated and not before.
Source: Kueue, pkg/workload/resources.go and pkg/workload/workload.go; kubernetes component-helpers resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from math import ceil

import msgspec

from api.objects import LimitRangeItem, WireContainer, WirePodSpec, WireResources
from api.parsing.quantities import CPU, QuantityError, amount, to_text
from api.workload import PodSet

PODS = "pods"
# What an extended resource is called that counts whole GPUs, behind its vendor's prefix.
_GPU_NAMES = frozenset({"gpu", "i915", "xe", "gaudi"})

_NO_SPEC = WirePodSpec()

Amounts = dict[str, int]
Texts = Mapping[str, str | int | float]


def gpus_of(amounts: Mapping[str, int]) -> int:
    """Return how many GPUs stand among the amounts, whoever makes them."""
    return sum(count for name, count in amounts.items() if name.rpartition("/")[2] in _GPU_NAMES)


class QuotaCheckStrategy(StrEnum):
    """What a request for a resource means that the ClusterQueue does not cover."""

    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


class TransformationStrategy(StrEnum):
    """Whether the input resource of a transformation stays beside its outputs."""

    RETAIN = "Retain"
    REPLACE = "Replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """One unit of `input` counts as `outputs`, times the amount of `multiply_by` where that is set."""

    input: str
    strategy: TransformationStrategy = TransformationStrategy.RETAIN
    outputs: Mapping[str, Fraction] = field(default_factory=dict)
    multiply_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSettings:
    """`resources` of Kueue's configuration, and quotaCheckStrategy."""

    exclude_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    quota_check: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRange:
    """The limits of a namespace: one LimitRange object."""

    namespace: str
    name: str
    limits: tuple[LimitRangeItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeClass:
    """What a runtime adds to every pod."""

    name: str
    overhead: Texts = field(default_factory=dict)


class PodSetRequests(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod of the set asks for, and how many pods are still to run (reclaimable ones are done).

    `per_pod` is what quota is charged. `on_node` is what the pod takes of its node, which configuration does
    not change.
    """

    name: str
    count: int
    per_pod: Mapping[str, int]
    on_node: Mapping[str, int] = msgspec.field(default_factory=dict)

    def total(self) -> Amounts:
        """Return what all pods of the set ask for together."""
        return {resource: amount * self.count for resource, amount in self.per_pod.items()}


class RequestError(ValueError):
    """A pod template's requests cannot be read. The message names the pod set, field, value and form."""


def pod_set_requests(
    pod_set: PodSet,
    *,
    reclaimable: int = 0,
    limits: Iterable[LimitRange] = (),
    runtime_classes: Mapping[str, RuntimeClass] | None = None,
    settings: ResourceSettings | None = None,
) -> PodSetRequests:
    """Return the requests of `pod_set`, in canonical units per pod.

    `limits` are those of its namespace. Raises RequestError where a quantity cannot be read, and for devices
    asked for by claim, which no quota counts.
    """
    spec = pod_set.template.spec or _NO_SPEC
    # Devices by claim are admitted by DRA's own accounting. To count them as zero would admit such a Workload
    # whatever the quota, so it is refused by name.
    if spec.resource_claims:
        raise RequestError(
            f"pod set {pod_set.name!r}: spec.resourceClaims asks for devices by claim, which are not counted"
            " in quotas yet; ask for them as a resource, such as nvidia.com/gpu, in requests and limits"
        )
    try:
        adjusted = _adjusted(spec, tuple(limits), runtime_classes or {})
        on_node = pod_requests(adjusted)
        per_pod = on_node if settings is None else _transformed(on_node, settings)
    except QuantityError as error:
        raise _unreadable(pod_set, error) from error
    # A Job controller may report more succeeded pods than a Workload that was shrunk still counts: never
    # below zero, else a Workload would give quota to its queue.
    count = pod_set.count - min(reclaimable, pod_set.count)
    on_node_at_least_0 = {name: max(0, value) for name, value in on_node.items()}
    return PodSetRequests(
        name=pod_set.name,
        count=count,
        # The same dict for both in the usual case of no settings: thousands of Workloads hold one each.
        per_pod=on_node_at_least_0
        if per_pod is on_node
        else {name: max(0, value) for name, value in per_pod.items()},
        on_node=on_node_at_least_0,
    )


def request_problem(pod_set: PodSet, limits: Iterable[LimitRange] = ()) -> str | None:
    """Return why Kubernetes would refuse these pods, None where it would take them.

    Checked: requests within limits, and the min and max of the namespace's limit ranges. Raises RequestError
    where a quantity cannot be read.
    """
    held = tuple(limits)
    spec = pod_set.template.spec or _NO_SPEC
    # Nearly every pod has no limits and no limit range: this is asked once a nomination, so
    # the short way counts.
    if not held and not _has_limits(spec):
        return None
    spec = _adjusted(spec, held, {})
    try:
        problems = [
            *(
                _above_limits(f"pod set {pod_set.name!r}, {where}", one)
                for where, one in _resource_holders(spec)
            ),
            *(_limit_range_problem(pod_set.name, spec, limit_range) for limit_range in held),
        ]
    except QuantityError as error:
        raise _unreadable(pod_set, error) from error
    # Only the first is told: the others may vanish with it.
    return next((problem for problem in problems if problem is not None), None)


def _unreadable(pod_set: PodSet, error: QuantityError) -> RequestError:
    return RequestError(
        f"pod set {pod_set.name!r}: resources of its template: {error}; correct the pod template"
    )


# --- step 1: what the cluster adds to the template -------------------------------------------------------


def _adjusted(
    spec: WirePodSpec, limits: tuple[LimitRange, ...], runtime_classes: Mapping[str, RuntimeClass]
) -> WirePodSpec:
    # The admission plugin of RuntimeClass fills overhead in when a *pod* is made. A Workload is made from a
    # template, before there are pods, so what the plugin will add is added here; a template that has it
    # already (the Workload of a running pod) keeps it.
    overhead = spec.overhead
    runtime_class = runtime_classes.get(spec.runtime_class_name or "")
    if not overhead and runtime_class is not None:
        overhead = dict(runtime_class.overhead)
    elif not limits and not _has_limits(spec):
        return spec
    of_containers = _defaults(limits, "Container")
    of_pods = _defaults(limits, "Pod")
    return WirePodSpec(
        containers=tuple(_filled_container(c, of_containers) for c in spec.containers or ()),
        init_containers=tuple(_filled_container(c, of_containers) for c in spec.init_containers or ()),
        # Pod-level resources are filled only where they are given: a Pod's defaults must not turn a
        # pod of containers into one of pod-level resources.
        resources=_filled(spec.resources, of_pods) if spec.resources is not None else None,
        overhead=overhead,
    )


def _has_limits(spec: WirePodSpec) -> bool:
    """Return whether a limit is given anywhere; where none is, none can stand in for a request."""
    if spec.resources is not None and spec.resources.limits:
        return True
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return any(one.resources is not None and one.resources.limits for one in containers)


def _defaults(limits: tuple[LimitRange, ...], type_: str) -> tuple[LimitRangeItem, ...]:
    return tuple(item for held in limits for item in held.limits if item.type == type_)


def _filled_container(container: WireContainer, defaults: tuple[LimitRangeItem, ...]) -> WireContainer:
    resources = container.resources
    if not defaults and (resources is None or not resources.limits):
        return container
    return WireContainer(
        name=container.name,
        resources=_filled(resources or WireResources(), defaults),
        restart_policy=container.restart_policy,
    )


def _filled(resources: WireResources, defaults: tuple[LimitRangeItem, ...]) -> WireResources:
    """Return the resources with defaults where a key is missing, and limits where a request is missing."""
    requests = dict(resources.requests or {})
    limits = dict(resources.limits or {})
    # Order matters and is Kubernetes': a container's own words before a limit range's, an
    # earlier range before a later one, and a default limit stands in for a missing request only
    # where no default request does.
    for item in defaults:
        limits = {**(item.default or {}), **limits}
        requests = {**(item.default_request or {}), **requests}
    return WireResources(requests={**limits, **requests}, limits=limits)


# --- step 2: Kubernetes' rule for a pod -----------------------------------------------------------------


def pod_requests(spec: WirePodSpec) -> Amounts:
    """Return what the scheduler would reserve for the pod. Raises QuantityError where it cannot be read.

    Containers and sidecars (init containers that restart) run together; an ordinary init container runs alone
    beside the sidecars started before it. Resources given for the pod as a whole replace both.
    """
    total: Amounts = {}
    for container in spec.containers or ():
        _add(total, _amounts(container.resources))
    if spec.init_containers:
        total = _with_init_containers(total, spec.init_containers)
    if spec.resources is not None:
        # Written over and not added: what a pod asks for as a whole replaces what its containers ask for.
        total.update(_amounts(spec.resources))
    # Last, on top of everything: overhead is the runtime's own and no part of any container.
    for resource, text in (spec.overhead or {}).items():
        total[resource] = total.get(resource, 0) + amount(resource, text)
    return total


def _with_init_containers(together: Amounts, init_containers: tuple[WireContainer, ...]) -> Amounts:
    sidecars: Amounts = {}
    # Kubernetes starts init containers one after another, but a sidecar (restartPolicy Always) stays. At any
    # moment the pod needs the sidecars begun so far plus the one init container that runs; at the end, all
    # sidecars plus all containers. The scheduler reserves the larger of both, resource by resource.
    peak: Amounts = {}
    for container in init_containers:
        need = _amounts(container.resources)
        if container.restart_policy == "Always":
            _add(sidecars, need)
            _raise(peak, sidecars)
        else:
            # `need` is this function's own dict, so it may be added to.
            _add(need, sidecars)
            _raise(peak, need)
    _add(together, sidecars)
    _raise(together, peak)
    return together


def _amounts(resources: WireResources | None) -> Amounts:
    if resources is None or not resources.requests:
        return {}
    return {name: amount(name, text) for name, text in resources.requests.items()}


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: Amounts, floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        total[name] = max(total.get(name, 0), value)


# --- step 3: what the configuration makes of it ---------------------------------------------------------


def _transformed(per_pod: Amounts, settings: ResourceSettings) -> Amounts:
    kept = per_pod
    if settings.exclude_prefixes:
        kept = {
            name: value for name, value in per_pod.items() if not name.startswith(settings.exclude_prefixes)
        }
    if not settings.transformations:
        return kept
    by_input = {transformation.input: transformation for transformation in settings.transformations}
    result: dict[str, Fraction] = {}
    for name, value in kept.items():
        transformation = by_input.get(name)
        # Retained ones of no transformation too, so that an output that is also an input adds up.
        if transformation is None or transformation.strategy is TransformationStrategy.RETAIN:
            result[name] = result.get(name, Fraction(0)) + _base(name, value)
        if transformation is not None:
            factor = _base(name, value)
            # Where the other resource is not asked for at all, the factor stands alone, as in Kueue.
            if transformation.multiply_by is not None and transformation.multiply_by in kept:
                factor *= _base(transformation.multiply_by, kept[transformation.multiply_by])
            for output, ratio in transformation.outputs.items():
                result[output] = result.get(output, Fraction(0)) + factor * ratio
    # Ratios are written against what people write (per core, per GPU), so they are applied to that
    # unit, exactly, and only the sum is rounded: rounding each output up would charge a Workload of
    # many resources several times.
    return {name: ceil(value * (1000 if name == CPU else 1)) for name, value in result.items()}


def _base(resource: str, value: int) -> Fraction:
    """Return an amount in the unit people write: cores, bytes, devices."""
    return Fraction(value, 1000) if resource == CPU else Fraction(value)


# --- what Kubernetes would refuse ------------------------------------------------------------------------


def _resource_holders(spec: WirePodSpec) -> list[tuple[str, WireResources]]:
    holders = [
        (f"{kind} {container.name!r}", container.resources)
        for kind, containers in (
            ("init container", spec.init_containers or ()),
            ("container", spec.containers or ()),
        )
        for container in containers
        if container.resources is not None
    ]
    # Both halves of what a pod has, the containers and the pod as a whole, each with its
    # name for the sentence.
    return [*holders, ("pod-level resources", spec.resources)] if spec.resources is not None else holders


def _above_limits(where: str, resources: WireResources) -> str | None:
    for name, text in (resources.requests or {}).items():
        limit = (resources.limits or {}).get(name)
        if limit is not None and amount(name, text) > amount(name, limit):
            return f"{where}: requests {text} {name}, above its own limit of {limit}; lower the request"
    return None


def _limit_range_problem(pod_set: str, spec: WirePodSpec, limit_range: LimitRange) -> str | None:
    for item in limit_range.limits:
        # Of a limit range's types only these two speak of running pods; PersistentVolumeClaim is not ours.
        if item.type == "Pod":
            subjects = [("its pod", pod_requests(spec))]
        elif item.type == "Container":
            subjects = [(where, _amounts(resources)) for where, resources in _resource_holders(spec)]
        else:
            continue
        for where, requests in subjects:
            problem = _outside(requests, item)
            if problem is not None:
                owner = f"LimitRange {limit_range.namespace}/{limit_range.name}"
                return f"pod set {pod_set!r}, {where}: {problem} of {owner}"
    return None


def _outside(requests: Mapping[str, int], item: LimitRangeItem) -> str | None:
    for name, value in requests.items():
        most, least = (item.max or {}).get(name), (item.min or {}).get(name)
        if most is not None and value > amount(name, most):
            return f"requests {to_text(name, value)} {name}, above the maximum {most}"
        if least is not None and value < amount(name, least):
            return f"requests {to_text(name, value)} {name}, below the minimum {least}"
    return None
