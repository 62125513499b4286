"""CostOptimized: spot nodes first, then cheap ones, then full ones.

    score = 100 + 200 where spot + (100 − cost per hour, where it is known) + ((cpu% + memory%)/2)/2

Full nodes are preferred, so that empty ones can be removed. Spot nodes count only for pods that can be
interrupted: training without checkpoints would lose all its work for the cheaper hour.
"""

from __future__ import annotations

from collections.abc import Mapping

from admission.extender.facts import NodeView, PodFacts
from admission.extender.rules import Scorer
from api import keys
from api.parsing.decimals import whole_number

_SPOT_WORDS = ("spot", "preemptible", "low-priority")
# The labels of Karpenter, EKS, GKE (two generations of it) and AKS.
_SPOT_LABELS = (
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "spot"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)


def is_spot(labels: Mapping[str, str]) -> bool:
    """Return whether the cloud may take the node away, by the labels of the tools that create nodes."""
    instance = labels.get("node.kubernetes.io/instance-type", "").lower()
    # Some clouds show it only in the instance type.
    if any(word in instance for word in _SPOT_WORDS):
        return True
    return any(labels.get(key, "").lower() == value for key, value in _SPOT_LABELS)


def _score(pod: PodFacts, view: NodeView) -> float:
    score = 100.0
    if pod.may_be_interrupted and is_spot(view.node.labels):
        score += 200
    cost = whole_number(view.node.labels.get(keys.NODE_COST_PER_HOUR)) or 0
    # A node without the label has an unknown cost, and does not count as free of charge.
    if cost > 0:
        score += 100 - cost
    return score + (_percent(view, "cpu") + _percent(view, "memory")) / 2 / 2


def _percent(view: NodeView, resource: str) -> float:
    capacity = view.node.allocatable.get(resource, 0)
    return min(100.0, view.used.get(resource, 0) * 100 / capacity) if capacity > 0 else 0.0


COST_SCORE = Scorer(name="CostOptimized", score=_score)
