"""The kinds that the controller watches, and where their changes go in the control loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from admission.cache.in_use import KEPT_KINDS
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.cluster_state.provisioning import Provisioning
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.loop.status_writer import KINDS as STATUS_KINDS
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.metrics.labels import LABELLED_KINDS
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.writer.requests import owner_resource, source_resource
from api import keys, queueing, specs
from api.devices.values import (
    ClaimTemplate,
    DeviceClass,
    ResourceSlice,
    to_claim_template,
    to_device_class,
    to_resource_slice,
)
from api.disruption_budget import DisruptionBudget, to_disruption_budget
from api.jobs.job import Job
from api.jobs.owners.owner import Owner
from api.jobs.owners.row import OwnerKind, Source
from api.jobs.pod import Pod
from api.jobs.resource_requests import LimitRange, RuntimeClass
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.informer import Change, ChangeType, Informer, Listener, ListWatch
from api.kube.listing import Key, Unreadable
from api.kube.resources import Resource
from api.node import NodeInfo, PodUsage
from api.objects.cluster import (
    JobObject,
    LimitRangeObject,
    NamespaceObject,
    NodeObject,
    OwnerObject,
    PodDisruptionBudgetObject,
    PodGroupObject,
    PodObject,
    RuntimeClassObject,
    ScaledObject,
    StatefulSetObject,
)
from api.objects.common import Meta, NamedObject
from api.objects.devices import DeviceClassObject, ResourceClaimTemplateObject, ResourceSliceObject
from api.objects.policies import AdmissionPolicyObject
from api.objects.provisioning import ProvisioningConfigObject, ProvisioningRequestObject
from api.objects.queues import (
    AdmissionCheckObject,
    ClusterQueueObject,
    CohortObject,
    LocalQueueObject,
    PriorityClassObject,
    ResourceFlavorObject,
    TopologyObject,
)
from api.objects.workloads import WorkloadObject
from api.policy import AdmissionPolicy
from api.policy_objects import to_admission_policy
from api.provisioning import ProvisioningConfig, ProvisioningRequest, to_provisioning_config
from api.workload import Workload

Taker = Callable[[Change[Any]], None]
Versioned = TypeVar("Versioned", WorkloadObject, JobObject, OwnerObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedKind:
    """One kind: where it is served, how it is parsed, and what takes its changes.

    `params` narrow what is listed and watched. `keeps_raw`: keep the bytes, because writes are built from
    them. `keeps` returns what the informer keeps of an object that the cluster state keeps as a whole.

    `take_broken` is called with objects that cannot be decoded, in addition to the cluster state.

    `take_list` is called with the keys and the version of each complete list.

    `is_optional`: a cluster without the kind is no error, and the kind is watched once its CRD appears.
    """

    resource: Resource
    wire: type[Any]
    value: type
    take: Taker
    keeps_raw: bool = False
    keeps: Callable[[Any], Any] | None = None
    is_optional: bool = True
    params: Mapping[str, str] = field(default_factory=dict)
    take_broken: Callable[[Unreadable], None] | None = None
    take_list: Callable[[frozenset[Key], str], None] | None = None


def watched_kinds(
    cluster_state: ClusterState, board: StatusWriter, series: QueueSeries
) -> tuple[WatchedKind, ...]:
    """Return all watched kinds, specs first, so that the first cycle knows the queues.

    `series` receives the metadata of the kinds whose objects name series of metrics.
    """
    kinds = tuple(_labelled(kind, series) for kind in _plain_kinds(cluster_state, board))
    if cluster_state.pods.is_kept:
        budgets = WatchedKind(
            resource=resources.POD_DISRUPTION_BUDGETS,
            wire=PodDisruptionBudgetObject,
            value=DisruptionBudget,
            take=partial(cluster_state.specs.take, DisruptionBudget, to_disruption_budget),
        )
        kinds = (*kinds, budgets, _queued_pods(cluster_state))
    if cluster_state.provisioning.is_kept:
        kinds = (*kinds, *_provisioning_kinds(cluster_state.provisioning))
    if cluster_state.with_devices:
        kinds = (*kinds, *(_spec_kind(cluster_state, board, *row) for row in _DEVICES))
    if cluster_state.gangs.is_kept:
        kinds = (*kinds, _pod_groups(cluster_state))
    if "StatefulSet" in cluster_state.serving_kinds:
        scaled = WatchedKind(
            resource=resources.STATEFUL_SETS,
            wire=StatefulSetObject,
            value=StatefulSetObject,
            take=cluster_state.stateful_sets.take,
            keeps_raw=True,
            # Only objects with a queue name: a cluster may have thousands of others.
            params={"labelSelector": keys.QUEUE_NAME},
        )
        kinds = (*kinds, scaled)
    if "LeaderWorkerSet" in cluster_state.serving_kinds:
        sets = WatchedKind(
            resource=resources.LEADER_WORKER_SETS,
            wire=ScaledObject,
            value=ScaledObject,
            take=cluster_state.take_leader_set,
            params={"labelSelector": keys.QUEUE_NAME},
        )
        kinds = (*kinds, sets)
    for row in cluster_state.queued.rows.values():
        kinds = (*kinds, *(_source(cluster_state, row, one) for one in row.sources))
        kinds = (*kinds, _owners(cluster_state, row))
    return tuple(_inspected(kind, cluster_state, board) for kind in kinds)


def _source(cluster_state: ClusterState, row: OwnerKind, source: Source) -> WatchedKind:
    """Return a kind that objects of a kind of owners refer to."""
    return WatchedKind(
        resource=source_resource(source),
        wire=NamedObject,
        value=NamedObject,
        take=partial(cluster_state.take_owner_source, row, source.kind),
        keeps_raw=True,
    )


def _owners(cluster_state: ClusterState, row: OwnerKind) -> WatchedKind:
    """Return a kind of the table of owners. A cluster need not have it."""
    return WatchedKind(
        resource=owner_resource(row),
        wire=OwnerObject,
        value=Owner,
        take=partial(cluster_state.take_owner, row),
        take_list=partial(cluster_state.drop_unlisted_owners, row),
        keeps_raw=True,
        keeps=_version_of,
    )


def _provisioning_kinds(provisioning: Provisioning) -> tuple[WatchedKind, WatchedKind]:
    """Return the kinds by which the cluster's autoscaler is asked for nodes; only those that Berth made."""
    managed = {"labelSelector": f"{keys.MANAGED}=true"}
    templates = WatchedKind(
        resource=resources.POD_TEMPLATES,
        wire=NamedObject,
        value=NamedObject,
        take=provisioning.take_template,
        take_list=provisioning.drop_unlisted_templates,
        params=managed,
    )
    requests = WatchedKind(
        resource=resources.PROVISIONING_REQUESTS,
        wire=ProvisioningRequestObject,
        value=ProvisioningRequest,
        take=provisioning.take_request,
        take_list=provisioning.drop_unlisted_requests,
        params=managed,
    )
    return templates, requests


