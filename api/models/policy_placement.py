"""The section `placement` of an AdmissionPolicy: where the pods of a gang are placed."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import Count, LabelKey, Model, PositiveCount
from api.models.markers import ATOMIC, object_rules, rule
from api.models.policy_time import Fraction


class SizeRule(Model):
    """Limits on the leaves that a gang up to a given size may use."""

    max_nodes: PositiveCount
    """The rule applies to gangs of at most this many nodes. If several rules apply, the one with the
    smallest maxNodes is used."""
    leaves: PositiveCount | None = None
    """Maximum number of leaves. Absent: as few leaves as can hold the gang."""
    adjacent: bool = True
    """Whether the leaves must be adjacent. Default true."""
    complete: bool = False
    """Whether the gang must have its leaves to itself, with no other work on them. Default false."""


class DomainRules(Model):
    """Which domain a gang gets, by its size: 2 nodes one leaf, 4 a complete leaf, 8 two
    adjacent leaves, 16 four."""

    leaf_level: LabelKey | None = None
    """Node label that identifies a leaf. Absent: the level of the Topology directly above the nodes."""
    adjacency_label: LabelKey | None = None
    """Node label whose integer value is the position of a leaf; leaves are adjacent if their positions are
    consecutive. Absent, or on none of the nodes: leaves are adjacent if they share the domain above."""
    max_nodes_per_leaf: PositiveCount = 4
    """Maximum number of nodes of one leaf that one gang may use. Default 4."""
    max_gpus_per_leaf: PositiveCount = Field(default=32, alias="maxGPUsPerLeaf")
    """Maximum number of GPUs of one leaf that one gang may use. Default 32: four nodes
    with eight GPUs each."""
    size_rules: Annotated[list[SizeRule], Field(max_length=64), ATOMIC] | None = None
    """Rules by size. Absent: as few adjacent leaves as can hold the gang, complete ones if
    the gang fills them."""


class ScoringWeights(Model):
    """Weight of each sub-score, which ranges from 0 to 1, in the score of a domain. The weights are
    normalized by their sum."""

    model_config = object_rules(
        rule(
            "self.resourceAvailability + self.topologyAlignment + self.domainUtilization"
            " + self.historicalPerformance > 0.0",
            "at least one weight must be more than 0",
        )
    )

    resource_availability: Fraction = 0.4
    """Free devices of the domain that match the gang. Default 0.4."""
    topology_alignment: Fraction = 0.3
    """How close to each other the pods are placed. Default 0.3."""
    domain_utilization: Fraction = 0.2
    """How full the domain is afterwards; filling domains first keeps other domains free. Default 0.2."""
    historical_performance: Fraction = 0.1
    """How well earlier work ran in the domain. Default 0.1."""


class FlavorWeights(Model):
    """Weight of each part, which ranges from 0 to 1, in the score of a flavor. The weights are normalized by
    their sum."""

    model_config = object_rules(
        rule(
            "self.expectedWait + self.cost + self.expectedLoss + self.generation + self.fragmentation > 0.0",
            "at least one weight must be more than 0",
        )
    )

    expected_wait: Fraction = 0.1
    """How short later Workloads will wait, by use of the flavor and pending Workloads. Default 0.1."""
    cost: Fraction = 0.25
    """How little the expected run costs, by prices of nodes or of the flavor. A flavor without a price counts
    as the most expensive. Default 0.25."""
    expected_loss: Fraction = 0.55
    """How little work interruptions of spot nodes are expected to repeat. Default 0.55: with less, work that
    saves no checkpoints waits longer on cheap nodes than it would in Kueue's order."""
    generation: Fraction = 0.05
    """How new the GPUs are. Default 0.05."""
    fragmentation: Fraction = 0.05
    """How few GPUs the pods leave over on the nodes that they take. Default 0.05."""


class FlavorPromotion(Model):
    """Moves running Workloads, and those that hold quota and wait for checks, to a better flavor."""

    min_gain: Fraction = 0.05
    """By how much the score of the other flavor must be higher, with what the move costs: work since the last
    checkpoint, and the restart. Default 0.05, so that small changes of prices and use move nothing."""
    max_moves_per_hour: Count = 6
    """Maximum number of Workloads that are moved per hour in the ClusterQueues of this policy. 0 moves none.
    Default 6."""


