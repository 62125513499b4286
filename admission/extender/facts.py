"""A pod and a node as the extender's rules see them: gathered once a request, not once a node and rule.

What a pod wants stands in its own words first (annotation before label, Berth's key before the articles'), so
that a pod that says nothing of a subject is left alone by the rules of that subject.
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
from api.objects import PodObject
from api.parsing.decimals import whole_number

_CHECKPOINT_KEYS = (
    keys.CHECKPOINT_TIME,
    keys.CHECKPOINT_SAVE_SECONDS,
    keys.CHECKPOINT_RESTART_SECONDS,
    keys.CHECKPOINT_INTERVAL_SECONDS,
)
_MIB_PER_GB = 1024
# The product names of NVIDIA's feature discovery are the generation's word and more: "NVIDIA-H100-80GB-HBM3".
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
class PodAsk:
    """What a pod asks for, or takes where it is bound. Amounts in canonical units."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @cached_property
    def gpus(self) -> int:
        """All GPUs of all its containers."""
        return gpus_of(self.requests)

    @cached_property
    def kind(self) -> str:
        """training, inference or batch; empty where it does not say."""
        # Another word is none: rules must not guess what was meant.
        said = self._say(keys.WORKLOAD_TYPE).lower()
        return said if said in WORKLOAD_TYPES else ""

    @cached_property
    def intensity(self) -> str:
        """The label workload-type: CPU-intensive, GPU-intensive, or another's word."""
        return self.labels.get(keys.ALIASES[keys.WORKLOAD_TYPE], "")

    @cached_property
    def parallelism(self) -> str:
        """ddp, tensor or none; empty where it does not say."""
        return self._say(keys.PARALLELISM).lower()

    @cached_property
    def gpu_memory_mib(self) -> int:
        """GPU memory that it needs in all, 0 where it does not say or what it says is no number."""
        return whole_number(self._say(keys.GPU_MEMORY_MIB)) or 0

    @cached_property
    def gpu_ids(self) -> tuple[int, ...]:
        """Which of its node's GPUs it has been given, () where nobody says."""
        parts = self.annotations.get(keys.GPU_IDS, "").split(",")
        # What is no number is left out, so that one bad part leaves the others their meaning.
        ids = (whole_number(part.strip()) for part in parts)
        return tuple(one for one in ids if one is not None)

    @property
    def may_be_interrupted(self) -> bool:
        """Whether it bears to lose its node: not inference, nor training that tells of no checkpoint."""
        if self.kind == "training":
            return any(key in self.annotations for key in _CHECKPOINT_KEYS)
        # Batch, and what says nothing, may be started anew elsewhere.
        return self.kind != "inference"

    def _say(self, key: str) -> str:
        return read_key(key, (self.annotations, self.labels), with_aliases=True)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node, and what is bound to it. `used` sums the requests of its pods that have not finished."""

    node: NodeInfo
    used: Mapping[str, int] = field(default_factory=dict)
    pods: tuple[PodAsk, ...] = ()

    @cached_property
    def gpus(self) -> int:
        """Allocatable GPUs."""
        return gpus_of(self.node.allocatable)

    @cached_property
    def used_gpus(self) -> int:
        """GPUs of the pods that are bound here."""
        return gpus_of(self.used)

    @cached_property
    def gpu_memory_gb(self) -> int:
        """Memory of one GPU: label `gpu-memory-gb`, else NVIDIA's `nvidia.com/gpu.memory` (MiB), else 0."""
        labels = self.node.labels
        if keys.NODE_GPU_MEMORY_GB in labels:
            return whole_number(labels[keys.NODE_GPU_MEMORY_GB]) or 0
        # 81,559 MiB are sold as 80 GB.
        return round((whole_number(labels.get(keys.NODE_GPU_MEMORY_MIB)) or 0) / _MIB_PER_GB)

    @cached_property
    def generation(self) -> int:
        """The GPUs' generation by label `gpu-generation`, else by their product's name; 0: unknown."""
        said = self.node.labels.get(keys.NODE_GPU_GENERATION, "").lower()
        if said:
            return _GENERATIONS.get(said, 0)
        words = self.node.labels.get(keys.NODE_GPU_MODEL, "").lower().replace("_", "-").split("-")
        return next((_GENERATIONS[word] for word in words if word in _GENERATIONS), 0)


def to_ask(pod: PodObject) -> PodAsk:
    """Return the pod as the rules see it. Raises QuantityError where a request cannot be read."""
    return PodAsk(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        labels=pod.metadata.labels or {},
        annotations=pod.metadata.annotations or {},
        requests=pod_requests(pod.spec),
    )