def _pod_groups(cluster_state: ClusterState) -> WatchedKind:
    return WatchedKind(
        resource=resources.POD_GROUPS,
        wire=PodGroupObject,
        value=PodGroupObject,
        take=cluster_state.take_pod_group,
    )


def _queued_pods(cluster_state: ClusterState) -> WatchedKind:
    """Return the kind of pods that are queued themselves, which the server selects by their label."""
    return WatchedKind(
        resource=resources.PODS,
        wire=PodObject,
        value=Pod,
        take=cluster_state.pods.take,
        keeps_raw=True,
        is_optional=False,
        params={"labelSelector": f"{keys.MANAGED}=true"},
    )


# Kinds that are parsed into a value and stored as such: resource, wire struct, value, parser.
_SPECS: tuple[tuple[Resource, type[Any], type, Callable[[Any], Any]], ...] = (
    (resources.LIMIT_RANGES, LimitRangeObject, LimitRange, specs.to_limit_range),
    (resources.RUNTIME_CLASSES, RuntimeClassObject, RuntimeClass, specs.to_runtime_class),
    (
        resources.RESOURCE_FLAVORS,
        ResourceFlavorObject,
        queueing.ResourceFlavor,
        specs.to_resource_flavor,
    ),
    (resources.TOPOLOGIES, TopologyObject, queueing.Topology, specs.to_topology),
    (
        resources.ADMISSION_CHECKS,
        AdmissionCheckObject,
        queueing.AdmissionCheck,
        specs.to_admission_check,
    ),
    (
        resources.PROVISIONING_CONFIGS,
        ProvisioningConfigObject,
        ProvisioningConfig,
        to_provisioning_config,
    ),
    (resources.ADMISSION_POLICIES, AdmissionPolicyObject, AdmissionPolicy, to_admission_policy),
    (resources.COHORTS, CohortObject, queueing.Cohort, specs.to_cohort),
    (resources.CLUSTER_QUEUES, ClusterQueueObject, queueing.ClusterQueue, specs.to_cluster_queue),
    (resources.LOCAL_QUEUES, LocalQueueObject, queueing.LocalQueue, specs.to_local_queue),
)

