"""AdmissionPolicy: which of Berth's features go beyond Kueue's decisions, and for which ClusterQueues.

Without a policy decisions are Kueue's. Each feature is its own section of the spec and is off until it stands
there, so a cluster takes them up one by one.
"""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import (
    Conditions,
    Count,
    DnsSubdomain,
    Int32,
    LabelSelector,
    Model,
    ObjectMeta,
    Quantity,
    Timestamp,
)
from api.models.markers import ATOMIC, EMPTY, SET
from api.models.policy_placement import PlacementSection
from api.models.policy_preemption import PreemptionSection
from api.models.policy_time import Backfill, Estimates, Ordering, QuotaWindows, Reservations


class BoundClusterQueues(Model):
    """Which ClusterQueues a policy governs. Those named and those selected both; with neither, all."""

    names: Annotated[list[DnsSubdomain], Field(max_length=256), SET] | None = None
    """ClusterQueues by name."""
    selector: LabelSelector | None = None
    """ClusterQueues by their labels."""


class AdmissionPolicySpec(Model):
    """What is governed, and how."""

    cluster_queues: Annotated[BoundClusterQueues, EMPTY] = Field(default_factory=BoundClusterQueues)
    """ClusterQueues that the policy governs. Default: all."""
    precedence: Int32 = 0
    """Of several policies for one ClusterQueue the one with the highest precedence counts, and of equals the
    one whose name sorts first. Default 0, which leaves room on both sides."""
    aliases: Literal["None", "Articles"] = "None"
    """Articles: the unprefixed keys of the scheduling articles count like their berth.dev/ counterparts.
    Default None, because the Job controller itself sets one of them, job-name, on every pod."""
    ordering: Ordering | None = None
    """In which order Workloads of equal priority are tried. Absent: Kueue's."""
    backfill: Backfill | None = None
    """Promised starts and who may fill the gap before them. Absent: none."""
    preemption: PreemptionSection | None = None
    """What an eviction may cost, and whom it spares. Absent: Kueue's rules alone."""
    placement: PlacementSection | None = None
    """Where the pods of a gang go. Absent: Kueue's topology-aware scheduling alone."""
    quota_windows: QuotaWindows | None = None
    """Times with another nominal quota."""
    reservations: Reservations | None = None
    """Capacity kept for a LocalQueue at a given time."""
    estimates: Estimates | None = None
    """How long Workloads run that do not say so themselves. Absent: only their own word counts."""


class QuotaInForce(Model):
    """A quota that an open window has put in place of the one in the ClusterQueue."""

    cluster_queue: str
    """ClusterQueue."""
    flavor: str
    """Flavor."""
    resource: str
    """Resource."""
    window: str
    """Name of the window."""
    nominal_quota: Quantity
    """Quota in force."""
    until: Timestamp | None = None
    """When the window closes."""


class AdmissionPolicyStatus(Model):
    """Observed state of an AdmissionPolicy."""

    conditions: Conditions | None = None
    """Accepted: whether the policy is in force, and why not."""
    cluster_queue_count: Count | None = None
    """ClusterQueues that the policy governs now."""
    cluster_queues: Annotated[list[str], Field(max_length=256), SET] | None = None
    """Their names, the first 256 in order."""
    quotas_in_force: Annotated[list[QuotaInForce], Field(max_length=64), ATOMIC] | None = None
    """Quotas that open windows have put in place of those in the ClusterQueues."""


class AdmissionPolicy(Model):
    """Switches features of Berth on for ClusterQueues."""

    api_version: Literal["berth.dev/v1alpha1"] = "berth.dev/v1alpha1"
    kind: Literal["AdmissionPolicy"] = "AdmissionPolicy"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: Annotated[AdmissionPolicySpec, EMPTY] = Field(default_factory=AdmissionPolicySpec)
    """What is governed, and how."""
    status: AdmissionPolicyStatus | None = None
    """Observed state."""
