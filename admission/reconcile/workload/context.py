"""The state of the cluster and the configuration on which a Workload's reconciliation depends; its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from admission.decisions.api_writes import Action, ObjectVersion
from admission.decisions.decision import Evict
from admission.placement.topology.address_book import AddressSlot
from admission.placement.topology.node_health import NodeFailureSettings, NodeFault
from admission.reconcile.deadlines import PodsReadySettings, RetentionSettings
from admission.reconcile.provisioning.context import ProvisioningContext
from api import keys
from api.policy import KUEUE, AdmissionPolicy, Recovery
from api.queueing import StopPolicy
from api.reason_words import ReasonWords
from api.reasons import PendingReason
from api.workload import Workload, WorkloadKey
from queues.profile.planned_start import PlannedStart


class Owner(StrEnum):
    """The owner of a Workload: none, a Job, an object of another kind, or one that is gone.

    JOB includes pods that are queued themselves. MISSING is used only once all Jobs are known, because
    it finishes the Workload.
    """

    NONE = "None"
    JOB = "Job"
    OTHER = "Other"
    MISSING = "Missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    """The configuration. `pods_ready` None: waitForPodsReady is off."""

    pods_ready: PodsReadySettings | None = field(default_factory=PodsReadySettings)
    node_failures: NodeFailureSettings = field(default_factory=NodeFailureSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    words: ReasonWords = field(default_factory=ReasonWords)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unschedulable:
    """That kube-scheduler has found no node for a pod since then (Unix seconds), and its own words."""

    since: float
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod that has not ended and is not terminating, of a placed Workload or without a node.

    `gates` are all its scheduling gates. `node` is the node that it is bound to, "" if it is unbound.
    `promised` are the node labels in an ungating patch in flight: the pod counts in that domain, although it
    does not show the labels yet. `address` is its static address, also one in such a patch. `unschedulable`
    None: kube-scheduler has not refused it. `is_by_topology`: it has a topology request, so that its host is
    chosen for it.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    gates: tuple[str, ...]
    node_selector: Mapping[str, str]
    node: str = ""
    promised: Mapping[str, str] | None = None
    address: str = ""
    unschedulable: Unschedulable | None = None
    is_by_topology: bool = True

    @property
    def version(self) -> ObjectVersion:
        """Return the version of the pod as last seen."""
        return ObjectVersion.of("Pod", self)

    @property
    def is_gated(self) -> bool:
        """Return whether the pod has the topology gate."""
        return keys.TOPOLOGY_GATE in self.gates

    @property
    def is_elastic(self) -> bool:
        """Return whether the pod waits until a slice of its elastic Job counts it."""
        return keys.ELASTIC_GATE in self.gates

    @property
    def needs_ungating(self) -> bool:
        """Return whether the pod is gated and no ungating patch is in flight."""
        return self.is_gated and self.promised is None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingPod:
    """A pod of a Workload that should save, with the annotations of the request that it carries."""

    namespace: str
    name: str
    uid: str
    asked: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingContext:
    """What must be known of an eviction that waits for a checkpoint.

    `is_wanted`: the preemptor still waits for the quota. `preemptor`: its name, whatever its namespace; None
    for a drain, and once it is gone. `saved_at`: when the last checkpoint was complete, as far as reported.
    `hold_seconds`: how long freed quota is held for the preemptor. `successor`: the eviction for another
    Workload that waits for the same quota; None if there is none. `is_undecided`: the preemptor is gone, and
    it is not known yet whether another Workload needs the quota.
    """

    is_wanted: bool
    preemptor: WorkloadKey | None = None
    successor: Evict | None = None
    is_undecided: bool = False
    saved_at: float | None = None
    pods: tuple[SavingPod, ...] = ()
    hold_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleContext:
    """What must be known of the cluster for one Workload.

    `queue_problem`: why it cannot be considered for admission; None if it can. `required_checks`: the
    admission checks that it has to pass now. `has_unread_requests`: the problem is that its requests, of
    devices say, cannot be counted. A stop policy of None means that the queue does not exist.
    `pods`: those of its pods that were placed by topology, the first seen first. `leaving`: how many pods of
    each pod set of an elastic Job were told to end and have not. `faults`: those of the nodes
    that it was placed on; None while nodes are not known. `recovery`: the policy for leaving such nodes, None
    while so many have failed that no pods are moved. `replaces_several`: a policy replaces several at once.
    `misplaced`: pods that are bound outside of their domains. `planned`: its promised start. `expected_at`:
    when it is expected to start; None if that is unknown. `saving` is set if the object carries an eviction
    request. `policy` governs the ClusterQueue whose quota it holds. `turns_at`: when the advance reservation
    that it names begins or ends. `class_value`: the value of the WorkloadPriorityClass that it names; None
    if it names none, or none that is known and that its namespace may use. `addresses`: the static addresses
    of its pods, by pod set. `successor`: the slice that holds its quota in its place. `provisioning`: the
    checks that its cluster's autoscaler answers; None: it has none.
    """

    owner: Owner = Owner.NONE
    queue_problem: tuple[PendingReason, str] | None = None
    has_unread_requests: bool = False
    required_checks: tuple[str, ...] = ()
    local_queue_stop: StopPolicy | None = StopPolicy.NONE
    cluster_queue_stop: StopPolicy | None = StopPolicy.NONE
    settings: LifecycleSettings = field(default_factory=LifecycleSettings)
    pods: tuple[PlacedPod, ...] = ()
    leaving: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[NodeFault, ...] | None = None
    recovery: Recovery | None = None
    replaces_several: bool = False
    misplaced: tuple[PlacedPod, ...] = ()
    planned: PlannedStart | None = None
    expected_at: float | None = None
    saving: SavingContext | None = None
    policy: AdmissionPolicy = KUEUE
    turns_at: float | None = None
    class_value: int | None = None
    addresses: Mapping[str, tuple[AddressSlot, ...]] = field(default_factory=dict)
    provisioning: ProvisioningContext | None = None
    successor: Workload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleResult:
    """What to do now, and when to look again (Unix seconds; None: only after a change)."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