# Of dynamic resource allocation, where the controller counts devices.
_DEVICES: tuple[tuple[Resource, type[Any], type, Callable[[Any], Any]], ...] = (
    (resources.DEVICE_CLASSES, DeviceClassObject, DeviceClass, to_device_class),
    (
        resources.RESOURCE_CLAIM_TEMPLATES,
        ResourceClaimTemplateObject,
        ClaimTemplate,
        to_claim_template,
    ),
    (resources.RESOURCE_SLICES, ResourceSliceObject, ResourceSlice, to_resource_slice),
)


def _plain_kinds(cluster_state: ClusterState, board: StatusWriter) -> tuple[WatchedKind, ...]:
    return (
        WatchedKind(
            resource=resources.NAMESPACES,
            wire=NamespaceObject,
            value=queueing.Namespace,
            take=cluster_state.specs.take_namespace,
            is_optional=False,
        ),
        *_priority_classes(cluster_state),
        *(_spec_kind(cluster_state, board, *row) for row in _SPECS),
        WatchedKind(
            resource=resources.WORKLOADS,
            wire=WorkloadObject,
            value=Workload,
            take=cluster_state.take_workload,
            take_list=cluster_state.drop_unlisted_workloads,
            keeps_raw=True,
            keeps=_version_of,
        ),
        WatchedKind(
            resource=resources.JOBS,
            wire=JobObject,
            value=Job,
            take=cluster_state.take_job,
            take_list=cluster_state.drop_unlisted_jobs,
            keeps_raw=True,
            keeps=_version_of,
            is_optional=False,
        ),
    )


def _version_of(obj: Versioned) -> Versioned:
    """Return the object with nothing but what tells its versions apart."""
    metadata = obj.metadata
    return type(obj)(
        metadata=Meta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
    )


def _spec_kind(
    cluster_state: ClusterState,
    board: StatusWriter,
    resource: Resource,
    wire: type[Any],
    value: type,
    read: Callable[[Any], Any],
) -> WatchedKind:
    # The spec goes to the spec cache, and the status to the status writer if we write it.
    take = partial(cluster_state.specs.take, value, read)
    has_status = resource.kind in STATUS_KINDS
    return WatchedKind(
        resource=resource,
        wire=wire,
        value=value,
        take=partial(_take_both, take, board, resource.kind) if has_status else take,
        keeps_raw=has_status,
    )


def _priority_classes(cluster_state: ClusterState) -> tuple[WatchedKind, WatchedKind]:
    """Return both kinds of priority class, which have the same form: for pods and for Workloads."""
    of_pods = WatchedKind(
        resource=resources.PRIORITY_CLASSES,
        wire=PriorityClassObject,
        value=PriorityClassObject,
        take=cluster_state.specs.take_priority_class,
    )
    of_workloads = replace(
        of_pods,
        resource=resources.WORKLOAD_PRIORITY_CLASSES,
        take=cluster_state.specs.take_workload_priority_class,
    )
    return of_pods, of_workloads


def topology_kinds(cluster_state: ClusterState) -> tuple[WatchedKind, WatchedKind]:
    """Return the kinds that placement by topology needs, pods and nodes. `NodePodWatch` watches them."""
    pods = WatchedKind(
        resource=resources.PODS,
        wire=PodObject,
        value=PodUsage,
        take=cluster_state.take_pod,
        is_optional=False,
    )
    nodes = WatchedKind(
        resource=resources.NODES,
        wire=NodeObject,
        value=NodeInfo,
        take=cluster_state.take_node,
        is_optional=False,
    )
    return pods, nodes


