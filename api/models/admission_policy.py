"""AdmissionPolicy: which of Berth's features go beyond Kueue's decisions, and for which ClusterQueues.

Without a policy decisions are Kueue's. Each feature is its own section of the spec and is off until it stands
there, so a cluster takes them up one by one.
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


EntryState = Literal["Upcoming", "Lead", "Active", "Over", "Refused"]
Sentence = Annotated[str, Field(max_length=1024)]


class QuotaWindowStatus(Model):
    """Where a quota window stands."""

    name: DnsLabel
    """Name of the window."""
    state: EntryState
    """Upcoming; Lead: it lowers the quota soon, and nothing starts that would be in the way; Active: open;
    Over: it opens no more; Refused: it has no effect."""
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
    """Why it is refused, or which later one of the list is open too and counts."""


class ReservationStatus(Model):
    """Where a reservation stands, what it keeps, and who uses it."""

    name: DnsLabel
    """Name of the reservation."""
    state: EntryState
    """Upcoming, Active, Over, or Refused: it keeps nothing. Lead is of windows alone."""
    namespace: str
    """Namespace of the LocalQueue."""
    local_queue: str
    """LocalQueue that it is kept for."""
    cluster_queue: str | None = None
    """ClusterQueue whose quota is kept."""
    start: Timestamp
    """From when on."""
    end: Timestamp
    """Until when."""
    resources: Annotated[list[QuotaAmount], Field(max_length=64), ATOMIC] | None = None
    """Quota that it keeps; with a domain, as much as its nodes have use for."""
    domain: Annotated[str, Field(max_length=512)] | None = None
    """Topology domain that it keeps."""
    nodes: Count | None = None
    """Ready nodes of the domain."""
    user_count: Count
    """Workloads that hold quota and have joined it."""
    users: Annotated[list[str], Field(max_length=16), ATOMIC] | None = None
    """The first 16 of them, as namespace/name in order."""
    message: Sentence | None = None
    """Why it is refused."""


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
    quota_windows: Annotated[list[QuotaWindowStatus], Field(max_length=64), ATOMIC] | None = None
    """All quota windows of the spec, in its order."""
    reservations: Annotated[list[ReservationStatus], Field(max_length=64), ATOMIC] | None = None
    """All reservations of the spec, in its order."""


class AdmissionPolicy(Model):
    """Switches features of Berth on for ClusterQueues."""

    api_version: Literal["berth.dev/v1alpha1"] = "berth.dev/v1alpha1"
    kind: Literal["AdmissionPolicy"] = "AdmissionPolicy"
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)
    spec: Annotated[AdmissionPolicySpec, EMPTY] = Field(default_factory=AdmissionPolicySpec)
    """What is governed, and how."""
    status: AdmissionPolicyStatus | None = None
    """Observed state."""
