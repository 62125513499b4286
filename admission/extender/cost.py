"""CostOptimized: spot nodes first, then the cheap, then the full.

    score = 100 + 200 where spot + (100 − cost per hour, where it is known) + ((cpu% + memory%)/2)/2

Full nodes are preferred, so that empty ones can be given back. Spot nodes count for pods that bear to lose
them alone: training that tells of no checkpoint would pay for the cheaper hour with all its work.
"""

from __future__ import annotations

from collections.abc import Mapping

from admission.extender.facts import NodeView, PodAsk
from admission.extender.rules import Scorer
from api import keys
from api.parsing.decimals import whole_number

_SPOT_WORDS = ("spot", "preemptible", "low-priority")
# By whom nodes are made: Karpenter, EKS, GKE (two generations of it), AKS.
_SPOT_LABELS = (
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "spot"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)


def is_spot(labels: Mapping[str, str]) -> bool:
    """Return whether the node may be taken away, by the labels of those who make nodes."""
    instance = labels.get("node.kubernetes.io/instance-type", "").lower()
    # Some clouds tell it by the instance type alone.
    if any(word in instance for word in _SPOT_WORDS):
        return True
    return any(labels.get(key, "").lower() == value for key, value in _SPOT_LABELS)


def _score(pod: PodAsk, view: NodeView) -> float:
    score = 100.0
    if pod.may_be_interrupted and is_spot(view.node.labels):
        score += 200
    cost = whole_number(view.node.labels.get(keys.NODE_COST_PER_HOUR)) or 0
    # Unlabelled is unknown, not free.
    if cost > 0:
        score += 100 - cost
    return score + (_percent(view, "cpu") + _percent(view, "memory")) / 2 / 2


def _percent(view: NodeView, resource: str) -> float:
    capacity = view.node.allocatable.get(resource, 0)
    return min(100.0, view.used.get(resource, 0) * 100 / capacity) if capacity > 0 else 0.0


COST_SCORE = Scorer(name="CostOptimized", score=_score)
