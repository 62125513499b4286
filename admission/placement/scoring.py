"""The score of a domain for a gang, from 0 to 1.

    score = 0.4 availability + 0.3 alignment + 0.2 utilization + 0.1 performance      (weights of the policy)

    availability  free ÷ capacity, in pods of the gang's shape: room for Workloads that follow, and little
                  contention
    alignment     the depth of the narrowest domain around all pods: 1 on one node, falling by equal steps
                  with each level above it, 0 where only the whole topology holds them
    utilization   used ÷ capacity once the gang is placed: full domains first, so that others stay whole
    performance   results of earlier runs on these leaves: 0 where all failed, 1 where all ended in half the
                  usual time; 0.5 for the usual time, and where nothing is known

Availability and utilization oppose each other on purpose: of two domains that hold the gang, the first
prefers the empty one and the second the full one, and the weights decide. Each is a ratio of counts of pods
of one shape, so CPU-heavy and GPU-heavy gangs score the same domain differently.
"""

from __future__ import annotations

import msgspec

from api.policy import ScoringWeights

NEUTRAL_PERFORMANCE = 0.5
"""The performance of a leaf without any measured run."""


class SubScores(msgspec.Struct, frozen=True, kw_only=True):
    """The four parts of a score, each from 0 to 1."""

    availability: float
    alignment: float
    utilization: float
    performance: float = NEUTRAL_PERFORMANCE

    def weighted(self, weights: ScoringWeights) -> float:
        """Return the score, from 0 to 1 because the weights add up to 1.

        The policy's weights are normalised when it is read.
        """
        return (
            weights.resource_availability * self.availability
            + weights.topology_alignment * self.alignment
            + weights.domain_utilization * self.utilization
            + weights.historical_performance * self.performance
        )


def sub_scores(
    *, free: int, capacity: int, pods: int, depth: int, levels: int, performance: float
) -> SubScores:
    """Return the parts of the score of a domain for a gang of `pods` pods.

    The domain has room for `free` of these pods, and for `capacity` when empty. `depth` is how many of the
    topology's `levels` the narrowest domain around the pods fixes: all for a node, 0 where only the whole
    topology holds them. A gang that does not fit may be scored too: utilization is capped at 1.
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
    """Return part / whole, limited to the range from 0 to 1."""
    if part <= 0:
        return 0.0
    return part / whole if part < whole else 1.0
