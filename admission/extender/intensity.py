"""WorkloadType: pods labelled CPU- or GPU-intensive run only on nodes with that resource.

Training and inference are also values of the label `workload-type`; this filter ignores them.
"""

from __future__ import annotations

from admission.extender.facts import NodeView, PodFacts
from admission.extender.rules import Arguments, Filter, Refusal

CPU_INTENSIVE, GPU_INTENSIVE = "CPU-intensive", "GPU-intensive"
_LEAST_MILLI_CPU = 2000


def _judge(pod: PodFacts, view: NodeView, arguments: Arguments) -> Refusal | None:
    del arguments
    if pod.intensity == CPU_INTENSIVE and view.node.allocatable.get("cpu", 0) < _LEAST_MILLI_CPU:
        return Refusal("Node lacks CPU resources", is_final=True)
    # By amount, because a node that lists zero GPUs has none.
    if pod.intensity == GPU_INTENSIVE and view.gpus <= 0:
        return Refusal("Node lacks GPU resources", is_final=True)
    return None


INTENSITY_FILTER = Filter(
    name="WorkloadType",
    concerns=lambda pod: pod.intensity in (CPU_INTENSIVE, GPU_INTENSIVE),
    judge=_judge,
)
