"""The types of answers: a refusal of a node with its reason, and how well a node suits a pod."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from admission.extender.facts import NodeView, PodFacts

NODE_NOT_FOUND = "node not found"


class Refusal(NamedTuple):
    """Why a node is refused. `is_final`: evicting pods from it would not help."""

    reason: str
    is_final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A score with a scale of its own.

    `most` is the highest possible score; None where the best of the nodes in question defines the scale.
    """

    name: str
    score: Callable[[PodFacts, NodeView], float]
    most: float | None = None
