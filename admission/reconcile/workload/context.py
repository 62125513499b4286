"""What a Workload's reconciliation must be told of the cluster and of the configuration, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from admission.decisions.api_writes import Action
from admission.decisions.decision import Evict
from admission.placement.topology.node_health import NodeFailureSettings, NodeFault
from admission.reconcile.deadlines import PodsReadySettings, RetentionSettings
from api import keys
from api.policy import KUEUE, AdmissionPolicy, Recovery
from api.queueing import StopPolicy
from api.reasons import PendingReason
from queues.profile.planned_start import PlannedStart


class Owner(StrEnum):
    """What stands behind a Workload: nothing, a Job, an object of another kind, or one that is gone.

    JOB also stands for pods that are queued themselves. MISSING only once all Jobs are known: it ends the
    Workload.
    """

    NONE = "None"
    JOB = "Job"
    OTHER = "Other"
    MISSING = "Missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    """What the configuration says. `pods_ready` None: waitForPodsReady is off."""

    pods_ready: PodsReadySettings | None = field(default_factory=PodsReadySettings)
    node_failures: NodeFailureSettings = field(default_factory=NodeFailureSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod of a placed Workload that has not ended and was not told to.

    `gates` are all its scheduling gates. `node` is where it is bound, empty where it is not yet. `promised`
    are the node labels in a patch on its way: its place is taken, though the pod does not show it yet.
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

    @property
    def is_gated(self) -> bool:
        """Whether it stands at the topology gate."""
        return keys.TOPOLOGY_GATE in self.gates

    @property
    def is_untold(self) -> bool:
        """Whether it stands at the gate and nobody is about to tell it its domain."""
        return self.is_gated and self.promised is None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPod:
    """A pod of a Workload that is to save: which of the two annotations of a request it carries."""

    namespace: str
    name: str
    uid: str
    asked: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingContext:
    """What must be known where an eviction waits for a checkpoint.

    `is_wanted`: whoever is to get the quota still waits for it. `saved_at` is when the last checkpoint was
    complete, as far as anybody has told. `hold_seconds`: so long freed quota is remembered to be for the
    preemptor. `heir` is the eviction for somebody else who waits for the same quota, None where nobody does.
    `is_undecided`: the preemptor is gone, and whether anybody else needs the quota is not known yet.
    """

    is_wanted: bool
    heir: Evict | None = None
    is_undecided: bool = False
    saved_at: float | None = None
    pods: tuple[AskedPod, ...] = ()
    hold_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleContext:
    """What must be known of the cluster about one Workload.

    `queue_problem` is why it cannot even be tried, None where its turn decides. `required_checks` are the
    admission checks it must pass as it stands. A stop policy of None: that queue does not exist. `pods` are
    those of its pods that were placed by topology, the first seen first. `faults` are those of the nodes that
    it was placed on, None while nodes are not known. `recovery` is what a policy says of leaving
    them. `misplaced` are those pods that are bound outside of their domains. `planned` is what it is
    promised, `expected_at` when it is expected to start, None where nobody can say. `saving` is there where
    the object carries an eviction that waits for a checkpoint. `policy` governs the ClusterQueue whose quota
    it holds. `turns_at` is when the reservation that it names begins or ends.
    """

    owner: Owner = Owner.NONE
    queue_problem: tuple[PendingReason, str] | None = None
    required_checks: tuple[str, ...] = ()
    local_queue_stop: StopPolicy | None = StopPolicy.NONE
    cluster_queue_stop: StopPolicy | None = StopPolicy.NONE
    settings: LifecycleSettings = field(default_factory=LifecycleSettings)
    pods: tuple[PlacedPod, ...] = ()
    faults: tuple[NodeFault, ...] | None = None
    recovery: Recovery | None = None
    misplaced: tuple[PlacedPod, ...] = ()
    planned: PlannedStart | None = None
    expected_at: float | None = None
    saving: SavingContext | None = None
    policy: AdmissionPolicy = KUEUE
    turns_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleResult:
    """What is to be done, and until when to look again (Unix seconds; None: only when something changes)."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
