"""The one function that decides whether a pod fits a node's hardware: `misfit`.

What is asked is compiled once for a pod (`request_of`) from what its keys say, its GPUs and the rules that
bind it. The first that refuses is reported:

    model, generation, interconnect    asked by the pod's own keys
    the rules of its profile           in their configured order
        WorkloadType                   the node has the CPUs or GPUs that the pod is made for
        NVLinkTopology                 tensor parallelism on a fast fabric, `ddp` within one island
        InferenceMemory                what inference on the node uses in all
        GPUAware                       free GPUs, and the least memory of each
    memory                             of each GPU, asked by the pod's own key; of all GPUs for inference
    share                              of one GPU, asked by the pod's own key

Without a load a node is judged as if it were empty: what is refused then, no eviction can change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from admission.hardware.gpu_shares import PodGpus, can_hold, linked_pods
from admission.hardware.islands import free_in_islands
from admission.hardware.node_hardware import NodeHardware
from admission.hardware.pod_hardware import CPU_INTENSIVE, GPU_INTENSIVE, TENSOR, PodHardware
from admission.hardware.rules import HardwareRules, Rule
from api.jobs.gpu_share import GpuShare
from api.jobs.inference_memory import INFERENCE
from api.jobs.linked_gpus import DDP

NO_MODEL_LABEL = "Node does not have a GPU model label"
OTHER_MODEL = "GPU model mismatch"
_LEAST_MILLI_CPU = 2000
_MIB_PER_GB = 1024


class HardwareRequest(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What one pod needs of its node; empty texts and 0 need nothing.

    `memory_gb` is that of each GPU. `rules` are those that bind the pod and concern it, in their order:
    `topologies` belong to NVLinkTopology, which without any asks for one island, and `inference_mib` to
    InferenceMemory and to the memory of all GPUs.
    """

    gpus: int = 0
    model: str = ""
    generation: int = 0
    interconnect: str = ""
    memory_gb: int = 0
    rules: tuple[Rule, ...] = ()
    intensity: str = ""
    topologies: tuple[str, ...] = ()
    inference_mib: int = 0
    share: GpuShare | None = None

    @property
    def is_linked(self) -> bool:
        """Whether all GPUs of the pod must be in one island."""
        return Rule.LINKED_GPUS in self.rules and not self.topologies


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What pods use of a node: its GPUs in all by pod (`gpu_shares.counted`), and the memory of inference."""

    gpus: int = 0
    pods: Sequence[PodGpus] = ()
    inference_mib: int = 0


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """Why a node does not fit: a reason that nodes share, and with `detail` what was needed and found."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


_IDLE = NodeLoad()


