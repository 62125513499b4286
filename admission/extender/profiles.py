"""The profiles: which rules apply to a pod, by its `schedulerName`.

kube-scheduler binds pods of several scheduler names (its own profiles) and passes the name of each pod to
the extender. A Workload thus chooses its rules in its manifest, several policies run in one process, and
removing the name from a manifest undoes the choice. Filters that act only on pods with a key of their own
are in every profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from admission.extender.cost import COST_SCORE
from admission.extender.facts import NodeView, PodFacts
from admission.extender.gpu_aware import GPU_AWARE_FILTER, GPU_AWARE_SCORE
from admission.extender.intensity import INTENSITY_FILTER
from admission.extender.islands import TOPOLOGY_FILTER
from admission.extender.isolation import ISOLATION_SCORE, MEMORY_FILTER
from admission.extender.rules import NODE_NOT_FOUND, Arguments, Filter, Refusal, Scorer
from admission.extender.sampling import EVERY_NODE

# The highest score of the extender protocol.
BEST = 10

FILTERS: Mapping[str, Filter] = {
    one.name: one for one in (INTENSITY_FILTER, TOPOLOGY_FILTER, MEMORY_FILTER, GPU_AWARE_FILTER)
}
SCORERS: Mapping[str, Scorer] = {one.name: one for one in (GPU_AWARE_SCORE, COST_SCORE, ISOLATION_SCORE)}
_ASKED_FOR = (INTENSITY_FILTER.name, TOPOLOGY_FILTER.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderProfile:
    """The rules of one scheduler name, in the order in which they are applied.

    `scores` are names with weights; without any, nodes are scored by NUMA node and fabric. With
    `percentage_of_nodes_to_score` a filter stops once enough nodes have passed (`sampling.nodes_to_find`).
    """

    name: str
    filters: tuple[str, ...] = _ASKED_FOR
    scores: tuple[tuple[str, float], ...] = ()
    percentage_of_nodes_to_score: int = EVERY_NODE


# The profile of every other scheduler name.
PLAIN = ExtenderProfile(name="")
BUILT_IN = (
    ExtenderProfile(
        name="gpu-aware-scheduler",
        filters=(*_ASKED_FOR, GPU_AWARE_FILTER.name),
        scores=((GPU_AWARE_SCORE.name, 5),),
    ),
    ExtenderProfile(name="cost-optimized-scheduler", scores=((COST_SCORE.name, 5),)),
    ExtenderProfile(
        name="ai-scheduler",
        filters=(*_ASKED_FOR, MEMORY_FILTER.name),
        scores=((ISOLATION_SCORE.name, 10),),
    ),
)


def refusals(
    profile: ExtenderProfile, pod: PodFacts, views: Mapping[str, NodeView | None], arguments: Arguments
) -> dict[str, Refusal]:
    """Return the refused nodes, each with its first reason. A view of None stands for an unknown node."""
    asked = [FILTERS[name] for name in profile.filters if FILTERS[name].concerns(pod)]
    refused: dict[str, Refusal] = {}
    # No filter applies to most pods, so thousands of nodes need no look.
    if not asked:
        return refused
    for name, view in views.items():
        found = _first(asked, pod, view, arguments)
        if found is not None:
            refused[name] = found
    return refused


def _first(
    asked: Iterable[Filter], pod: PodFacts, view: NodeView | None, arguments: Arguments
) -> Refusal | None:
    if view is None:
        # Refused, because an unknown node might lack anything that the pod needs.
        return Refusal(NODE_NOT_FOUND, is_final=True)
    for one in asked:
        found = one.judge(pod, view, arguments)
        if found is not None:
            return found
    return None


def concerns(profile: ExtenderProfile, pod: PodFacts) -> bool:
    """Return whether any filter of the profile applies to the pod."""
    return any(FILTERS[name].concerns(pod) for name in profile.filters)


def scores(profile: ExtenderProfile, pod: PodFacts, views: Sequence[NodeView | None]) -> list[float]:
    """Return how well each node suits the pod, from 0 to 10: the weighted mean of the profile's scores.

    A score without a fixed maximum is scaled by the best of these nodes, as kube-scheduler normalises scores.
    An unknown node gets 0.
    """
    total = [0.0] * len(views)
    for name, weight in profile.scores:
        for place, value in enumerate(_scaled(SCORERS[name], pod, views)):
            total[place] += weight * value
    weights = sum(weight for _, weight in profile.scores)
    return [value * BEST / weights for value in total]


def _scaled(scorer: Scorer, pod: PodFacts, views: Sequence[NodeView | None]) -> list[float]:
    raw = [0.0 if view is None else max(0.0, scorer.score(pod, view)) for view in views]
    # Without a fixed maximum the best of these nodes gets 1. If all are zero, they stay zero.
    most = scorer.most if scorer.most is not None else max(raw, default=0.0)
    return [min(1.0, value / most) for value in raw] if most > 0 else raw