def make_listener(kind: WatchedKind, control_loop: ControlLoop, cluster_state: ClusterState) -> Listener[Any]:
    """Return a listener that posts all changes of the kind to the control loop.

    They are posted like every change, because only the control loop may touch the state that it owns.
    """

    def take_unreadable(found: Unreadable) -> None:
        control_loop.post(
            partial(cluster_state.take_unreadable, kind.value, found.namespace, found.name, found.error)
        )
        if kind.take_broken is not None:
            control_loop.post(partial(kind.take_broken, found))

    def drop_unreadable(key: tuple[str, str]) -> None:
        control_loop.post(partial(cluster_state.drop_unreadable, kind.value, *key))

    take_list = kind.take_list
    return Listener(
        on_change=lambda change: control_loop.post(partial(kind.take, change)),
        on_unreadable=take_unreadable,
        on_unreadable_gone=drop_unreadable,
        on_list=None
        if take_list is None
        else lambda keys, version: control_loop.post(partial(take_list, keys, version)),
    )


def make_informer(
    client: KubeClient,
    kind: WatchedKind,
    control_loop: ControlLoop,
    cluster_state: ClusterState,
    on_error: Callable[[Resource, Exception | None], None],
) -> Informer[Any]:
    """Return an informer whose changes reach the inbox of the control loop."""
    what = ListWatch(resource=kind.resource, type_=kind.wire, params=kind.params, optional=kind.is_optional)
    return Informer(
        client,
        what,
        make_listener(kind, control_loop, cluster_state),
        keep_raw=kind.keeps_raw,
        keeps=kind.keeps,
        on_error=partial(on_error, kind.resource),
    )


def _inspected(kind: WatchedKind, cluster_state: ClusterState, board: StatusWriter) -> WatchedKind:
    """Return the kind with its objects checked against the rules, if their status can show a problem."""
    name = kind.resource.kind
    if name in _INSPECTED:
        take = partial(_take_inspected, kind.take, cluster_state, name)
        # The rules need the raw bytes: they check fields that the wire struct does not have.
        kind = replace(kind, take=take, keeps_raw=True)
    # Of Workloads only unreadable ones are reported: checking thousands against every rule takes seconds.
    elif name != "Workload":
        return kind
    return replace(kind, take_broken=partial(_take_broken, board, cluster_state, name))


# AdmissionPolicies have a condition of their own, and Workloads are too many to be checked further.
_INSPECTED = frozenset(
    {
        "AdmissionCheck",
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "ResourceFlavor",
        "Topology",
        "WorkloadPriorityClass",
    }
)


def _take_inspected(take: Taker, cluster_state: ClusterState, kind: str, change: Change[Any]) -> None:
    metadata = change.object.metadata
    if change.type is ChangeType.DELETED:
        cluster_state.inspection.forget(kind, metadata)
        if kind in KEPT_KINDS:
            cluster_state.keeping.forget(kind, metadata)
    elif change.raw is not None:
        cluster_state.inspection.look(kind, metadata, change.raw)
        if kind in KEPT_KINDS:
            cluster_state.keeping.see(kind, metadata)
    take(change)


def _take_broken(board: StatusWriter, cluster_state: ClusterState, kind: str, found: Unreadable) -> None:
    """Take an object that cannot be decoded: its status can still report that."""
    try:
        metadata = msgspec.json.decode(found.raw, type=NamedObject).metadata
    # Not even its name can be decoded.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    cluster_state.inspection.note(kind, metadata, found.error, found.raw)
    if kind in KEPT_KINDS:
        cluster_state.keeping.see(kind, metadata)
    if kind in STATUS_KINDS:
        board.see(kind, metadata, found.raw)


def _labelled(kind: WatchedKind, series: QueueSeries) -> WatchedKind:
    """Return the kind with its metadata made known to the metrics, if series are named by its objects."""
    name = kind.resource.kind
    if name not in LABELLED_KINDS:
        return kind
    return replace(kind, take=partial(_take_labelled, kind.take, series, name))


def _take_labelled(take: Taker, series: QueueSeries, kind: str, change: Change[Any]) -> None:
    metadata = change.object.metadata
    if change.type is ChangeType.DELETED:
        series.forget(kind, metadata)
    else:
        series.see(kind, metadata)
    take(change)


def _take_both(take: Taker, board: StatusWriter, kind: str, change: Change[Any]) -> None:
    metadata = change.object.metadata
    if change.type is ChangeType.DELETED:
        board.forget(kind, metadata)
    elif change.raw is not None:
        board.see(kind, metadata, change.raw)
    take(change)
