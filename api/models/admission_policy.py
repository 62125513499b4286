"""AdmissionPolicy: features of Berth that go beyond Kueue's decisions, and the ClusterQueues they apply to.

Without a policy, decisions are the same as Kueue's. Each feature is a section of the spec and is off while
its section is absent, so that a cluster can adopt features one by one.
"""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import (
    Conditions,
    Count,
    DnsLabel,
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
from api.models.policy_time import Backfill, Estimates, Ordering, QuotaAmount, QuotaWindows, Reservations


class BoundClusterQueues(Model):
    """ClusterQueues that a policy governs: those listed by name and those selected by label. All
    if neither is set."""

    names: Annotated[list[DnsSubdomain], Field(max_length=256), SET] | None = None
    """ClusterQueues by name."""
    selector: LabelSelector | None = None
    """ClusterQueues by their labels."""


class AdmissionPolicySpec(Model):
    """Which ClusterQueues the policy governs, and how."""

    cluster_queues: Annotated[BoundClusterQueues, EMPTY] = Field(default_factory=BoundClusterQueues)
    """ClusterQueues that the policy governs. Default: all ClusterQueues."""
    precedence: Int32 = 0
    """Decides between several policies that select the same ClusterQueue: the one with the highest precedence
    applies; if precedences are equal, the one whose name sorts first. Default 0."""
    base: Annotated[DnsSubdomain, Field(min_length=1)] | None = None
    """Policy whose sections apply where this one has none of its own, with those that it inherits itself.
    Sections are taken as a whole; quotaWindows and reservations are not inherited. Absent: none."""
    aliases: Literal["None", "Articles"] = "None"
    """Articles: annotations and labels without a prefix, such as job-name, count like their berth.dev/
    counterparts. Default None, because the Job controller itself sets the label job-name on every pod."""
    ordering: Ordering | None = None
    """Order in which Workloads of equal priority are tried. Absent: Kueue's order."""
    backfill: Backfill | None = None
    """Planned start times, and which Workloads may use the capacity until then. Absent: no backfill."""
    preemption: PreemptionSection | None = None
    """Cost limits of an eviction, and which Workloads are protected from it. Absent:
    only Kueue's rules apply."""
    placement: PlacementSection | None = None
    """Where the pods of a gang are placed. Absent: only Kueue's topology-aware scheduling applies."""
    quota_windows: QuotaWindows | None = None
    """Periods in which a ClusterQueue has another nominal quota."""
    reservations: Reservations | None = None
    """Capacity reserved for a LocalQueue from a start time to an end time."""
    estimates: Estimates | None = None
    """Run-time estimates for Workloads that declare none. Absent: only declared run times are used."""


class QuotaInForce(Model):
    """A quota that an open window applies instead of the one in the ClusterQueue."""

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


EntryState = Literal["Upcoming", "Lead", "Active", "Over", "Refused"]
Sentence = Annotated[str, Field(max_length=1024)]


class QuotaWindowStatus(Model):
    """Observed state of a quota window."""

    name: DnsLabel
    """Name of the window."""
    state: EntryState
    """Upcoming: not open yet. Lead: it lowers the quota soon, and no Workload starts that would exceed it
    then. Active: open. Over: it will not open again. Refused: invalid and without effect."""
    cluster_queue: str
    """ClusterQueue."""
    flavor: str
    """Flavor."""
    resource: str
    """Resource."""
    nominal_quota: Quantity
    """Quota while it is open."""
    opens_at: Timestamp | None = None
    """When it opens next, while it is closed."""
    closes_at: Timestamp | None = None
    """When it closes, while it is open."""
    message: Sentence | None = None
    """Why the window is refused, or which later window of the list is also open and takes precedence."""


class ReservationStatus(Model):
    """Observed state of a reservation: what it reserves, and which Workloads use it."""

    name: DnsLabel
    """Name of the reservation."""
    state: EntryState
    """Upcoming, Active, Over, or Refused (invalid, reserves nothing). Lead is used for quota windows only."""
    namespace: str
    """Namespace of the LocalQueue."""
    local_queue: str
    """LocalQueue that the capacity is reserved for."""
    cluster_queue: str | None = None
    """ClusterQueue whose quota is reserved."""
    start: Timestamp
    """When the reservation starts."""
    end: Timestamp
    """When the reservation ends."""
    resources: Annotated[list[QuotaAmount], Field(max_length=64), ATOMIC] | None = None
    """Quota that is reserved; with a domain, as much as the nodes of the domain can use."""
    domain: Annotated[str, Field(max_length=512)] | None = None
    """Topology domain that is reserved."""
    nodes: Count | None = None
    """Ready nodes of the domain."""
    user_count: Count
    """Number of Workloads that hold quota and have joined the reservation."""
    users: Annotated[list[str], Field(max_length=16), ATOMIC] | None = None
    """The first 16 of these Workloads, sorted, as namespace/name."""
    message: Sentence | None = None
    """Why the reservation is refused."""


class AdmissionPolicyStatus(Model):
    """Observed state of an AdmissionPolicy."""

    conditions: Conditions | None = None
    """Accepted: whether the policy is in force, and if not, why."""
    cluster_queue_count: Count | None = None
    """Number of ClusterQueues that the policy governs now."""
    cluster_queues: Annotated[list[str], Field(max_length=256), SET] | None = None
    """Names of these ClusterQueues, sorted; at most 256."""
    quotas_in_force: Annotated[list[QuotaInForce], Field(max_length=64), ATOMIC] | None = None
    """Quotas that open windows apply instead of those in the ClusterQueues."""
    quota_windows: Annotated[list[QuotaWindowStatus], Field(max_length=64), ATOMIC] | None = None
    """State of every quota window, in the order of the spec."""
    reservations: Annotated[list[ReservationStatus], Field(max_length=64), ATOMIC] | None = None
    """State of every reservation, in the order of the spec."""


class AdmissionPolicy(Model):
    """Enables features of Berth for ClusterQueues."""

    api_version: Literal["berth.dev/v1alpha1"] = "berth.dev/v1alpha1"
    kind: Literal["AdmissionPolicy"] = "AdmissionPolicy"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: Annotated[AdmissionPolicySpec, EMPTY] = Field(default_factory=AdmissionPolicySpec)
    """Which ClusterQueues the policy governs, and how."""
    status: AdmissionPolicyStatus | None = None
    """Observed state."""
