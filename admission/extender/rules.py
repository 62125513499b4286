"""The types of rules: a filter refuses a node with a reason, a scorer says how well a node suits a pod."""

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
class Arguments:
    """The rules' settings from the configuration.

    `required_topologies` are the values of `nvidia.com/gpu-topology` on which tensor parallelism runs.
    `min_gpu_memory_gb` is the least memory of a GPU, in GB, for a pod that requests GPUs.
    """

    required_topologies: tuple[str, ...] = ("nvlink", "nvswitch")
    min_gpu_memory_gb: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter. `concerns` returns whether it applies to a pod; it is called once and not for each node."""

    name: str
    concerns: Callable[[PodFacts], bool]
    judge: Callable[[PodFacts, NodeView, Arguments], Refusal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A score with a scale of its own.

    `most` is the highest possible score; None where the best of the nodes in question defines the scale.
    """

    name: str
    score: Callable[[PodFacts, NodeView], float]
    most: float | None = None
