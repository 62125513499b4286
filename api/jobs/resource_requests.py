"""The requests of a pod set: from template, limit ranges, overhead and transformations to amounts per pod.

The steps are Kueue's; the results are values and are never written back to the Workload: 1. RuntimeClass
overhead, LimitRange defaults, and limits in place of missing requests; 2. Kubernetes' rule for a pod: the
larger of what runs together and what the init containers need in turn; 3. resources excluded by prefix, and
resources derived from others; 4. multiplication by the number of pods that still have to run.
`request_problem` checks separately whether the requests are allowed (within limits and limit ranges), because
Kueue checks it only when the Workload is nominated. Source: Kueue, pkg/workload/resources.go and
pkg/workload/workload.go; kubernetes component-helpers resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec

from api import keys
from api.jobs.device_mapping import DeviceSettings
from api.jobs.gpu_share import Sources, gpu_share
from api.jobs.inference_memory import INFERENCE_MEMORY, inference_mib
from api.jobs.linked_gpus import asks_for_links
from api.jobs.static_address import asks_for_address
from api.objects.cluster import LimitRangeItem
from api.objects.templates import WireContainer, WirePodSpec, WireResources
from api.parsing.quantities import CPU, QuantityError, add_amounts, amount, to_text
from api.workload import PodSet

PODS = "pods"
# Names, without the vendor's prefix, of extended resources that count whole GPUs.
_GPU_NAMES = frozenset({"gpu", "i915", "xe", "gaudi"})

_NO_SPEC = WirePodSpec()
_NO_KEYS: Mapping[str, str] = {}

Amounts = dict[str, int]
Texts = Mapping[str, str | int | float]


# Resources under which nodes offer parts of GPUs: shares of time-slicing or MPS, and Volcano's vGPUs.
_GPU_PARTS = ("nvidia.com/gpu.shared", "volcano.sh/vgpu-number")


def gpu_parts_of(amounts: Mapping[str, int]) -> int:
    """Return the number of parts of GPUs in the amounts, under names that whole GPUs do not have."""
    return sum(amounts.get(name, 0) for name in _GPU_PARTS)


def most_gpu_ids(amounts: Mapping[str, int]) -> int:
    """Return how many GPUs a pod that requests these amounts can have been given."""
    # At least one: a share of a GPU may be mounted without any resource.
    return max(1, gpus_of(amounts) + gpu_parts_of(amounts))


def gpus_of(amounts: Mapping[str, int]) -> int:
    """Return the number of GPUs in the amounts, of all vendors."""
    return sum(count for name, count in amounts.items() if name.rpartition("/")[2] in _GPU_NAMES)


class QuotaCheckStrategy(StrEnum):
    """What happens if a Workload requests a resource that the ClusterQueue does not cover."""

    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


class TransformationStrategy(StrEnum):
    """Whether the input resource of a transformation is counted in addition to its outputs."""

    RETAIN = "Retain"
    REPLACE = "Replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """One unit of `input` counts as `outputs`, multiplied by the amount of `multiply_by` if that is set."""

    input: str
    strategy: TransformationStrategy = TransformationStrategy.RETAIN
    outputs: Mapping[str, Fraction] = field(default_factory=dict)
    multiply_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSettings:
    """The section `resources` of Kueue's configuration, including quotaCheckStrategy.

    `counts_reclaimable` (feature gate ReclaimablePods): whether status.reclaimablePods frees quota.
    """

    exclude_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    quota_check: QuotaCheckStrategy = QuotaCheckStrategy.BLOCK_UNDECLARED
    counts_reclaimable: bool = True
    devices: DeviceSettings = field(default_factory=DeviceSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRange:
    """One LimitRange object of a namespace."""

    namespace: str
    name: str
    limits: tuple[LimitRangeItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeClass:
    """A RuntimeClass, and the overhead that it adds to every pod."""

    name: str
    overhead: Texts = field(default_factory=dict)


class PodSetRequests(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one pod of the set, and the number of pods that still have to run.

    `per_pod` is charged to quota. `on_node` is what the pod uses of its node; the configuration does not
    change it. Both are in canonical units: milli-CPU, bytes, devices. `is_linked`: its GPUs must be linked.
    """

    name: str
    count: int
    per_pod: Mapping[str, int]
    on_node: Mapping[str, int] = msgspec.field(default_factory=dict)
    is_linked: bool = False

    def total(self) -> Amounts:
        """Return the requests of all pods of the set together."""
        return {resource: amount * self.count for resource, amount in self.per_pod.items()}


# Source: Kueue, pkg/workload/resources.go.
_INVALID = "resources validation failed"
_OUTSIDE = "resources didn't satisfy LimitRange constraints"


class RequestError(ValueError):
    """The requests of a pod template cannot be parsed.

    The message names the pod set, field, value and syntax.
    """


