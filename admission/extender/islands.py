"""NVLinkTopology: a job of several GPUs in one pod runs where these GPUs are linked.

Data-parallel training (`ddp`) averages its gradients all around, so it needs its GPUs in one island; tensor
parallelism needs the fast fabric as such. A pod of one GPU talks to nobody and runs anywhere.

A node tells of its islands by labels that a labeller of yours writes (from `nvidia-smi topo -m`):

    berth.dev/nvlink-island.0: "0-3"        the GPUs 0 to 3 are linked with each other
    berth.dev/nvlink-island.1: "4"          an island of four; which ones they are is not said
    nvidia.com/gpu-topology: nvswitch       without such labels: all GPUs of the node are one island

What counts is free GPUs, not the island's size: total capacity would send a second job of four to an island
of four. Where pods say which GPUs they were given (`berth.dev/gpu-ids`) that is exact. The others are taken
to sit in the smallest island that has room for them, as a packing device plug-in would put them; where they
fit none whole they take of the roomiest first.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.extender.facts import NodeView, PodAsk
from admission.extender.rules import Arguments, Filter, Refusal
from api import keys
from api.parsing.decimals import whole_number

DDP, TENSOR = "ddp", "tensor"


@dataclass(slots=True)
class _Island:
    free: int
    ids: frozenset[int]


def largest_free_island(view: NodeView) -> int:
    """Return how many linked GPUs are free in one island of the node; 0 where it tells of none."""
    islands = _islands(view)
    untold = []
    for pod in view.pods:
        if pod.gpu_ids:
            for island in islands:
                # Exact for those whose GPUs are known, guessed for the rest only afterwards.
                island.free -= len(island.ids.intersection(pod.gpu_ids))
        elif pod.gpus:
            untold.append(pod.gpus)
    # The largest first: a small one fits what is left, a large one no longer.
    for gpus in sorted(untold, reverse=True):
        _seat(islands, gpus)
    return max((island.free for island in islands), default=0)


def _seat(islands: list[_Island], gpus: int) -> None:
    fitting = [island for island in islands if island.free >= gpus]
    if fitting:
        # The tightest that fits, as a device plug-in with NVLink in mind would choose; the
        # large ones stay whole.
        min(fitting, key=lambda island: island.free).free -= gpus
        return
    # It fits none, so it has to be spread: where most is free it breaks least.
    for island in sorted(islands, key=lambda island: -island.free):
        taken = min(gpus, max(0, island.free))
        island.free -= taken
        gpus -= taken


def _islands(view: NodeView) -> list[_Island]:
    labels = view.node.labels
    told = [_island(value) for key, value in labels.items() if key.startswith(keys.NODE_ISLAND_PREFIX)]
    # A switch links all of a node's GPUs with each other: they are one island.
    if not told and labels.get(keys.NODE_GPU_TOPOLOGY, "").lower() == "nvswitch":
        return [_Island(view.gpus, frozenset(range(view.gpus)))]
    return told


def _island(value: str) -> _Island:
    first, dash, last = value.partition("-")
    begin, end = whole_number(first), whole_number(last)
    if dash and begin is not None and end is not None:
        # No node has more devices; a label that says "0-9999999999" must not become a set of as many.
        ids = frozenset(range(begin, min(end, begin + 1023) + 1))
        return _Island(len(ids), ids)
    return _Island(whole_number(value) or 0, frozenset())


def _judge(pod: PodAsk, view: NodeView, arguments: Arguments) -> Refusal | None:
    if pod.parallelism == TENSOR:
        topology = view.node.labels.get(keys.NODE_GPU_TOPOLOGY, "").lower()
        if topology not in arguments.required_topologies:
            return Refusal("Tensor parallelism demands NVLink/NVSwitch fabric", is_final=True)
        return None
    if largest_free_island(view) >= pod.gpus:
        return None
    # On the empty node: only then could evicting others help.
    could_hold = max((island.free for island in _islands(view)), default=0) >= pod.gpus
    return Refusal(f"Node lacks {pod.gpus} GPUs in unified NVLink island", is_final=not could_hold)


TOPOLOGY_FILTER = Filter(
    name="NVLinkTopology",
    concerns=lambda pod: pod.gpus > 1 and pod.parallelism in (DDP, TENSOR),
    judge=_judge,
)
