"""What nodes and their pods say about hardware and cannot be: a sentence each, with the rule that applies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from admission.hardware.gpu_shares import PodGpus
from admission.hardware.islands import read_island
from admission.hardware.node_hardware import NodeHardware, node_hardware
from api import keys
from api.jobs.gpu_share import WHOLE
from api.jobs.static_address import parse_pool
from api.node import NodeInfo, PodKey
from api.parsing.decimals import whole_number
from api.parsing.gpu_generations import generation_of

_NUMBERS = (keys.NODE_GPU_MEMORY_GB, keys.NODE_GPU_MEMORY_MIB)

_COUNTS = {
    keys.NODE_GPU_COUNT: "its GPUs are counted as it offers them",
    keys.NODE_GPU_REPLICAS: "its GPUs count as whole ones",
}


def hardware_problems(node: NodeInfo) -> Iterator[str]:
    """Yield the problems of one node's labels."""
    labels = node.labels
    for key in _NUMBERS:
        if key in labels and whole_number(labels[key]) is None:
            yield _problem(node, key, "a whole number; its GPUs count as without memory")
    for key, rule in _COUNTS.items():
        if key in labels and not whole_number(labels[key]):
            yield _problem(node, key, f"a whole number of at least 1; {rule}")
    try:
        parse_pool(node.addresses)
    except ValueError as error:
        yield f"node {node.name} has the annotation {keys.ADDRESSES} in which {error}; it offers no addresses"
    generation = labels.get(keys.NODE_GPU_GENERATION, "")
    if generation and not generation_of(generation):
        yield _problem(node, keys.NODE_GPU_GENERATION, "a number, a model or a family; it counts as unknown")
    islands = {key: value for key, value in labels.items() if key.startswith(keys.NODE_ISLAND_PREFIX)}
    if not islands:
        return
    first_of: dict[int, str] = {}
    size = 0
    for key, value in sorted(islands.items()):
        island = read_island(value)
        if not island.size:
            yield _problem(node, key, 'GPUs such as "0-3", or their number; it counts as an empty island')
        twice = sorted(island.ids & first_of.keys())
        if twice:
            yield (
                f"node {node.name} has GPU {twice[0]} in the label {key} and in {first_of[twice[0]]}, but it"
                " can be in one island only; it counts in the latter"
            )
        first_of.update(dict.fromkeys(island.ids - first_of.keys(), key))
        size += island.size - len(twice)
    gpus = node_hardware(node).gpus
    # A node that offers none has not started its device plugin yet.
    if 0 < gpus < size:
        yield (
            f"node {node.name} has islands of {size} GPUs in all, but {gpus} GPUs; each island counts as"
            f" {size - gpus} smaller, so correct its labels"
        )


def recorded_problems(
    node: NodeInfo, hardware: NodeHardware, recorded: Mapping[PodKey, PodGpus]
) -> Iterator[str]:
    """Yield the GPUs of a node that several of its pods record, though only one can have them."""
    # Devices that are offered several times belong to several pods.
    if not hardware.has_whole_gpus:
        return
    holders: dict[int, list[str]] = {}
    milli: Counter[int] = Counter()
    for (namespace, name), pod in sorted(recorded.items()):
        for gpu in pod.ids:
            holders.setdefault(gpu, []).append(f"{namespace}/{name}")
            milli[gpu] += WHOLE if pod.share is None else pod.share.milli
    for gpu, pods in sorted(holders.items()):
        if len(pods) > 1 and milli[gpu] > WHOLE:
            more = f" and {len(pods) - 2} more" if len(pods) > 2 else ""
            yield (
                f"GPU {gpu} of node {node.name} is in the annotation {keys.GPU_IDS} of the pods {pods[0]} and"
                f" {pods[1]}{more}, but one GPU is for one pod or for shares of it; what is beyond it counts"
                " by the GPUs that the pod requests"
            )


def _problem(node: NodeInfo, key: str, expected: str) -> str:
    return f"node {node.name} has the label {key}={node.labels[key]!r}, but it must be {expected}"
