"""The labels that a node gets for its GPUs.

A label says what holds for every GPU that is handed out whole. Where they differ, or the driver does not say,
the label is left out: a wrong one sends work to a node on which it fails, a missing one makes it wait.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from admission.node_agent.gpus import Gpu
from admission.node_agent.islands import NVLINK, PCIE, fabric_kind, find_islands
from admission.node_agent.links import Links
from api import keys
from api.topology_presets import CLIQUE

T = TypeVar("T", bound=Hashable)

# A label value: 63 characters, letters and digits at both ends.
_MOST_CHARACTERS = 63
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_.-]+")
_ENDS = "-_."


def node_labels(
    gpus: Sequence[Gpu], links: Links | None, numa_nodes: Mapping[int, int], taken: Collection[int]
) -> dict[str, str]:
    """Return the labels of a node.

    `links` is None where they could not be read. `numa_nodes` is the NUMA node of each GPU, by index, where
    it is known; `taken` are the indexes of the GPUs that pods have.
    """
    whole = [gpu for gpu in gpus if not gpu.is_split]
    fabric = _common(gpu.fabric for gpu in whole)
    labels = {
        # GPU feature discovery writes the first four as well, and in the same words.
        keys.NODE_GPU_MODEL: _label_value(_common(gpu.model for gpu in whole)),
        keys.NODE_GPU_FAMILY: _label_value(_common(gpu.architecture for gpu in whole)).lower(),
        keys.NODE_GPU_MEMORY_MIB: str(_common(gpu.memory_mib for gpu in whole) or ""),
        CLIQUE: _label_value(fabric),
        keys.NODE_FABRIC: _label_value(fabric),
        keys.NODE_NUMA_NODE: _numa_node([gpu.index for gpu in whole], numa_nodes, taken),
        **_link_labels([gpu.index for gpu in whole], links),
    }
    return {key: value for key, value in labels.items() if value}


def _link_labels(gpus: Sequence[int], links: Links | None) -> dict[str, str]:
    if links is None:
        return {}
    kind = fabric_kind(gpus, links)
    islands = find_islands(gpus, links)
    return {
        keys.NODE_GPU_TOPOLOGY: kind,
        keys.NODE_GPU_INTERCONNECT: kind if kind in ("", PCIE) else NVLINK,
        **{
            f"{keys.NODE_ISLAND_PREFIX}{number}": _ranges(island)
            for number, island in enumerate(sorted(islands))
        },
    }


def _numa_node(gpus: Sequence[int], numa_nodes: Mapping[int, int], taken: Collection[int]) -> str:
    """Return the NUMA node with the most free GPUs, the lowest of several; "" unless all are known."""
    if not gpus or any(gpu not in numa_nodes for gpu in gpus):
        return ""
    free = Counter(numa_nodes[gpu] for gpu in gpus if gpu not in taken)
    return str(min({numa_nodes[gpu] for gpu in gpus}, key=lambda node: (-free[node], node)))


def _ranges(island: Sequence[int]) -> str:
    """Return ascending indexes as a label value: "0-3", or "0_2-3" where some between are missing."""
    parts: list[list[int]] = []
    for gpu in island:
        if parts and gpu == parts[-1][-1] + 1:
            parts[-1].append(gpu)
        else:
            parts.append([gpu])
    return "_".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _common(values: Iterable[T]) -> T | None:
    """Return the one value that all have; None where they differ or there are none."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _label_value(text: str | None) -> str:
    """Return a text as GPU feature discovery writes it into a label: "NVIDIA-A100-SXM4-80GB"."""
    dashed = _NOT_IN_LABELS.sub("", "-".join((text or "").split()))
    return dashed[:_MOST_CHARACTERS].strip(_ENDS)
