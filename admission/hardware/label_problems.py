"""Labels of nodes about hardware that cannot be understood, each as a sentence with the rule that applies."""

from __future__ import annotations

from collections.abc import Iterator

from admission.hardware.generations import generation_of
from admission.hardware.node_hardware import node_hardware
from api import keys
from api.node import NodeInfo
from api.parsing.decimals import whole_number

_NUMBERS = (keys.NODE_GPU_MEMORY_GB, keys.NODE_GPU_MEMORY_MIB)


def hardware_problems(node: NodeInfo) -> Iterator[str]:
    """Yield the problems of one node's labels."""
    labels = node.labels
    for key in _NUMBERS:
        if key in labels and whole_number(labels[key]) is None:
            yield _problem(node, key, "a whole number; its GPUs count as without memory")
    generation = labels.get(keys.NODE_GPU_GENERATION, "")
    if generation and not generation_of(generation):
        yield _problem(node, keys.NODE_GPU_GENERATION, "a number, a model or a family; it counts as unknown")
    islands = {key: value for key, value in labels.items() if key.startswith(keys.NODE_ISLAND_PREFIX)}
    if not islands:
        return
    found = node_hardware(node)
    for key, value in islands.items():
        if not all(whole_number(part) is not None for part in value.split("-", 1)):
            yield _problem(node, key, 'GPUs such as "0-3", or their number; it counts as an empty island')
    size = sum(island.size for island in found.islands)
    if size > found.gpus:
        yield (
            f"node {node.name} has islands of {size} GPUs in all, but {found.gpus} GPUs: placement counts on "
            "links that are not there; correct its labels"
        )


def _problem(node: NodeInfo, key: str, expected: str) -> str:
    return f"node {node.name} has the label {key}={node.labels[key]!r}, but it must be {expected}"
