"""Loads the objects of a cluster into an engine, for offline decisions and for tests.

Objects are the JSON bytes that the API server would return. Kinds that the engine does not use (Jobs,
Secrets) are ignored. An object of a known kind that cannot be read is recorded in the engine and reported;
the other objects are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from admission.engine.engine import Engine
from admission.engine.updates import ObjectKey, Upsertable
from api.devices.values import (
    ClaimTemplate,
    DeviceClass,
    ResourceSlice,
    to_claim_template,
    to_device_class,
    to_resource_slice,
)
from api.jobs.resource_requests import LimitRange, RuntimeClass
from api.node import NodeInfo, PodUsage, to_node, to_pod_usage
from api.objects.cluster import LimitRangeObject, NamespaceObject, NodeObject, PodObject, RuntimeClassObject
from api.objects.common import Meta
from api.objects.devices import DeviceClassObject, ResourceClaimTemplateObject, ResourceSliceObject
from api.objects.policies import AdmissionPolicyObject
from api.objects.queues import (
    AdmissionCheckObject,
    ClusterQueueObject,
    CohortObject,
    LocalQueueObject,
    ResourceFlavorObject,
    TopologyObject,
)
from api.objects.workloads import WorkloadObject
from api.policy import AdmissionPolicy
from api.policy_objects import to_admission_policy
from api.queueing import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    ResourceFlavor,
    Topology,
)
from api.specs import (
    object_name,
    to_admission_check,
    to_cluster_queue,
    to_cohort,
    to_limit_range,
    to_local_queue,
    to_namespace,
    to_resource_flavor,
    to_runtime_class,
    to_topology,
)
from api.workload import Workload, WorkloadKey
from api.workload_decoding import to_workload

_T = TypeVar("_T")


class _Head(msgspec.Struct, rename="camel"):
    """The fields of any object that identify its kind and name."""

    kind: str = ""
    metadata: Meta = msgspec.field(default_factory=Meta)


@dataclass(frozen=True, slots=True)
class Reader(Generic[_T]):
    """How one kind is read: from bytes to the wire struct, and from the struct to the engine's value."""

    kind: type
    wire: type[_T]
    translate: Callable[[_T], Upsertable]
    decoder: msgspec.json.Decoder[_T] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.wire))


def _offline_check(wire: AdmissionCheckObject) -> AdmissionCheck:
    """Treat the check as active, because in files no controller can report that it is."""
    return to_admission_check(wire, without_conditions=True)


# Every kind that decisions depend on, with queues before the Workloads in them.
READERS: dict[str, Reader[Any]] = {
    "Namespace": Reader(Namespace, NamespaceObject, to_namespace),
    "ResourceFlavor": Reader(ResourceFlavor, ResourceFlavorObject, to_resource_flavor),
    "Topology": Reader(Topology, TopologyObject, to_topology),
    "AdmissionCheck": Reader(AdmissionCheck, AdmissionCheckObject, _offline_check),
    "AdmissionPolicy": Reader(AdmissionPolicy, AdmissionPolicyObject, to_admission_policy),
    "Cohort": Reader(Cohort, CohortObject, to_cohort),
    "ClusterQueue": Reader(ClusterQueue, ClusterQueueObject, to_cluster_queue),
    "LocalQueue": Reader(LocalQueue, LocalQueueObject, to_local_queue),
    "LimitRange": Reader(LimitRange, LimitRangeObject, to_limit_range),
    "RuntimeClass": Reader(RuntimeClass, RuntimeClassObject, to_runtime_class),
    "DeviceClass": Reader(DeviceClass, DeviceClassObject, to_device_class),
    "ResourceClaimTemplate": Reader(ClaimTemplate, ResourceClaimTemplateObject, to_claim_template),
    "ResourceSlice": Reader(ResourceSlice, ResourceSliceObject, to_resource_slice),
    "Node": Reader(NodeInfo, NodeObject, to_node),
    "Pod": Reader(PodUsage, PodObject, to_pod_usage),
    "Workload": Reader(Workload, WorkloadObject, to_workload),
}
# With queues first, each Workload is put into its queue only once.
_ORDER = {kind: position for position, kind in enumerate(READERS)}


# A text that is not UTF-8 is found only when its object is decoded.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


def load(
    engine: Engine,
    objects: Iterable[bytes | msgspec.Raw],
    *,
    now: float,
    without: Collection[str] = (),
) -> tuple[str, ...]:
    """Give all objects to the engine, except those of the kinds in `without`.

    Returns one sentence for each object that cannot be read. `now` is in Unix seconds.
    """
    known: list[tuple[_Head, bytes | msgspec.Raw]] = []
    problems: list[str] = []
    for raw in objects:
        try:
            head = _HEAD.decode(raw)
        except _UNREADABLE as error:
            problems.append(f"an object has no readable kind and metadata: {error}")
            continue
        if head.kind in READERS and head.kind not in without:
            known.append((head, raw))
    for head, raw in sorted(known, key=lambda pair: _ORDER[pair[0].kind]):
        reader = READERS[head.kind]
        try:
            problem = take(engine, head.kind, reader.decoder.decode(raw), now=now)
        except _UNREADABLE as error:
            problem = note_unreadable(engine, head.kind, head.metadata, str(error), now=now)
        if problem is not None:
            problems.append(problem)
    return tuple(problems)


def take(engine: Engine, kind: str, wire: Any, *, now: float) -> str | None:
    """Give an object of a kind in READERS to the engine. Return None, or a sentence if it is invalid."""
    try:
        engine.objects.upsert(READERS[kind].translate(wire), now=now)
    except ValueError as error:
        return note_unreadable(engine, kind, wire.metadata, str(error), now=now)
    return None


def is_readable(kind: str, raw: bytes) -> bool:
    """Return whether `load` gives an object of a kind in READERS to an engine."""
    reader = READERS[kind]
    try:
        reader.translate(reader.decoder.decode(raw))
    except (*_UNREADABLE, ValueError):
        return False
    return True


def note_unreadable(engine: Engine, kind: str, meta: Meta, error: str, *, now: float) -> str:
    """Record an unreadable object in the engine. Return the sentence that names it."""
    reader = READERS[kind]
    engine.objects.unreadable(reader.kind, _key(reader.kind, meta), error, now=now)
    return f"{object_name(kind, meta)}: {error}"


def _key(kind: type, meta: Meta) -> ObjectKey:
    if kind in (LocalQueue, LimitRange, ClaimTemplate, PodUsage):
        return meta.namespace, meta.name
    return WorkloadKey(meta.namespace, meta.name) if kind is Workload else meta.name


_HEAD = msgspec.json.Decoder(_Head)
