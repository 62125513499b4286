"""LocalQueue: the namespaced queue through which Jobs reach a ClusterQueue."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import (
    Conditions,
    DnsSubdomain,
    FairSharing,
    Int32,
    Int64,
    KueueObject,
    Model,
    Quantity,
    StopPolicy,
    Timestamp,
)
from api.models.markers import FROZEN
from api.models.quotas import LocalFlavorUsages


class LocalQueueSpec(Model):
    """ClusterQueue that the queue belongs to, and settings of the queue."""

    cluster_queue: Annotated[DnsSubdomain, FROZEN] | None = None
    """ClusterQueue that serves this queue; immutable."""
    fair_sharing: FairSharing | None = None
    """Weight among the LocalQueues of a ClusterQueue with usage-based fair sharing."""
    stop_policy: StopPolicy = "None"
    """Hold: admit no new Workload of this queue. HoldAndDrain: also evict its admitted Workloads."""


class AdmissionFairSharingStatus(Model):
    """Past usage that usage-based fair sharing compares."""

    consumed_resources: dict[str, Quantity]
    """Usage per resource, decayed with the configured half-life time."""
    last_update: Timestamp
    """When the usage was last decayed."""


class LocalQueueFairSharingStatus(Model):
    """Share of a LocalQueue among the LocalQueues of its ClusterQueue."""

    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """Past usage."""
    weighted_share: Int64
    """Not used; always 0."""


class LocalQueueStatus(Model):
    """Observed state of a LocalQueue."""

    admitted_workloads: Int32 | None = None
    """Workloads of this queue that are admitted and not finished."""
    conditions: Conditions | None = None
    """Active, with reason Ready, Stopped, ClusterQueueDoesNotExist or ClusterQueueIsInactive."""
    fair_sharing: LocalQueueFairSharingStatus | None = None
    """Share in usage-based fair sharing."""
    flavors_reservation: LocalFlavorUsages | None = None
    """Quota held by Workloads of this queue with a quota reservation."""
    flavors_usage: LocalFlavorUsages | None = None
    """Quota held by admitted Workloads of this queue."""
    pending_workloads: Int32 | None = None
    """Pending Workloads of this queue."""
    reserving_workloads: Int32 | None = None
    """Workloads of this queue that hold quota and are not finished."""


class LocalQueue(KueueObject):
    """The queue that Jobs of a namespace name in their label kueue.x-k8s.io/queue-name."""

    kind: Literal["LocalQueue"] = "LocalQueue"
    spec: LocalQueueSpec = Field(default_factory=LocalQueueSpec)
    """ClusterQueue that the queue belongs to, and settings of the queue."""
    status: LocalQueueStatus | None = None
    """Observed state."""