def pod_set_requests(
    pod_set: PodSet,
    *,
    reclaimable: int = 0,
    limits: Iterable[LimitRange] = (),
    runtime_classes: Mapping[str, RuntimeClass] | None = None,
    settings: ResourceSettings | None = None,
    job: Mapping[str, str] = _NO_KEYS,
) -> PodSetRequests:
    """Return the requests of `pod_set`, in canonical units per pod.

    `job` are the annotations of its Workload, where a share of a GPU may be asked for as well. `limits` are
    the limit ranges of its namespace. Raises RequestError if a quantity cannot be parsed. Devices that
    are requested by claims are added by `api.devices`.
    """
    spec = pod_set.template.spec or _NO_SPEC
    try:
        adjusted = _adjusted(spec, tuple(limits), runtime_classes or {})
        on_node = pod_requests(adjusted)
        share = gpu_share(_sources(pod_set, job), gpus_of(on_node))
        if share is not None:
            on_node[keys.GPU_MILLI] = share.milli
        if asks_for_address(_sources(pod_set, job)):
            on_node[keys.ADDRESS] = 1
        per_pod = on_node if settings is None else _transformed(on_node, settings)
        if share is not None and share.mib:
            # No quota counts memory of GPUs; a node's is limited.
            on_node = {**on_node, keys.GPU_MEMORY_MIB: share.mib}
        if mib := inference_mib(_own(pod_set), job):
            on_node = {**on_node, INFERENCE_MEMORY: mib}
    except QuantityError as error:
        raise _unreadable(pod_set, error) from error
    # A Job controller may report more succeeded pods than a Workload that was shrunk still has. The count
    # never drops below zero, because negative usage would add quota to the queue.
    count = pod_set.count - min(reclaimable, pod_set.count)
    on_node_at_least_0 = {name: max(0, value) for name, value in on_node.items()}
    return PodSetRequests(
        name=pod_set.name,
        count=count,
        # Without settings both share one dict, because thousands of Workloads hold one each.
        per_pod=on_node_at_least_0
        if per_pod is on_node
        else {name: max(0, value) for name, value in per_pod.items()},
        on_node=on_node_at_least_0,
        is_linked=asks_for_links(_sources(pod_set, job), gpus_of(on_node)),
    )


def _sources(pod_set: PodSet, job: Mapping[str, str]) -> Sources:
    """Return where keys are read: on the pod template, and then on the Workload."""
    return (*_own(pod_set), job)


def _own(pod_set: PodSet) -> Sources:
    metadata = pod_set.template.metadata
    return () if metadata is None else (metadata.annotations, metadata.labels)


def request_problem(pod_set: PodSet, limits: Iterable[LimitRange] = ()) -> str | None:
    """Return why Kubernetes would reject these pods, or None if it would accept them.

    The sentence begins with Kueue's words, by which its users find it. Checks that requests do not exceed
    limits, and the minimum and maximum of the namespace's limit ranges. Raises RequestError if a quantity
    cannot be parsed.
    """
    held = tuple(limits)
    spec = pod_set.template.spec or _NO_SPEC
    # Most pods have no limits and no limit range. This runs at every nomination, so the common case is fast.
    if not held and not _has_limits(spec):
        return None
    spec = _adjusted(spec, held, {})
    try:
        above = (
            _above_limits(f"pod set {pod_set.name!r}, {where}", one) for where, one in _resource_holders(spec)
        )
        outside = (_limit_range_problem(pod_set.name, spec, limit_range) for limit_range in held)
        problems = [
            f"{words}: {problem}"
            for words, found in ((_INVALID, above), (_OUTSIDE, outside))
            for problem in found
            if problem is not None
        ]
    except QuantityError as error:
        raise _unreadable(pod_set, error) from error
    # Only the first problem is reported: fixing it may fix the others too.
    return next(iter(problems), None)


def _unreadable(pod_set: PodSet, error: QuantityError) -> RequestError:
    return RequestError(
        f"pod set {pod_set.name!r}: resources of its template: {error}; correct the pod template"
    )


# --- step 1: what the cluster adds to the template -------------------------------------------------------


def _adjusted(
    spec: WirePodSpec, limits: tuple[LimitRange, ...], runtime_classes: Mapping[str, RuntimeClass]
) -> WirePodSpec:
    # The RuntimeClass admission plugin adds the overhead when a *pod* is created. A Workload is created from
    # a template, before there are pods, so the overhead is added here; a template that already has an
    # overhead (in the Workload of an existing pod) keeps it.
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
        # Pod-level resources are completed only if they are given: the defaults of a Pod limit range must not
        # turn container-level resources into pod-level ones.
        resources=_filled(spec.resources, of_pods) if spec.resources is not None else None,
        overhead=overhead,
    )


