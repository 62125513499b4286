"""GPUAware: emptier, larger, newer and linked nodes score higher.

    score = 2·(100 − used·100/all) + 3·memory in GB + 100 where NVLink + 10·generation

The first term spreads pods, the opposite of packing, so that a pod's GPUs share heat and bandwidth with few
others.
"""

from __future__ import annotations

from admission.extender.facts import NodeView, PodFacts
from admission.extender.rules import Scorer


def _score(pod: PodFacts, view: NodeView) -> float:
    del pod
    node = view.hardware
    free = 100 - view.load.gpus * 100 / node.gpus if node.gpus > 0 else 0.0
    linked = 100 if node.interconnect == "nvlink" else 0
    return max(0.0, free) * 2 + node.memory_gb * 3 + linked + node.generation * 10


GPU_AWARE_SCORE = Scorer(name="GPUAware", score=_score)
