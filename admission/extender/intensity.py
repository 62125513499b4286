"""WorkloadType: pods that call themselves CPU- or GPU-intensive run where there is something for them.

The label `workload-type` is also the articles' word for training and inference; those values pass here.
"""

from __future__ import annotations

from admission.extender.facts import NodeView, PodAsk
from admission.extender.rules import Arguments, Filter, Refusal

CPU_INTENSIVE, GPU_INTENSIVE = "CPU-intensive", "GPU-intensive"
_LEAST_MILLI_CPU = 2000


def _judge(pod: PodAsk, view: NodeView, arguments: Arguments) -> Refusal | None:
    del arguments
    if pod.intensity == CPU_INTENSIVE and view.node.allocatable.get("cpu", 0) < _LEAST_MILLI_CPU:
        return Refusal("Node lacks CPU resources", is_final=True)
    # By the resource's name and amount: a node that lists zero GPUs has none.
    if pod.intensity == GPU_INTENSIVE and view.gpus <= 0:
        return Refusal("Node lacks GPU resources", is_final=True)
    return None


INTENSITY_FILTER = Filter(
    name="WorkloadType",
    concerns=lambda pod: pod.intensity in (CPU_INTENSIVE, GPU_INTENSIVE),
    judge=_judge,
)
