"""What a policy and a Workload ask of a placement beyond Kueue's topology requests.

Kueue's own request comes first: a pod set that names a level of the topology itself is placed as Kueue places
it. Wishes fill the space that is left open otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from api.policy import DomainRules, ScoringWeights


class Strategy(StrEnum):
    """How the pods of a gang lie to each other."""

    CONSOLIDATED = "consolidated"
    """As near each other as can be."""
    DISTRIBUTED = "distributed"
    """Over many nodes and leaves, so that one failure takes few."""
    BALANCED = "balanced"
    """In the domain with the best score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """How one pod set is to be placed. `rules` None: no rules by size.

    `preferred_domain` is the label value of a leaf or of a domain above it, empty for none. With
    `is_latency_sensitive` distributed pods stay on the nodes of one leaf, one hop from each other.
    `avoids_fragmentation`: leaves that nobody uses are taken last by what does not fill them.
    """

    strategy: Strategy = Strategy.BALANCED
    rules: DomainRules | None = None
    weights: ScoringWeights = field(default_factory=ScoringWeights)
    gpus_per_pod: int = 0
    preferred_domain: str = ""
    is_latency_sensitive: bool = False
    avoids_fragmentation: bool = False

    @property
    def has_size_rules(self) -> bool:
        """Whether the gang's size says on which leaves it goes."""
        return self.rules is not None and self.strategy is not Strategy.DISTRIBUTED
