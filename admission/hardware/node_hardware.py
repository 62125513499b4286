"""What a node offers, by its labels and its allocatable amounts.

Nodes with equal hardware are one value: `NodeKinds` returns the same object for them, so that an evaluation
is made once for each kind of node.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from admission.hardware.generations import node_generation
from admission.hardware.islands import Island, read_islands
from api import keys
from api.jobs.resource_requests import gpus_of
from api.node import NodeInfo
from api.parsing.decimals import whole_number
from api.parsing.prices import price

_MIB_PER_GB = 1024
_SPOT_WORDS = ("spot", "preemptible", "low-priority")
# The labels of Karpenter, EKS, GKE (two generations of it) and AKS.
_SPOT_LABELS = (
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "spot"),
    ("cloud.google.com/gke-spot", "true"),
    ("cloud.google.com/gke-preemptible", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
# Kinds that are kept. It matters where a label, such as a price, changes again and again.
_MOST_KINDS = 4096
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_LABELS = (
    keys.NODE_GPU_MODEL,
    keys.NODE_GPU_GENERATION,
    keys.NODE_COMPUTE_MAJOR,
    keys.NODE_GPU_MEMORY_GB,
    keys.NODE_GPU_MEMORY_MIB,
    keys.NODE_GPU_TOPOLOGY,
    keys.NODE_GPU_INTERCONNECT,
    keys.NODE_COST_PER_HOUR,
    _INSTANCE_TYPE,
    *(label for label, _ in _SPOT_LABELS),
)


class NodeHardware(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One kind of node; empty texts and 0 stand for what is not known.

    `memory_gb` is that of one GPU. `topology` and `interconnect` are in lower case. `islands` are its linked
    GPUs. `cost` is per hour.
    """

    model: str = ""
    gpus: int = 0
    milli_cpu: int = 0
    memory_gb: int = 0
    generation: int = 0
    topology: str = ""
    interconnect: str = ""
    islands: tuple[Island, ...] = ()
    is_spot: bool = False
    cost: float = 0.0


def node_hardware(node: NodeInfo) -> NodeHardware:
    """Return what the node offers."""
    labels, gpus = node.labels, gpus_of(node.allocatable)
    topology = labels.get(keys.NODE_GPU_TOPOLOGY, "").lower()
    return NodeHardware(
        model=labels.get(keys.NODE_GPU_MODEL, ""),
        gpus=gpus,
        milli_cpu=node.allocatable.get("cpu", 0),
        memory_gb=_memory_gb(labels),
        generation=node_generation(labels),
        topology=topology,
        interconnect=labels.get(keys.NODE_GPU_INTERCONNECT, "").lower(),
        islands=read_islands(labels, topology, gpus),
        is_spot=is_spot(labels),
        # A node without the label has an unknown cost, and does not count as free of charge.
        cost=price(labels.get(keys.NODE_COST_PER_HOUR)) or 0.0,
    )


def _memory_gb(labels: Mapping[str, str]) -> int:
    """Return the memory of one GPU in GB: by label `gpu-memory-gb`, else by NVIDIA's, else 0."""
    if keys.NODE_GPU_MEMORY_GB in labels:
        return whole_number(labels[keys.NODE_GPU_MEMORY_GB]) or 0
    # NVIDIA's label is in MiB and below the nominal size: 81,559 MiB are an 80 GB GPU.
    return round((whole_number(labels.get(keys.NODE_GPU_MEMORY_MIB)) or 0) / _MIB_PER_GB)


def is_spot(labels: Mapping[str, str]) -> bool:
    """Return whether the cloud may take the node away, by the labels of the tools that create nodes."""
    instance = labels.get(_INSTANCE_TYPE, "").lower()
    # Some clouds show it only in the instance type.
    if any(word in instance for word in _SPOT_WORDS):
        return True
    return any(labels.get(key, "").lower() == value for key, value in _SPOT_LABELS)


class NodeKinds:
    """The kinds of nodes seen so far: one object for all nodes of equal hardware."""

    def __init__(self) -> None:
        self._known: dict[object, NodeHardware] = {}

    def of(self, node: NodeInfo) -> NodeHardware:
        """Return the node's hardware."""
        labels, amounts = node.labels, node.allocatable
        # Everything that `node_hardware` reads. Reading twenty thousand nodes in full would take seconds.
        islands = tuple(
            [(key, value) for key, value in labels.items() if key.startswith(keys.NODE_ISLAND_PREFIX)]
        )
        facts = (*map(labels.get, _LABELS), islands, gpus_of(amounts), amounts.get("cpu", 0))
        kind = self._known.get(facts)
        if kind is None:
            if len(self._known) >= _MOST_KINDS:
                self._known.clear()
            kind = self._known[facts] = node_hardware(node)
        return kind
