"""Labels of nodes about hardware that cannot be understood, each as a sentence with the rule that applies."""

from __future__ import annotations

from collections.abc import Iterator

from admission.hardware.islands import read_island
from admission.hardware.node_hardware import node_hardware
from api import keys
from api.jobs.static_address import parse_pool
from api.node import NodeInfo
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
    if size > gpus:
        yield (
            f"node {node.name} has islands of {size} GPUs in all, but {gpus} GPUs; each island counts as"
            f" {size - gpus} smaller, so correct its labels"
        )


def _problem(node: NodeInfo, key: str, expected: str) -> str:
    return f"node {node.name} has the label {key}={node.labels[key]!r}, but it must be {expected}"