def request_of(
    pod: PodHardware, gpus: int, rules: HardwareRules, scheduler_name: str
) -> HardwareRequest | None:
    """Return what a pod with this number of GPUs needs; None where every node fits."""
    binding = tuple(rule for rule in rules.of(scheduler_name) if _concerns(rule, pod, gpus))
    share = GpuShare(pod.gpu_milli, pod.memory_mib) if pod.gpu_milli and gpus <= 1 else None
    # A share is one of a single GPU, by whatever resource it is mounted.
    gpus = max(gpus, 1) if share is not None else gpus
    # Rounded up: a GPU with slightly less memory than the pod needs does not suffice.
    memory_gb = -(-pod.memory_mib // (gpus * _MIB_PER_GB)) if gpus > 0 else 0
    if Rule.GPU_AWARE in binding:
        memory_gb = max(memory_gb, rules.min_gpu_memory_gb)
    inference = pod.memory_mib if pod.kind == INFERENCE else 0
    # As a rule a pod asks for nothing, and this is called for each placement.
    if not (binding or memory_gb or inference or share or pod.model or pod.generation or pod.interconnect):
        return None
    is_tensor = Rule.LINKED_GPUS in binding and pod.parallelism == TENSOR
    return HardwareRequest(
        gpus=gpus,
        model=pod.model,
        generation=pod.generation,
        interconnect=pod.interconnect,
        memory_gb=memory_gb,
        rules=binding,
        intensity=pod.intensity if Rule.WORKLOAD_TYPE in binding else "",
        topologies=rules.required_topologies if is_tensor else (),
        inference_mib=inference,
        share=share,
    )


def _concerns(rule: Rule, pod: PodHardware, gpus: int) -> bool:
    """Return whether a rule has anything to say about the pod."""
    match rule:
        case Rule.WORKLOAD_TYPE:
            return bool(pod.intensity)
        case Rule.LINKED_GPUS:
            return gpus > 1 and pod.parallelism in (DDP, TENSOR)
        case Rule.INFERENCE_MEMORY:
            return pod.kind == INFERENCE and pod.memory_mib > 0
        case Rule.GPU_AWARE:
            return gpus > 0


def misfit(need: HardwareRequest, node: NodeHardware, load: NodeLoad = _IDLE) -> Misfit | None:
    """Return why a pod with these needs does not fit the node beside this load, None where it fits."""
    found = model_misfit(need.model, node.model) or _asked_misfit(need, node)
    if found is not None:
        return found
    for rule in need.rules:
        found = _CHECKS[rule](need, node, load)
        if found is not None:
            return found
    # Only InferenceMemory counts what other pods use; admission counts it for all, as it does GPUs.
    memory = _memory_misfit(need, node) or _inference_misfit(need, node, _IDLE)
    return memory or _share_misfit(need, node, load)


def model_misfit(wanted: str, model: str) -> Misfit | None:
    """Return why GPUs of this model do not suit a pod that asks for another, None where they do.

    Models are compared case-insensitively. A pod that names no model can run on every node.
    """
    if not wanted or model.lower() == wanted.lower():
        return None
    if not model:
        return Misfit(reason=NO_MODEL_LABEL, detail=f"need {wanted}")
    return Misfit(reason=OTHER_MODEL, detail=f"need {wanted}, has {model}")


def _asked_misfit(need: HardwareRequest, node: NodeHardware) -> Misfit | None:
    if node.generation < need.generation:
        detail = f"need {need.generation}, has {node.generation or 'no known one'}"
        return Misfit(reason="GPU generation too old", detail=detail)
    if need.interconnect and need.interconnect not in (node.interconnect, node.topology):
        detail = f"need {need.interconnect}, has {node.interconnect or node.topology or 'no known one'}"
        return Misfit(reason="GPU interconnect mismatch", detail=detail)
    return None


def _type_misfit(need: HardwareRequest, node: NodeHardware, _: NodeLoad) -> Misfit | None:
    if need.intensity == CPU_INTENSIVE and node.milli_cpu < _LEAST_MILLI_CPU:
        return Misfit(reason="Node lacks CPU resources")
    # By amount, because a node that lists zero GPUs has none.
    if need.intensity == GPU_INTENSIVE and node.gpus <= 0:
        return Misfit(reason="Node lacks GPU resources")
    return None


def _link_misfit(need: HardwareRequest, node: NodeHardware, load: NodeLoad) -> Misfit | None:
    # Slices of one GPU have no link between them, whatever links the GPUs.
    if not node.has_whole_gpus:
        return Misfit(reason="GPUs of the node are shared or partitioned, and the pod needs linked ones")
    if need.topologies:
        if node.topology in need.topologies:
            return None
        return Misfit(reason="Tensor parallelism demands NVLink/NVSwitch fabric")
    pods = linked_pods(node.devices, node.memory_mib, load.pods)
    if max(free_in_islands(node.islands, pods), default=0) >= need.gpus:
        return None
    return Misfit(reason=f"Node lacks {need.gpus} GPUs in unified NVLink island")


def _inference_misfit(need: HardwareRequest, node: NodeHardware, load: NodeLoad) -> Misfit | None:
    memory_gb = node.total_memory_gb
    used = load.inference_mib + need.inference_mib
    # Without its GPU memory the node can be neither preferred nor refused.
    if memory_gb <= 0 or used <= memory_gb * _MIB_PER_GB:
        return None
    share, more = used / (memory_gb * _MIB_PER_GB), -(-need.inference_mib // _MIB_PER_GB)
    reason = f"insufficient GPU memory for inference: {more}GB more would make {share:.0%} of {memory_gb}GB"
    return Misfit(reason=reason)


def _gpu_misfit(need: HardwareRequest, node: NodeHardware, load: NodeLoad) -> Misfit | None:
    free = node.gpus - load.gpus
    if free < need.gpus:
        return Misfit(reason=f"insufficient GPU: need {need.gpus}, available {max(0, free)}")
    return _memory_misfit(need, node)


def _memory_misfit(need: HardwareRequest, node: NodeHardware) -> Misfit | None:
    if node.memory_gb >= need.memory_gb:
        return None
    return Misfit(reason=f"insufficient GPU memory: need {need.memory_gb}GB, available {node.memory_gb}GB")


def _share_misfit(need: HardwareRequest, node: NodeHardware, load: NodeLoad) -> Misfit | None:
    if need.share is None:
        return None
    if node.devices <= 0:
        is_cut = "partitioned by MIG" if node.is_mig else "none"
        return Misfit(reason="Node has no GPU to share", detail=f"its GPUs: {is_cut}")
    pods = (*load.pods, PodGpus(share=need.share))
    if can_hold(node.devices, node.memory_mib, pods):
        return None
    return Misfit(reason="insufficient share of a GPU", detail=f"need {need.share.milli} milli of one")


_CHECKS: Mapping[Rule, Callable[[HardwareRequest, NodeHardware, NodeLoad], Misfit | None]] = {
    Rule.WORKLOAD_TYPE: _type_misfit,
    Rule.LINKED_GPUS: _link_misfit,
    Rule.INFERENCE_MEMORY: _inference_misfit,
    Rule.GPU_AWARE: _gpu_misfit,
}
