"""NVLinkTopology: a pod with several GPUs runs where these GPUs are linked.

Data-parallel training (`ddp`) averages its gradients over all its GPUs, so it needs them in one
island. Tensor parallelism requires the fast fabric in any case. A pod with one GPU has no such
traffic and runs anywhere.

The islands of a node are read from labels, which the node agent writes (`admission.node_agent`):

    berth.dev/nvlink-island.0: "0-3"        the GPUs 0 to 3 are linked with each other
    berth.dev/nvlink-island.1: "4_6-7"      the GPUs 4, 6 and 7
    berth.dev/nvlink-island.2: "4"          an island of four; their indexes are not given
    nvidia.com/gpu-topology: nvswitch       without such labels: all GPUs of the node are one island

Free GPUs count, not the size of the island: by total capacity a second job of four would be sent to an island
of four. The count is exact for pods that record their GPUs (`berth.dev/gpu-ids`). Other pods are assumed to
be in the smallest island with room for them, as a packing device plugin would place them; where none has room
they are assumed to take GPUs from the roomiest islands first.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.extender.facts import NodeView, PodFacts
from admission.extender.rules import Arguments, Filter, Refusal
from api import keys
from api.parsing.decimals import whole_number

DDP, TENSOR = "ddp", "tensor"


@dataclass(slots=True)
class _Island:
    free: int
    ids: frozenset[int]


def largest_free_island(view: NodeView) -> int:
    """Return how many linked GPUs are free in one island of the node; 0 where it has no island labels."""
    islands = _islands(view)
    unrecorded = []
    for pod in view.pods:
        if pod.gpu_ids:
            for island in islands:
                # Pods with recorded GPUs are subtracted first, because the others are only estimated.
                island.free -= len(island.ids.intersection(pod.gpu_ids))
        elif pod.gpus:
            unrecorded.append(pod.gpus)
    # The largest pods first, because small ones still fit into what they leave.
    for gpus in sorted(unrecorded, reverse=True):
        _seat(islands, gpus)
    return max((island.free for island in islands), default=0)


def _seat(islands: list[_Island], gpus: int) -> None:
    fitting = [island for island in islands if island.free >= gpus]
    if fitting:
        # The tightest island that fits, as an NVLink-aware device plugin would choose.
        min(fitting, key=lambda island: island.free).free -= gpus
        return
    # No island has room, so the pod is spread over the roomiest ones, which breaks up the fewest.
    for island in sorted(islands, key=lambda island: -island.free):
        taken = min(gpus, max(0, island.free))
        island.free -= taken
        gpus -= taken


def _islands(view: NodeView) -> list[_Island]:
    labels = view.node.labels
    labelled = [_island(value) for key, value in labels.items() if key.startswith(keys.NODE_ISLAND_PREFIX)]
    # A switch links all GPUs of a node with each other, so they are one island.
    if not labelled and labels.get(keys.NODE_GPU_TOPOLOGY, "").lower() == "nvswitch":
        return [_Island(view.gpus, frozenset(range(view.gpus)))]
    return labelled


def _island(value: str) -> _Island:
    parts = [_indexes(part) for part in value.split("_")]
    ids = frozenset(number for part in parts for number in part)
    # One number alone is how many GPUs it has; a part that is none leaves the whole value without meaning.
    if (count := whole_number(value)) is not None:
        return _Island(count, frozenset())
    return _Island(len(ids), ids) if all(parts) else _Island(0, frozenset())


def _indexes(part: str) -> range:
    """Return the GPUs of "2" or "0-3"; an empty range for any other text."""
    first, dash, last = part.partition("-")
    begin, end = whole_number(first), whole_number(last if dash else first)
    if begin is None or end is None:
        return range(0)
    # Capped at 1,024 GPUs: a mistaken label such as "0-9999999999" must not create a huge set.
    return range(begin, min(end, begin + 1023) + 1)


def _judge(pod: PodFacts, view: NodeView, arguments: Arguments) -> Refusal | None:
    if pod.parallelism == TENSOR:
        topology = view.node.labels.get(keys.NODE_GPU_TOPOLOGY, "").lower()
        if topology not in arguments.required_topologies:
            return Refusal("Tensor parallelism demands NVLink/NVSwitch fabric", is_final=True)
        return None
    if largest_free_island(view) >= pod.gpus:
        return None
    # Judged on the empty node: only then could evictions help.
    could_hold = max((island.free for island in _islands(view)), default=0) >= pod.gpus
    return Refusal(f"Node lacks {pod.gpus} GPUs in unified NVLink island", is_final=not could_hold)


TOPOLOGY_FILTER = Filter(
    name="NVLinkTopology",
    concerns=lambda pod: pod.gpus > 1 and pod.parallelism in (DDP, TENSOR),
    judge=_judge,
)
