"""The section of an AdmissionPolicy that says where the pods of a gang go."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import Count, LabelKey, Model, PositiveCount
from api.models.markers import ATOMIC, object_rules, rule
from api.models.policy_time import Fraction


class SizeRule(Model):
    """The domain of gangs of up to so many nodes."""

    max_nodes: PositiveCount
    """The rule is for gangs of at most so many nodes; the rule with the smallest maxNodes that holds
    counts."""
    leaves: PositiveCount | None = None
    """On how many leaves at most. Absent: as few as hold the gang."""
    adjacent: bool = True
    """Whether the leaves must be neighbours. Default true."""
    complete: bool = False
    """Whether the leaves must be free of other work, and wholly the gang's. Default false."""


class DomainRules(Model):
    """Which domain a gang gets by its size: 2 nodes one leaf, 4 a complete one, 8 two neighbours, 16 four."""

    leaf_level: LabelKey | None = None
    """Node label of the leaves. Absent: the level of the Topology right above the nodes."""
    adjacency_label: LabelKey | None = None
    """Node label whose whole number is the leaf's place in a row; leaves are neighbours when their places
    follow one another. Absent: when they share the domain above."""
    max_nodes_per_leaf: PositiveCount = 4
    """Nodes of one leaf that one gang may take. Default 4."""
    max_gpus_per_leaf: PositiveCount = Field(default=32, alias="maxGPUsPerLeaf")
    """GPUs of one leaf that one gang may take. Default 32: four nodes of eight."""
    size_rules: Annotated[list[SizeRule], Field(max_length=64), ATOMIC] | None = None
    """Rules by size. Absent: as few neighbouring leaves as hold the gang, complete ones where it fills
    them."""


class ScoringWeights(Model):
    """How much each sub-score, from 0 to 1, counts in the score of a domain. They are divided by their
    sum."""

    model_config = object_rules(
        rule(
            "self.resourceAvailability + self.topologyAlignment + self.domainUtilization"
            " + self.historicalPerformance > 0.0",
            "at least one weight must be more than 0",
        )
    )

    resource_availability: Fraction = 0.4
    """Free devices of the domain that suit the gang. Default 0.4."""
    topology_alignment: Fraction = 0.3
    """How near each other the pods are. Default 0.3."""
    domain_utilization: Fraction = 0.2
    """How full the domain is afterwards: full ones first keep others whole. Default 0.2."""
    historical_performance: Fraction = 0.1
    """How well earlier work went there. Default 0.1."""


class Consolidation(Model):
    """Running work of lower priority is moved so that a gang gets a domain, where all of it has another
    place."""

    max_moves_per_hour: Count = 6
    """Workloads that are moved within an hour for gangs of the ClusterQueues of this policy. Default 6."""
    min_waiting_seconds: Count = 600
    """Only for a gang that has waited so long. Default 600."""
    max_lost_seconds: Count = 600
    """What those who are moved may lose for one gang: seconds of work and restart, for each device that it
    gets. Default 600: what it has itself lost by waiting."""


class Recovery(Model):
    """Pods of placed gangs are taken off a failing node: their replacement need not wait for Kubernetes."""

    not_ready_seconds: Count = 0
    """How long a node may be not ready first. Default 0: Kubernetes has waited 40 s before it says so. It
    takes the pods off itself after their tolerationSeconds, 300 as a rule."""
    leave_tainted_nodes: bool = False
    """Whether pods leave a node that got a NoSchedule or NoExecute taint which they do not tolerate. Default
    false: NoSchedule lets them run, and NoExecute takes them off by itself."""
    leave_cordoned_nodes: bool = False
    """Whether pods leave a cordoned node. Default false: they run on until somebody drains it."""


class PlacementSection(Model):
    """Placement beyond Kueue's, for flavors with a topology."""

    strategy: Literal["ByWorkloadType", "Consolidated", "Distributed", "Balanced"] = "ByWorkloadType"
    """Consolidated: pods as near each other as can be. Distributed: spread over nodes and leaves, against
    failures. Balanced: the domain with the best score. ByWorkloadType, the default: training consolidated,
    inference distributed, all else balanced. A Job's own berth.dev/placement-strategy counts before it."""
    domain_rules: DomainRules | None = None
    """Which domain a gang gets by its size."""
    scoring_weights: ScoringWeights = Field(default_factory=ScoringWeights)
    """Weights of the score of a domain."""
    fragmentation: Literal["Ignore", "Avoid"] = "Ignore"
    """Avoid: small work goes where others are already, so that whole leaves stay free for gangs."""
    consolidation: Consolidation | None = None
    """Moves small running work together."""
    recovery: Recovery | None = None
    """Gangs leave failing nodes at once."""
    bandwidth_label: LabelKey = "berth.dev/network-bandwidth"
    """Node label that tells its network bandwidth, such as 400Gb; ib.coreweave.cloud/speed, for instance. A
    node without it takes nobody who asks for bandwidth."""
