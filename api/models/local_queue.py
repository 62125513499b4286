"""LocalQueue: the door of one namespace to a ClusterQueue."""

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
    """Where the queue leads."""

    cluster_queue: Annotated[DnsSubdomain, FROZEN] | None = None
    """ClusterQueue that serves this queue; immutable."""
    fair_sharing: FairSharing | None = None
    """Weight among the LocalQueues of a ClusterQueue that shares by usage."""
    stop_policy: StopPolicy = "None"
    """Hold: admit nothing new from here. HoldAndDrain: also evict what is admitted."""


class AdmissionFairSharingStatus(Model):
    """Past usage as usage-based sharing counts it."""

    consumed_resources: dict[str, Quantity]
    """Usage per resource, decayed with the configured half-life."""
    last_update: Timestamp
    """When the usage was last decayed."""


class LocalQueueFairSharingStatus(Model):
    """Standing of a LocalQueue among those of its ClusterQueue."""

    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None
    """Past usage."""
    weighted_share: Int64
    """Not in use; 0."""


class LocalQueueStatus(Model):
    """Observed state of a LocalQueue."""

    admitted_workloads: Int32 | None = None
    """Workloads of this queue that are admitted and not finished."""
    conditions: Conditions | None = None
    """Active, with reason Ready, Stopped, ClusterQueueDoesNotExist or ClusterQueueIsInactive."""
    fair_sharing: LocalQueueFairSharingStatus | None = None
    """Standing in usage-based sharing."""
    flavors_reservation: LocalFlavorUsages | None = None
    """Quota held by Workloads of this queue with a quota reservation."""
    flavors_usage: LocalFlavorUsages | None = None
    """Quota held by admitted Workloads of this queue."""
    pending_workloads: Int32 | None = None
    """Workloads of this queue that wait."""
    reserving_workloads: Int32 | None = None
    """Workloads of this queue that hold quota and are not finished."""


class LocalQueue(KueueObject):
    """The queue that the Jobs of a namespace name in their label kueue.x-k8s.io/queue-name."""

    kind: Literal["LocalQueue"] = "LocalQueue"
    spec: LocalQueueSpec = Field(default_factory=LocalQueueSpec)
    """Where the queue leads."""
    status: LocalQueueStatus | None = None
    """Observed state."""
