"""What a policy and a Workload ask of a placement beyond Kueue's topology requests.

Kueue's own request takes precedence: a pod set that names a topology level itself is placed as Kueue places
it. These options apply only to pod sets without such a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from api.policy import DomainRules, ScoringWeights


class Strategy(StrEnum):
    """How the pods of a gang are placed relative to each other."""

    CONSOLIDATED = "consolidated"
    """As near to each other as possible."""
    DISTRIBUTED = "distributed"
    """Over many nodes and leaves, so that one failure affects few pods."""
    BALANCED = "balanced"
    """In the domain with the best score."""
    PACKED = "packed"
    """Where the least of the free GPUs becomes useless to other pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """How one pod set is to be placed. `rules` is None without rules by size.

    `preferred_domain` is the label value of a leaf or of a domain above it, empty for none. With
    `is_latency_sensitive` distributed pods stay on the nodes of one leaf, one hop from each other. With
    `avoids_fragmentation` a gang that does not fill an unused leaf takes such a leaf last.
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
        """Whether the gang's size decides on which leaves it is placed."""
        return self.rules is not None and self.strategy is not Strategy.DISTRIBUTED
