"""The profiles: how nodes are scored for a pod, by its `schedulerName`.

kube-scheduler binds pods of several scheduler names (its own profiles) and passes the name of each pod to
the extender. A Workload thus chooses its rules in its manifest, several policies run in one process, and
removing the name from a manifest undoes the choice. The filters of a profile bind admission too
(`admission.hardware.rules`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from admission.extender.cost import COST_SCORE
from admission.extender.facts import NodeView, PodFacts
from admission.extender.gpu_aware import GPU_AWARE_SCORE
from admission.extender.isolation import ISOLATION_SCORE
from admission.extender.rules import NODE_NOT_FOUND, Refusal, Scorer
from admission.extender.sampling import EVERY_NODE
from admission.hardware.fit import HardwareRequest, Misfit, misfit
from admission.hardware.node_hardware import NodeHardware

# The highest score of the extender protocol.
BEST = 10

SCORERS: Mapping[str, Scorer] = {one.name: one for one in (GPU_AWARE_SCORE, COST_SCORE, ISOLATION_SCORE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderProfile:
    """The scores of one scheduler name; its filters are those of `admission.hardware.rules`.

    `scores` are names with weights; without any, nodes are scored by NUMA node and fabric. With
    `percentage_of_nodes_to_score` a filter stops once enough nodes have passed (`sampling.nodes_to_find`).
    """

    name: str
    scores: tuple[tuple[str, float], ...] = ()
    percentage_of_nodes_to_score: int = EVERY_NODE


# The profile of every other scheduler name.
PLAIN = ExtenderProfile(name="")
BUILT_IN = (
    ExtenderProfile(name="gpu-aware-scheduler", scores=((GPU_AWARE_SCORE.name, 5),)),
    ExtenderProfile(name="cost-optimized-scheduler", scores=((COST_SCORE.name, 5),)),
    ExtenderProfile(name="ai-scheduler", scores=((ISOLATION_SCORE.name, 10),)),
)


def refusals(need: HardwareRequest, views: Mapping[str, NodeView | None]) -> dict[str, Refusal]:
    """Return the refused nodes, each with its reason. A view of None stands for an unknown node."""
    refused: dict[str, Refusal] = {}
    # Empty nodes of one kind share an answer, which is final: no eviction could change it.
    finally_refused: dict[NodeHardware, Misfit | None] = {}
    for name, view in views.items():
        if view is None:
            # Refused, because an unknown node might lack anything that the pod needs.
            refused[name] = Refusal(NODE_NOT_FOUND, is_final=True)
            continue
        kind = view.hardware
        if kind not in finally_refused:
            finally_refused[kind] = misfit(need, kind)
        found, is_final = misfit(need, kind, view.load), finally_refused[kind] is not None
        if found is not None:
            refused[name] = Refusal(found.reason, is_final=is_final)
    return refused


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
