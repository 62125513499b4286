"""ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology and AdmissionCheck as frozen values.

Amounts are canonical integers (`api.parsing.quantities.amount`). A limit of None means no limit. Weights are
in thousandths. `api.specs` creates the values from the objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api.objects.common import WireSelector, WireTaint, WireToleration
from api.past_usage import PastUsage


class QueueingStrategy(StrEnum):
    """What happens to the Workloads behind a head that does not fit."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class StopPolicy(StrEnum):
    """Hold: no new Workload is admitted. HoldAndDrain: admitted Workloads are evicted too."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class FungibilityPolicy(StrEnum):
    """Whether the search for a flavor stops at one that needs borrowing (or preemption)."""

    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class FungibilityPreference(StrEnum):
    """Which of several possible flavors is chosen if the search did not stop."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


class PreemptionPolicy(StrEnum):
    """Which Workloads may be preempted."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """Quota of one resource in one flavor."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuotas:
    """Quotas of one flavor, by resource."""

    name: str
    resources: Mapping[str, ResourceQuota]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """Resources whose flavor is chosen together, and the flavors in order of preference."""

    covered_resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorFungibility:
    """When the search for a flavor continues with the next one."""

    when_can_borrow: FungibilityPolicy = FungibilityPolicy.MAY_STOP_SEARCH
    when_can_preempt: FungibilityPolicy = FungibilityPolicy.TRY_NEXT_FLAVOR
    preference: FungibilityPreference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """spec.preemption.

    `borrow_max_priority`: highest priority of a victim while borrowing; None means no limit.
    """

    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_max_priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRule:
    """An admission check of a ClusterQueue; without flavors, it applies to all of them."""

    name: str
    on_flavors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueue:
    """A ClusterQueue's spec. `namespace_selector` None selects no namespace, an empty one selects all.

    Policies select ClusterQueues by `labels`.
    """

    name: str
    is_terminating: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    cohort: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    namespace_selector: WireSelector | None = None
    fungibility: FlavorFungibility = field(default_factory=FlavorFungibility)
    preemption: Preemption = field(default_factory=Preemption)
    checks: tuple[CheckRule, ...] = ()
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight_milli: int = 1000
    is_admission_fair_sharing: bool = False
    is_concurrent_admission: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """A Cohort's spec; `parent` None makes it a root."""

    name: str
    parent: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_weight_milli: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    """A LocalQueue's spec, and the past usage from its status.

    Two are equal if their specs are equal, because Berth writes the status itself.
    """

    namespace: str
    name: str
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight_milli: int = 1000
    # Not compared, so that Berth's own write of the status does not count as a change of the queue.
    past_usage: PastUsage | None = field(default=None, compare=False)

    @property
    def is_stopped(self) -> bool:
        """Whether its Workloads are kept out of the ClusterQueue."""
        return self.stop_policy is not StopPolicy.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFlavor:
    """A ResourceFlavor's spec. `cost_per_device_hour` is the price of one device; None if it is not given."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[WireTaint, ...] = ()
    tolerations: tuple[WireToleration, ...] = ()
    topology_name: str | None = None
    cost_per_device_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A Topology: the node labels of its levels, the widest first."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckParameters:
    """The object with the settings of an AdmissionCheck."""

    group: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionCheck:
    """An AdmissionCheck; `is_active` is its Active condition."""

    name: str
    controller_name: str
    is_active: bool
    parameters: CheckParameters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace and its labels, which ClusterQueues select by."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
