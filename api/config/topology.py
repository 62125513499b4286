"""The topology scheduler's own configuration: `SchedulerConfig` or `TopologySchedulerConfig`.

These are documents of topology.scheduler/v1alpha1, in the same file as the two others. They become the policy
of every ClusterQueue that no AdmissionPolicy selects: its domain rules, its weights, and the annotations
without a berth.dev/ prefix.
"""

from typing import Annotated

from pydantic import Field

from api.config.fields import Section
from api.policy import AdmissionPolicy, Aliases, DomainRules, PlacementRules, ScoringWeights

VERSION = "topology.scheduler/v1alpha1"
KINDS = ("SchedulerConfig", "TopologySchedulerConfig")
NAME = "topology-scheduler-config"

Weight = Annotated[float, Field(ge=0, le=1)]
Limit = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Weights(Section):
    """Weights of the four sub-scores of a domain; they are normalized by their sum."""

    resource_availability: Weight = 0.4
    """Free devices of the domain. Default 0.4."""
    topology_alignment: Weight = 0.3
    """How close to each other the pods are placed. Default 0.3."""
    domain_utilization: Weight = 0.2
    """How full the domain is afterwards. Default 0.2."""
    historical_performance: Weight = 0.1
    """How well earlier work ran in the domain. Default 0.1."""


class Constraints(Section):
    """Limits on what one gang may use of one leaf."""

    max_nodes_per_leaf: Limit = 4
    """Maximum number of nodes. Default 4."""
    max_gpus_per_leaf: Annotated[Limit, Field(alias="maxGPUsPerLeaf")] = 32
    """Maximum number of GPUs. Default 32."""


class SchedulerSpec(Section):
    """Contents of the document."""

    scoring_weights: Weights = Field(default_factory=Weights)
    """Weights of the sub-scores of a domain."""
    topology_constraints: Constraints = Field(default_factory=Constraints)
    """Limits on what one gang may use of one leaf."""


class SchedulerConfig(Section):
    """The document."""

    spec: SchedulerSpec = Field(default_factory=SchedulerSpec)
    """Contents of the document."""

    def to_policy(self) -> AdmissionPolicy:
        """Return the policy for ClusterQueues without one. If all weights are 0, the defaults are used."""
        given = self.spec.scoring_weights.model_dump(include=set(Weights.model_fields))
        total = sum(given.values())
        weights = ScoringWeights(**{name: value / total for name, value in given.items()}) if total else None
        limits = self.spec.topology_constraints
        return AdmissionPolicy(
            name=NAME,
            aliases=Aliases.ARTICLES,
            placement=PlacementRules(
                domain_rules=DomainRules(
                    max_nodes_per_leaf=limits.max_nodes_per_leaf, max_gpus_per_leaf=limits.max_gpus_per_leaf
                ),
                weights=weights or ScoringWeights(),
            ),
        )
