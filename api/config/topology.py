"""The topology scheduler's own configuration: `SchedulerConfig` or `TopologySchedulerConfig`.

Documents of topology.scheduler/v1alpha1 from the article's project, which stand beside the two others in the
file. What they say becomes the policy of every ClusterQueue that no AdmissionPolicy is bound to: its domain
rules, its weights, and the project's annotations.
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
    """Weights of the four parts of a domain's score; they are divided by their sum."""

    resource_availability: Weight = 0.4
    """Free devices of the domain. Default 0.4."""
    topology_alignment: Weight = 0.3
    """How near each other the pods are. Default 0.3."""
    domain_utilization: Weight = 0.2
    """How full the domain is afterwards. Default 0.2."""
    historical_performance: Weight = 0.1
    """How earlier work went there. Default 0.1."""


class Constraints(Section):
    """What one gang may take of one leaf."""

    max_nodes_per_leaf: Limit = 4
    """Nodes. Default 4."""
    max_gpus_per_leaf: Annotated[Limit, Field(alias="maxGPUsPerLeaf")] = 32
    """GPUs. Default 32."""


class SchedulerSpec(Section):
    """What the document says."""

    scoring_weights: Weights = Field(default_factory=Weights)
    """Weights of a domain's score."""
    topology_constraints: Constraints = Field(default_factory=Constraints)
    """What one gang may take of one leaf."""


class SchedulerConfig(Section):
    """The document."""

    spec: SchedulerSpec = Field(default_factory=SchedulerSpec)
    """What the document says."""

    def to_policy(self) -> AdmissionPolicy:
        """Return the policy for ClusterQueues without one. Weights that are all 0 count as the defaults."""
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