class FlavorChoice(Model):
    """Chooses the flavor with the best score among those in which a Workload fits without evictions,
    instead of the first in the order of the ClusterQueue. If it fits in none, that order decides."""

    weights: FlavorWeights = Field(default_factory=FlavorWeights)
    """Weights of the parts of the score."""
    spot: Literal["Interruptible", "All"] = "Interruptible"
    """Which work may use flavors that have only spot nodes. Interruptible: all but inference and training
    without checkpoints, by the annotation berth.dev/workload-type. Default Interruptible."""
    spot_mean_seconds: PositiveCount = 86400
    """Mean time until a spot node is taken away. Default 86400, one day."""
    promote: FlavorPromotion | None = None
    """Moves Workloads that hold quota to a better flavor once that has room. Absent: they stay."""


class Consolidation(Model):
    """Moves running work of lower priority to other nodes to free a domain for a gang, if all of the
    moved work fits elsewhere."""

    max_moves_per_hour: Count = 6
    """Maximum number of Workloads that are moved per hour for gangs in the ClusterQueues of
    this policy. Default 6."""
    min_waiting_seconds: Count = 600
    """Minimum time that a gang has waited before work is moved for it. Default 600."""
    max_lost_seconds: Count = 600
    """Maximum loss of the moved Workloads for one gang, in seconds of lost work and restart per device that
    the gang gets. Default 600, which is what the gang itself has lost by waiting for minWaitingSeconds."""


class Recovery(Model):
    """Removes pods of placed gangs from a failing node, so that their replacement need
    not wait for Kubernetes, and places Workloads elsewhere whose pods cannot be bound."""

    not_ready_seconds: Count = 0
    """How long a node must be not ready first. Default 0, because Kubernetes itself waits 40 s before it
    marks a node as not ready. Kubernetes evicts pods after their tolerationSeconds, by default 300."""
    heartbeat_seconds: Count = 20
    """After how many seconds without a renewal of the node's Lease pods leave it. Kubelets renew it every
    10 s, and Kubernetes calls the node ready for 50 s. Less than 15 counts as 15, and with 0 only what
    Kubernetes says counts."""
    leave_tainted_nodes: bool = False
    """Whether pods leave a node that gets a NoSchedule or NoExecute taint which they do not tolerate. Default
    false: NoSchedule does not affect running pods, and Kubernetes evicts pods because of NoExecute."""
    leave_cordoned_nodes: bool = False
    """Whether pods leave a cordoned node. Default false: they keep running until the node is drained."""
    unschedulable_seconds: Count = 60
    """How long kube-scheduler may fail to bind a pod of an admitted Workload. After that the node that the
    pod was assigned is excluded for an hour for this Workload, which is evicted and queued again. Pods that
    were not assigned a single node are only reported. 0: pods may wait without a limit."""


class PlacementSection(Model):
    """Placement rules beyond Kueue's: which flavor, and which of its nodes if it has a topology."""

    strategy: Literal["ByWorkloadType", "Consolidated", "Distributed", "Balanced", "Packed", "Kueue"] = (
        "ByWorkloadType"
    )
    """Consolidated: pods as close together as possible. Distributed: pods spread over nodes and leaves, so
    that a failure affects few of them. Balanced: the domain with the highest score. Packed: the nodes on
    which the least of the free GPUs becomes useless to other work, for small Jobs and shares of GPUs.
    ByWorkloadType, the default: Consolidated for training, Distributed for inference, Balanced otherwise.
    Kueue: as without this section, for policies that set other fields of it, such as flavors alone.
    The annotation berth.dev/placement-strategy of a Job takes precedence."""
    domain_rules: DomainRules | None = None
    """Which domain a gang gets, by its size."""
    scoring_weights: ScoringWeights = Field(default_factory=ScoringWeights)
    """Weights of the sub-scores of a domain."""
    fragmentation: Literal["Ignore", "Avoid"] = "Ignore"
    """Avoid: small work is placed in domains that are already in use, so that whole leaves
    stay free for gangs."""
    flavors: FlavorChoice | None = None
    """Chooses flavors by their score. Absent: in Kueue's order."""
    consolidation: Consolidation | None = None
    """Moves small running work to free a domain for a gang."""
    recovery: Recovery | None = None
    """Removes pods of gangs from failing nodes early, and places Workloads elsewhere whose pods cannot be
    bound."""
    bandwidth_label: LabelKey = "berth.dev/network-bandwidth"
    """Node label with the network bandwidth of the node, such as 400Gb; for instance
    ib.coreweave.cloud/speed. A node without the label does not run Workloads that request bandwidth."""
