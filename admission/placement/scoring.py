"""The score of a domain for a gang: how well it would go there, from 0 to 1.

    score = 0.4 availability + 0.3 alignment + 0.2 utilization + 0.1 performance      (weights of the policy)

    availability  free ÷ capacity, in pods of the gang's shape: room for what may come with it, and least
                  contention
    alignment     how deep the narrowest domain around all pods lies: 1 on one node, falling by equal steps
                  with each level above it, 0 where only the whole topology holds them
    utilization   used ÷ capacity once the gang is there: full domains first, so that others stay whole
    performance   how earlier work went on these leaves: 0 all failed, 1 all ended in half the usual time;
                  0.5 the usual time, and where nothing is known

Availability and utilization pull against each other on purpose: of two domains that hold the gang the first
speaks for the empty one, the second for the full one, and the weights say by how much. Each is a ratio of
counts of pods of one shape, so that CPU-heavy and GPU-heavy gangs see the same domain differently.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.policy import ScoringWeights

NEUTRAL_PERFORMANCE = 0.5
"""The performance of a leaf on which nothing has been measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubScores:
    """The four parts of a score, each from 0 to 1."""

    availability: float
    alignment: float
    utilization: float
    performance: float = NEUTRAL_PERFORMANCE

    def weighted(self, weights: ScoringWeights) -> float:
        """Return the score, from 0 to 1 as the weights add up to 1."""
        return (
            weights.resource_availability * self.availability
            + weights.topology_alignment * self.alignment
            + weights.domain_utilization * self.utilization
            + weights.historical_performance * self.performance
        )


def sub_scores(
    *, free: int, capacity: int, pods: int, depth: int, levels: int, performance: float
) -> SubScores:
    """Return the parts for a gang of `pods` pods in a domain with `free` of `capacity` places for them.

    `depth` is how many of the topology's `levels` the narrowest domain around the pods fixes: all of them
    for a node, none where only the whole topology holds them. A gang that does not fit may be scored too:
    what is more than full counts as full.
    """
    # A domain without capacity is scored as full rather than divided by nothing.
    capacity = max(capacity, 1)
    return SubScores(
        availability=_ratio(free, capacity),
        alignment=_ratio(depth, max(levels, 1)),
        utilization=_ratio(capacity - free + pods, capacity),
        performance=min(1.0, max(0.0, performance)),
    )


def _ratio(part: int, whole: int) -> float:
    return min(1.0, max(0.0, part / whole))