def _has_limits(spec: WirePodSpec) -> bool:
    """Return whether a limit is set anywhere; if not, no request can default to a limit."""
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
    """Return the resources with limit range defaults for missing keys, and limits for missing requests."""
    requests = dict(resources.requests or {})
    limits = dict(resources.limits or {})
    # The order is Kubernetes': a container's own values before those of a limit range, an earlier limit range
    # before a later one, and a default limit replaces a missing request only if there is no default request.
    for item in defaults:
        limits = {**(item.default or {}), **limits}
        requests = {**(item.default_request or {}), **requests}
    return WireResources(requests={**limits, **requests}, limits=limits)


# --- step 2: Kubernetes' rule for a pod -----------------------------------------------------------------


def pod_requests(spec: WirePodSpec) -> Amounts:
    """Return what the scheduler would reserve for the pod.

    Raises QuantityError if a quantity cannot be parsed.

    Containers and sidecars (init containers that restart) run together; an ordinary init container runs alone
    with the sidecars that started before it. Pod-level resources replace the sum of both.
    """
    total: Amounts = {}
    for container in spec.containers or ():
        add_amounts(total, _amounts(container.resources))
    if spec.init_containers:
        total = _with_init_containers(total, spec.init_containers)
    if spec.resources is not None:
        # Replaced and not added: pod-level requests override those of the containers.
        total.update(_amounts(spec.resources))
    # Added last, because overhead belongs to the runtime and not to any container.
    for resource, text in (spec.overhead or {}).items():
        total[resource] = total.get(resource, 0) + amount(resource, text)
    return total


def requests_no_more(
    one: Mapping[str, Any], template: Mapping[str, Any], limits: tuple[LimitRange, ...] = ()
) -> bool:
    """Return whether a pod, or the pods of a template, request no more than those of another template.

    Both are plain objects of a namespace with these limits. False if either cannot be read. The overhead of a
    runtime class is left out: the API server adds it to pods alone.
    """
    try:
        mine, theirs = (_own_requests(each["spec"], limits) for each in (one, template))
    except (msgspec.ValidationError, QuantityError, KeyError):
        return False
    return all(value <= theirs.get(resource, 0) for resource, value in mine.items())


def _own_requests(spec: Mapping[str, Any], limits: tuple[LimitRange, ...]) -> Amounts:
    read = msgspec.convert(spec, WirePodSpec, strict=False)
    return pod_requests(_adjusted(msgspec.structs.replace(read, overhead=None), limits, {}))


def _with_init_containers(together: Amounts, init_containers: tuple[WireContainer, ...]) -> Amounts:
    sidecars: Amounts = {}
    # Kubernetes starts init containers one after another, but a sidecar (restartPolicy Always) keeps
    # running. During initialization the pod needs the sidecars started so far plus the current init
    # container; afterwards, all sidecars plus all containers. The scheduler reserves the maximum of
    # both for each resource.
    peak: Amounts = {}
    for container in init_containers:
        need = _amounts(container.resources)
        if container.restart_policy == "Always":
            add_amounts(sidecars, need)
        else:
            # `need` is a new dict, so it may be modified.
            add_amounts(need, sidecars)
            _raise(peak, need)
    add_amounts(together, sidecars)
    _raise(together, peak)
    return together


def _amounts(resources: WireResources | None) -> Amounts:
    if resources is None or not resources.requests:
        return {}
    return {name: amount(name, text) for name, text in resources.requests.items()}


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
        # Resources without a transformation are added as well, so that an output that is also
        # an input adds up.
        if transformation is None or transformation.strategy is TransformationStrategy.RETAIN:
            result[name] = result.get(name, Fraction(0)) + _base(name, value)
        if transformation is not None:
            factor = _base(name, value)
            # If the other resource is not requested, the factor is used without it, as in Kueue.
            if transformation.multiply_by is not None and transformation.multiply_by in kept:
                factor *= _base(transformation.multiply_by, kept[transformation.multiply_by])
            for output, ratio in transformation.outputs.items():
                result[output] = result.get(output, Fraction(0)) + factor * ratio
    # Ratios refer to the units that people write (cores, GPUs), so they are applied exactly in
    # these units, and only the sum is rounded: rounding each output would overcharge a Workload
    # that requests many resources.
    return {name: ceil(value * (1000 if name == CPU else 1)) for name, value in result.items()}


def _base(resource: str, value: int) -> Fraction:
    """Return an amount in the unit that people write: cores, bytes, devices."""
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
    # Containers and the pod as a whole, each with the name that messages use for it.
    return [*holders, ("pod-level resources", spec.resources)] if spec.resources is not None else holders


def _above_limits(where: str, resources: WireResources) -> str | None:
    for name, text in (resources.requests or {}).items():
        limit = (resources.limits or {}).get(name)
        if limit is not None and amount(name, text) > amount(name, limit):
            return f"{where}: requests {text} {name}, above its own limit of {limit}; lower the request"
    return None


def _limit_range_problem(pod_set: str, spec: WirePodSpec, limit_range: LimitRange) -> str | None:
    for item in limit_range.limits:
        # Only these two types apply to pods; PersistentVolumeClaim is not relevant here.
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
