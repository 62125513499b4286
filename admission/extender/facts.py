"""A pod and a node as the extender's rules see them, gathered once per request and not per node and rule.

What a pod wants is read from its own annotations and labels (annotation before label, Berth's key before its
aliases), so a pod that says nothing about a subject is not affected by the rules of that subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from api import keys
from api.jobs.checkpoint_annotations import WORKLOAD_TYPES
from api.jobs.placement_annotations import read_key
from api.jobs.resource_requests import gpus_of, pod_requests
from api.node import NodeInfo
from api.objects.cluster import PodObject
from api.parsing.decimals import whole_number

_CHECKPOINT_KEYS = (
    keys.CHECKPOINT_TIME,
    keys.CHECKPOINT_SAVE_SECONDS,
    keys.CHECKPOINT_RESTART_SECONDS,
    keys.CHECKPOINT_INTERVAL_SECONDS,
)
_MIB_PER_GB = 1024
# NVIDIA's feature discovery writes product names that contain the model: "NVIDIA-H100-80GB-HBM3".
_GENERATIONS = {
    "t4": 7,
    "v100": 7,
    "a10": 8,
    "a30": 8,
    "a40": 8,
    "a100": 8,
    "l4": 8,
    "l40s": 8,
    "h100": 9,
    "h200": 9,
    "gh200": 9,
    "b200": 10,
    "gb200": 10,
}


@dataclass(frozen=True, kw_only=True)
class PodFacts:
    """What a pod requests, or uses where it is bound. Amounts are in canonical units."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @cached_property
    def gpus(self) -> int:
        """The GPUs of all its containers together."""
        return gpus_of(self.requests)

    @cached_property
    def kind(self) -> str:
        """training, inference or batch; empty where the pod names none of these."""
        # Any other word counts as none, because rules must not guess.
        value = self._read(keys.WORKLOAD_TYPE).lower()
        return value if value in WORKLOAD_TYPES else ""

    @cached_property
    def intensity(self) -> str:
        """The label workload-type: CPU-intensive, GPU-intensive, or any other value."""
        return self.labels.get(keys.ALIASES[keys.WORKLOAD_TYPE], "")

    @cached_property
    def parallelism(self) -> str:
        """ddp, tensor or none; empty where the pod does not say."""
        return self._read(keys.PARALLELISM).lower()

    @cached_property
    def gpu_memory_mib(self) -> int:
        """The GPU memory that the pod needs in all, in MiB; 0 where it gives none, or no whole number."""
        return whole_number(self._read(keys.GPU_MEMORY_MIB)) or 0

    @cached_property
    def gpu_ids(self) -> tuple[int, ...]:
        """The indexes of the node's GPUs that the pod was given; () where they are not recorded."""
        parts = self.annotations.get(keys.GPU_IDS, "").split(",")
        # Parts that are not numbers are left out, so that the others still count.
        ids = (whole_number(part.strip()) for part in parts)
        return tuple(one for one in ids if one is not None)

    @property
    def may_be_interrupted(self) -> bool:
        """Whether the pod may lose its node: not inference, and not training without checkpoints."""
        if self.kind == "training":
            return any(key in self.annotations for key in _CHECKPOINT_KEYS)
        # Batch pods, and pods that do not say, can be started again elsewhere.
        return self.kind != "inference"

    def _read(self, key: str) -> str:
        return read_key(key, (self.annotations, self.labels), with_aliases=True)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node with the pods bound to it. `used` sums the requests of those that have not finished."""

    node: NodeInfo
    used: Mapping[str, int] = field(default_factory=dict)
    pods: tuple[PodFacts, ...] = ()

    @cached_property
    def gpus(self) -> int:
        """The number of allocatable GPUs."""
        return gpus_of(self.node.allocatable)

    @cached_property
    def used_gpus(self) -> int:
        """The number of GPUs that the pods bound here request."""
        return gpus_of(self.used)

    @cached_property
    def gpu_memory_gb(self) -> int:
        """Memory of one GPU in GB: label `gpu-memory-gb`, else NVIDIA's `nvidia.com/gpu.memory`, else 0."""
        labels = self.node.labels
        if keys.NODE_GPU_MEMORY_GB in labels:
            return whole_number(labels[keys.NODE_GPU_MEMORY_GB]) or 0
        # NVIDIA's label is in MiB and below the nominal size: 81,559 MiB are an 80 GB GPU.
        return round((whole_number(labels.get(keys.NODE_GPU_MEMORY_MIB)) or 0) / _MIB_PER_GB)

    @cached_property
    def generation(self) -> int:
        """The GPUs' generation by label `gpu-generation`, else by their product's name; 0 for unknown."""
        value = self.node.labels.get(keys.NODE_GPU_GENERATION, "").lower()
        if value:
            return _GENERATIONS.get(value, 0)
        words = self.node.labels.get(keys.NODE_GPU_MODEL, "").lower().replace("_", "-").split("-")
        return next((_GENERATIONS[word] for word in words if word in _GENERATIONS), 0)


def to_ask(pod: PodObject) -> PodFacts:
    """Return the pod as the rules see it. Raises QuantityError where a request cannot be parsed."""
    return PodFacts(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        labels=pod.metadata.labels or {},
        annotations=pod.metadata.annotations or {},
        requests=pod_requests(pod.spec),
    )
