"""GPUAware: nodes with enough free GPUs of enough memory; the emptier, larger, newer and better linked first.

    score = 2·(100 − used·100/all) + 3·memory in GB + 100 where NVLink + 10·generation

The first term spreads, the opposite of packing: pods get GPUs that nobody else heats or saturates. What is
compared is allocatable, which the kubelet has already cut down, less the pods that have not finished:
counting finished ones would fill a node with the dead.
"""

from __future__ import annotations

from admission.extender.facts import NodeView, PodAsk
from admission.extender.rules import Arguments, Filter, Refusal, Scorer
from api import keys

_MIB_PER_GB = 1024


def _judge(pod: PodAsk, view: NodeView, arguments: Arguments) -> Refusal | None:
    free = view.gpus - view.used_gpus
    if free < pod.gpus:
        reason = f"insufficient GPU: need {pod.gpus}, available {max(0, free)}"
        # Evicting pods helps only where the node has enough of them at all.
        return Refusal(reason, is_final=view.gpus < pod.gpus)
    # Rounded up: a GPU with a little less than the pod needs will not do.
    needed = max(arguments.min_gpu_memory_gb, -(-pod.gpu_memory_mib // (pod.gpus * _MIB_PER_GB)))
    if view.gpu_memory_gb < needed:
        reason = f"insufficient GPU memory: need {needed}GB, available {view.gpu_memory_gb}GB"
        return Refusal(reason, is_final=True)
    return None


def _score(pod: PodAsk, view: NodeView) -> float:
    del pod
    free = 100 - view.used_gpus * 100 / view.gpus if view.gpus > 0 else 0.0
    linked = view.node.labels.get(keys.NODE_GPU_INTERCONNECT, "").lower() == "nvlink"
    return max(0.0, free) * 2 + view.gpu_memory_gb * 3 + (100 if linked else 0) + view.generation * 10


GPU_AWARE_FILTER = Filter(name="GPUAware", concerns=lambda pod: pod.gpus > 0, judge=_judge)
GPU_AWARE_SCORE = Scorer(name="GPUAware", score=_score)
