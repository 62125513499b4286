"""Which hardware rules bind a pod: by its scheduler name, from the configuration of the extender.

A pod that asks for a model, memory, a generation or an interconnect by a key of its own is bound by that in
every profile. The rules below bind the pods of the profiles that list them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Rule(StrEnum):
    """The rules that a profile may list as filters, by their names in the configuration."""

    WORKLOAD_TYPE = "WorkloadType"
    LINKED_GPUS = "NVLinkTopology"
    INFERENCE_MEMORY = "InferenceMemory"
    GPU_AWARE = "GPUAware"


# The rules of every other scheduler name. They act only on pods with a key of their own.
ASKED_FOR = (Rule.WORKLOAD_TYPE, Rule.LINKED_GPUS)
BUILT_IN: Mapping[str, tuple[Rule, ...]] = {
    "gpu-aware-scheduler": (*ASKED_FOR, Rule.GPU_AWARE),
    "cost-optimized-scheduler": ASKED_FOR,
    "ai-scheduler": (*ASKED_FOR, Rule.INFERENCE_MEMORY),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareRules:
    """The rules by scheduler name, in the order in which they are applied, and their arguments.

    `required_topologies` are the values of `nvidia.com/gpu-topology` on which tensor parallelism runs.
    `min_gpu_memory_gb` is the least memory of a GPU, in GB, where GPUAware binds a pod.
    """

    profiles: Mapping[str, tuple[Rule, ...]] = field(default_factory=lambda: BUILT_IN)
    required_topologies: tuple[str, ...] = ("nvlink", "nvswitch")
    min_gpu_memory_gb: int = 8

    def of(self, scheduler_name: str) -> tuple[Rule, ...]:
        """Return the rules that bind pods with this spec.schedulerName."""
        return self.profiles.get(scheduler_name, ASKED_FOR)
