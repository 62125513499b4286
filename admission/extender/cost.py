"""CostOptimized: spot nodes first, then cheap ones, then full ones.

    score = 100 + 200 where spot + (100 − cost per hour, where it is known) + ((cpu% + memory%)/2)/2

Full nodes are preferred, so that empty ones can be removed. Spot nodes count only for pods that can be
interrupted: training without checkpoints would lose all its work for the cheaper hour.
"""

from __future__ import annotations

from admission.extender.facts import NodeView, PodFacts
from admission.extender.rules import Scorer


def _score(pod: PodFacts, view: NodeView) -> float:
    score = 100.0
    if pod.hardware.may_be_interrupted and view.hardware.is_spot:
        score += 200
    # An unknown cost does not count as free of charge.
    if view.hardware.cost > 0:
        score += 100 - view.hardware.cost
    return score + (_percent(view, "cpu") + _percent(view, "memory")) / 2 / 2


def _percent(view: NodeView, resource: str) -> float:
    capacity = view.node.allocatable.get(resource, 0)
    return min(100.0, view.used.get(resource, 0) * 100 / capacity) if capacity > 0 else 0.0


COST_SCORE = Scorer(name="CostOptimized", score=_score)
