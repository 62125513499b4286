"""What a node offers, by its labels and its allocatable amounts.

Nodes with equal hardware are one value: `NodeKinds` returns the same object for them, so that an evaluation
is made once for each kind of node.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from admission.hardware.islands import Island, read_islands
from api import keys
from api.jobs.resource_requests import gpu_parts_of, gpus_of
from api.node import NodeInfo
from api.parsing.decimals import whole_number
from api.parsing.gpu_generations import GENERATION_OF_MODEL, generation_of
from api.parsing.prices import price

_MIB_PER_GB = 1024
# What NVIDIA's feature discovery adds to the product where all GPUs are partitioned.
_MIG = "-MIG-"
# A mistaken amount must not create a huge list.
_MOST_DEVICES = 1024
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
    keys.NODE_GPU_COUNT,
    keys.NODE_GPU_REPLICAS,
    keys.NODE_MIG_STRATEGY,
    keys.NODE_COST_PER_HOUR,
    _INSTANCE_TYPE,
    *(label for label, _ in _SPOT_LABELS),
)


class NodeHardware(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """One kind of node; empty texts and 0 stand for what is not known.

    `memory_gb` and `memory_mib` are those of one GPU. `devices` are the GPUs that shares may be given of, 0
    under MIG; each is offered as `slices` of `gpus`, 1 for whole ones. `topology` and `interconnect` are in
    lower case. `islands` are its linked GPUs, `is_one_island` where that is all of them. `cost` is per hour.
    """

    model: str = ""
    gpus: int = 0
    milli_cpu: int = 0
    memory_gb: int = 0
    memory_mib: int = 0
    devices: int = 0
    slices: int = 1
    is_mig: bool = False
    generation: int = 0
    topology: str = ""
    interconnect: str = ""
    islands: tuple[Island, ...] = ()
    is_one_island: bool = False
    is_spot: bool = False
    cost: float = 0.0

    @property
    def total_memory_gb(self) -> int:
        """The memory of all GPUs together, each once however many slices it is offered as; 0 if not known."""
        # Under MIG what the node offers has its own memory, which is what the label says.
        return (self.devices or self.gpus) * self.memory_gb

    @property
    def has_whole_gpus(self) -> bool:
        """Whether a GPU that the node offers is a whole one, and not a slice of one."""
        return self.slices == 1 and not self.is_mig

    @property
    def offers_more_than_it_has(self) -> bool:
        """Whether the node offers its GPUs several times, and a pod that asks for one gets all of it."""
        return self.has_whole_gpus and self.devices < self.gpus


def node_hardware(node: NodeInfo) -> NodeHardware:
    """Return what the node offers."""
    labels, gpus = node.labels, gpus_of(node.allocatable)
    topology = labels.get(keys.NODE_GPU_TOPOLOGY, "").lower()
    slices = max(1, whole_number(labels.get(keys.NODE_GPU_REPLICAS)) or 1)
    is_mig = labels.get(keys.NODE_MIG_STRATEGY) == "single" and _MIG in labels.get(keys.NODE_GPU_MODEL, "")
    islands = read_islands(labels, topology, gpus)
    parts = gpus + gpu_parts_of(node.allocatable)
    return NodeHardware(
        model=labels.get(keys.NODE_GPU_MODEL, ""),
        gpus=gpus,
        milli_cpu=node.allocatable.get("cpu", 0),
        memory_gb=_memory_gb(labels),
        memory_mib=_memory_mib(labels),
        devices=0 if is_mig else _devices(labels, parts, slices),
        # Parts under a name of their own leave the GPUs of the usual name whole.
        slices=slices if gpus else 1,
        is_mig=is_mig,
        generation=_generation(labels),
        topology=topology,
        interconnect=labels.get(keys.NODE_GPU_INTERCONNECT, "").lower(),
        islands=islands,
        is_one_island=any(island.size >= gpus for island in islands),
        is_spot=is_spot(labels),
        # A node without the label has an unknown cost, and does not count as free of charge.
        cost=price(labels.get(keys.NODE_COST_PER_HOUR)) or 0.0,
    )


def _generation(labels: Mapping[str, str]) -> int:
    """Return the generation of a node's GPUs: by label, else as discovered, else by their product's name."""
    value = labels.get(keys.NODE_GPU_GENERATION, "")
    if value:
        return generation_of(value)
    words = labels.get(keys.NODE_GPU_MODEL, "").lower().replace("_", "-").split("-")
    by_name = next((GENERATION_OF_MODEL[word] for word in words if word in GENERATION_OF_MODEL), 0)
    return by_name or generation_of(labels.get(keys.NODE_COMPUTE_MAJOR, ""))


def _memory_gb(labels: Mapping[str, str]) -> int:
    """Return the memory of one GPU in GB: by label `gpu-memory-gb`, else by NVIDIA's, else 0."""
    if keys.NODE_GPU_MEMORY_GB in labels:
        return whole_number(labels[keys.NODE_GPU_MEMORY_GB]) or 0
    # NVIDIA's label is in MiB and below the nominal size: 81,559 MiB are an 80 GB GPU.
    return round((whole_number(labels.get(keys.NODE_GPU_MEMORY_MIB)) or 0) / _MIB_PER_GB)


def _memory_mib(labels: Mapping[str, str]) -> int:
    """Return the memory of one GPU in MiB, by the same labels: as it is, and not the nominal size."""
    if keys.NODE_GPU_MEMORY_GB in labels:
        return (whole_number(labels[keys.NODE_GPU_MEMORY_GB]) or 0) * _MIB_PER_GB
    return whole_number(labels.get(keys.NODE_GPU_MEMORY_MIB)) or 0


def _devices(labels: Mapping[str, str], parts: int, slices: int) -> int:
    """Return how many GPUs the node has, which it offers as `parts`; each of them is offered `slices` times.

    Plugins such as HAMi's offer each GPU several times without that label; the number of GPUs is then told
    by NVIDIA's. A GPU that has failed is offered no longer.
    """
    offered = parts // slices
    counted = whole_number(labels.get(keys.NODE_GPU_COUNT))
    return min(_MOST_DEVICES, offered, counted or offered)


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
        facts = (
            *map(labels.get, _LABELS),
            islands,
            gpus_of(amounts),
            gpu_parts_of(amounts),
            amounts.get("cpu", 0),
        )
        kind = self._known.get(facts)
        if kind is None:
            if len(self._known) >= _MOST_KINDS:
                self._known.clear()
            kind = self._known[facts] = node_hardware(node)
        return kind
