"""AdmissionPolicy as frozen values: which features apply to which ClusterQueues, with which parameters.

A section that is None is disabled, and the decisions are then Kueue's. The values state what is to be
decided; the module that implements each feature decides how. `api.policy_objects` creates them from the
objects; `api.models.policy_*` and docs/policy.md document each field for its users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api.keys import NETWORK_BANDWIDTH
from api.objects.common import WireSelector
from api.queueing import ClusterQueue
from api.selectors import matches_selector


class Aliases(StrEnum):
    """Whether annotations and labels without a prefix count like their berth.dev/ counterparts."""

    NONE = "None"
    ARTICLES = "Articles"


class OrderingMode(StrEnum):
    """The order of Workloads with equal priority."""

    PRIORITY = "Priority"
    SHORTEST_PREDICTED = "ShortestPredicted"
    EARLIEST_EXPECTED_END = "EarliestExpectedEnd"
    LEAST_ATTAINED = "LeastAttained"


class BackfillMode(StrEnum):
    """Which Workloads are promised a start time, and which may run before it."""

    NONE = "None"
    EASY = "EASY"
    CONSERVATIVE = "Conservative"
    OPPORTUNISTIC = "Opportunistic"


class OnOverrun(StrEnum):
    """What happens to backfilled work that is still running at the promised start time."""

    EVICT = "Evict"
    EXTEND = "Extend"


class StrategyChoice(StrEnum):
    """How pods are spread.

    By workload type: training consolidated, inference distributed, all others balanced. Kueue: by Kueue's
    rules, except for Jobs that name a strategy.
    """

    BY_WORKLOAD_TYPE = "ByWorkloadType"
    CONSOLIDATED = "Consolidated"
    DISTRIBUTED = "Distributed"
    BALANCED = "Balanced"
    PACKED = "Packed"
    KUEUE = "Kueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """spec.ordering. `age_seconds` None: no aging. `level_ends` are in device-seconds received, ascending.

    `unknown_seconds` None: a run whose time is not known counts as long as the longest one.
    """

    mode: OrderingMode = OrderingMode.PRIORITY
    age_seconds: int | None = 86400
    unknown_seconds: int | None = None
    level_ends: tuple[float, ...] = (3600.0, 36000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """spec.backfill.

    `reservation_depth`: Workloads of a ClusterQueue that are promised a start time at once.
    """

    mode: BackfillMode = BackfillMode.EASY
    reservation_depth: int = 1
    window_seconds: int = 604800
    resolution_seconds: int = 60
    ending_seconds: int = 5
    max_tested: int = 500
    on_overrun: OnOverrun = OnOverrun.EVICT
    eta_depth: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """spec.estimates. `default_seconds` None: no estimate of last resort."""

    default_seconds: int | None = None
    quantile: float = 0.9
    min_observations: int = 3
    raise_percent: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimRules:
    """spec.preemption.rules. None: the rule is off."""

    protected_priority: int | None = None
    """Training of at least this priority is never a victim."""
    prefers_inference: bool = False
    """Inference of lower priority is always a candidate."""
    protected_remaining_seconds: int | None = None
    """Training with less remaining run time than this is never a victim."""
    protects_uncheckpointed: bool = False
    """Training without checkpoints is never a victim."""
    checkpoint_max_age_seconds: int | None = None
    """Training is a candidate only while its last checkpoint is younger than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionRules:
    """spec.preemption. `grace_seconds` 0: SIGTERM is the only request to save."""

    rules: VictimRules = field(default_factory=VictimRules)
    max_counted_loss_seconds: int = 3600
    max_declared_seconds: int = 600
    default_save_seconds: int = 30
    default_restart_seconds: int = 30
    grace_seconds: int = 120
    minimum_runtime_seconds: int = 600
    hold_seconds: int = 300
    saved_first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRule:
    """Limits for gangs of up to `max_nodes` nodes. `leaves` None: as few leaves as can hold the gang."""

    max_nodes: int
    leaves: int | None = None
    is_adjacent: bool = True
    is_complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRules:
    """spec.placement.domainRules. `size_rules` by ascending `max_nodes`; empty means the default rules."""

    leaf_level: str | None = None
    adjacency_label: str | None = None
    max_nodes_per_leaf: int = 4
    max_gpus_per_leaf: int = 32
    size_rules: tuple[SizeRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringWeights:
    """spec.placement.scoringWeights, normalized so that they add up to 1."""

    resource_availability: float = 0.4
    topology_alignment: float = 0.3
    domain_utilization: float = 0.2
    historical_performance: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorWeights:
    """spec.placement.flavors.weights, normalized so that they add up to 1."""

    expected_wait: float = 0.1
    cost: float = 0.25
    expected_loss: float = 0.55
    generation: float = 0.05
    fragmentation: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorPromotion:
    """spec.placement.flavors.promote. `min_gain` is a difference of scores, which range from 0 to 1."""

    min_gain: float = 0.05
    max_moves_per_hour: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorRules:
    """spec.placement.flavors. `spot_for_all`: work that does not bear interruptions may use spot flavors.

    `spot_mean_seconds` is the mean time until a spot node is taken away. `promote` None: none is moved.
    """

    weights: FlavorWeights = field(default_factory=FlavorWeights)
    spot_for_all: bool = False
    spot_mean_seconds: int = 86400
    promote: FlavorPromotion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """spec.placement.consolidation. `max_lost_seconds` applies to each device of the gang."""

    max_moves_per_hour: int = 6
    min_waiting_seconds: int = 600
    max_lost_seconds: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """spec.placement.recovery: from which failing nodes pods are removed, and when.

    `heartbeat_seconds`: how long a node's Lease may stay without renewal, `unschedulable_seconds`: how long a
    pod may stay without a node; 0 means for ever.
    """

    not_ready_seconds: int = 0
    heartbeat_seconds: int = 20
    leave_tainted_nodes: bool = False
    leave_cordoned_nodes: bool = False
    unschedulable_seconds: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """spec.placement. `domain_rules` None: no rules by size. `flavors` None: flavors in Kueue's order.

    `bandwidth_label`: node label with the network bandwidth.
    """

    strategy: StrategyChoice = StrategyChoice.BY_WORKLOAD_TYPE
    domain_rules: DomainRules | None = None
    weights: ScoringWeights = field(default_factory=ScoringWeights)
    avoids_fragmentation: bool = False
    consolidation: Consolidation | None = None
    recovery: Recovery | None = None
    flavors: FlavorRules | None = None
    bandwidth_label: str = NETWORK_BANDWIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a window opens repeatedly: a cron line with five fields, in a time zone."""

    cron: str
    time_zone: str
    duration_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWindow:
    """One entry of spec.quotaWindows: open from `start_at` to `end_at`, or by `schedule`."""

    name: str
    cluster_queue: str
    flavor: str
    resource: str
    nominal: int
    start_at: float | None = None
    end_at: float | None = None
    schedule: Schedule | None = None
    reclaim_lead_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReservation:
    """One entry of spec.reservations: amounts by flavor and resource, or a `domain`, widest level first."""

    name: str
    local_queue: tuple[str, str]
    start_at: float
    end_at: float
    amounts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    domain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """One policy. If `queue_names` is empty and `selector` is None, it governs every ClusterQueue."""

    name: str
    uid: str = ""
    precedence: int = 0
    queue_names: frozenset[str] = frozenset()
    selector: WireSelector | None = None
    # The policy that it inherits sections from.
    base: str | None = None
    aliases: Aliases = Aliases.NONE
    ordering: Ordering | None = None
    backfill: Backfill | None = None
    preemption: PreemptionRules | None = None
    placement: PlacementRules | None = None
    quota_windows: tuple[QuotaWindow, ...] = ()
    reservations: tuple[CapacityReservation, ...] = ()
    estimates: Estimates | None = None

    @property
    def backfill_rules(self) -> Backfill | None:
        """The backfill section if backfill is enabled; None if the section is absent or its mode is None."""
        # A user may set mode None to disable backfill and keep the other values of the section, so every
        # reader must use this property.
        return self.backfill if self.backfill is None or self.backfill.mode is not BackfillMode.NONE else None

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections that are enabled, by their names in the API."""
        enabled = {
            "ordering": self.ordering,
            "backfill": self.backfill_rules,
            "estimates": self.estimates,
            "preemption": self.preemption,
            "placement": self.placement,
            "quotaWindows": self.quota_windows,
            "reservations": self.reservations,
        }
        return tuple(name for name, section in enabled.items() if section)

    @property
    def reads_aliases(self) -> bool:
        """Whether annotations are also read under their names without the berth.dev/ prefix."""
        return self.aliases is Aliases.ARTICLES

    def is_for(self, queue: ClusterQueue) -> bool:
        """Return whether the policy selects this ClusterQueue; another policy may still take precedence."""
        if not self.queue_names and self.selector is None:
            return True
        # By name or by label: either is sufficient, so that a queue can be listed in addition to those
        # that a selector matches.
        return queue.name in self.queue_names or matches_selector(self.selector, queue.labels)


KUEUE = AdmissionPolicy(name="")
"""The policy of a ClusterQueue that no policy selects: every section is off, and decisions are Kueue's."""


def choose_policy(
    policies: Iterable[AdmissionPolicy], queue: ClusterQueue, *, default: AdmissionPolicy = KUEUE
) -> AdmissionPolicy:
    """Return the policy that governs the queue: the one with the highest precedence, then the first by name.

    Returns `default` if no policy selects the queue. Bound policies are not merged: a section that the
    chosen one has neither itself nor from its base is off.
    """
    bound = (policy for policy in policies if policy.is_for(queue))
    # Precedence is negated, so that the minimum has the highest precedence and then the lowest name.
    return min(bound, key=lambda policy: (-policy.precedence, policy.name), default=default)
