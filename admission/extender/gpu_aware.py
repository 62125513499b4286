"""GPUAware: nodes with enough free GPUs and GPU memory; emptier, larger, newer and linked ones score higher.

    score = 2·(100 − used·100/all) + 3·memory in GB + 100 where NVLink + 10·generation

The first term spreads pods, the opposite of packing, so that a pod's GPUs share heat and bandwidth with few
others. Free GPUs are the allocatable ones, as reported by the kubelet, less those of pods that have not
finished. Finished pods hold no GPU.
"""

from __future__ import annotations

from admission.extender.facts import NodeView, PodFacts
from admission.extender.rules import Arguments, Filter, Refusal, Scorer
from api import keys

_MIB_PER_GB = 1024


def _judge(pod: PodFacts, view: NodeView, arguments: Arguments) -> Refusal | None:
    free = view.gpus - view.used_gpus
    if free < pod.gpus:
        reason = f"insufficient GPU: need {pod.gpus}, available {max(0, free)}"
        # Final unless evictions could free enough GPUs.
        return Refusal(reason, is_final=view.gpus < pod.gpus)
    # Rounded up: a GPU with slightly less memory than the pod needs does not suffice.
    needed = max(arguments.min_gpu_memory_gb, -(-pod.gpu_memory_mib // (pod.gpus * _MIB_PER_GB)))
    if view.gpu_memory_gb < needed:
        reason = f"insufficient GPU memory: need {needed}GB, available {view.gpu_memory_gb}GB"
        return Refusal(reason, is_final=True)
    return None


def _score(pod: PodFacts, view: NodeView) -> float:
    del pod
    free = 100 - view.used_gpus * 100 / view.gpus if view.gpus > 0 else 0.0
    linked = view.node.labels.get(keys.NODE_GPU_INTERCONNECT, "").lower() == "nvlink"
    return max(0.0, free) * 2 + view.gpu_memory_gb * 3 + (100 if linked else 0) + view.generation * 10


GPU_AWARE_FILTER = Filter(name="GPUAware", concerns=lambda pod: pod.gpus > 0, judge=_judge)
GPU_AWARE_SCORE = Scorer(name="GPUAware", score=_score)
