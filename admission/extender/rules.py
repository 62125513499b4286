"""What a rule of the extender is: a filter says why a node will not do, a score how well it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from admission.extender.facts import NodeView, PodAsk

NODE_NOT_FOUND = "node not found"


class Refusal(NamedTuple):
    """Why a node will not do. `is_final`: evicting pods from it would not help."""

    reason: str
    is_final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the configuration says to the rules.

    `required_topologies`: values of `nvidia.com/gpu-topology` on which tensor parallelism runs.
    `min_gpu_memory_gb`: what a GPU must have at least for a pod that asks for GPUs.
    """

    required_topologies: tuple[str, ...] = ("nvlink", "nvswitch")
    min_gpu_memory_gb: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter. `concerns`: whether it has anything to say of a pod, asked once and not for each node."""

    name: str
    concerns: Callable[[PodAsk], bool]
    judge: Callable[[PodAsk, NodeView, Arguments], Refusal | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """A score on a scale of its own.

    `most`: the best there is, None where it depends on the nodes and the best of those asked about counts.
    """

    name: str
    score: Callable[[PodAsk, NodeView], float]
    most: float | None = None
