"""WorkloadIsolation: training apart from inference; inference packed by GPU memory, but not completely.

                 a pod of inference on the node          10
    training     enough consecutive free GPUs            90
                 otherwise                               50

    inference    s = (GPU memory of inference here + its own) / GPU memory of the node
                 s < 0.7: 60      0.7 ≤ s ≤ 0.8: 95      s > 0.8: 30 (it may run out)

    others                                               50

Training should have a node to itself. Inference may share one, because its requests come in bursts. s is a
fraction; as a whole number it would only be 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterable

from admission.extender.facts import NodeView, PodFacts
from admission.extender.rules import Scorer

_MIB_PER_GB = 1024
NEIGHBOUR, IN_A_ROW, PLAIN = 10, 90, 50
ROOMY, PACKED, TIGHT = 60, 95, 30
_PACKED_FROM, _TIGHT_FROM = 0.7, 0.8


def saturation(pod: PodFacts, view: NodeView) -> float | None:
    """Return the share of the node's GPU memory that inference would use with this pod, from 0.

    Above 1 where it would not suffice. None where the node's GPU memory is unknown.
    """
    memory = view.hardware.total_memory_gb * _MIB_PER_GB
    # Without its GPU memory the node can be neither preferred nor refused.
    if memory <= 0:
        return None
    return (view.load.inference_mib + pod.hardware.memory_mib) / memory


def longest_row(view: NodeView) -> int:
    """Return the largest number of free GPUs with consecutive indexes on the node.

    Pods that do not record their GPUs are assumed to have the lowest free ones, as device plugins give them.
    """
    taken = {number for pod in view.pods for number in pod.gpu_ids}
    free = [number for number in range(view.hardware.gpus) if number not in taken]
    unrecorded = sum(pod.gpus for pod in view.pods if not pod.gpu_ids)
    return _longest(free[unrecorded:])


def _longest(numbers: Iterable[int]) -> int:
    longest = length = 0
    last: int | None = None
    for number in numbers:
        length = length + 1 if last is not None and number == last + 1 else 1
        longest, last = max(longest, length), number
    return longest


def _score(pod: PodFacts, view: NodeView) -> float:
    if pod.hardware.kind == "training":
        # A low score, not a refusal: training beside inference is better than training that waits.
        if any(one.hardware.kind == "inference" for one in view.pods):
            return NEIGHBOUR
        return IN_A_ROW if longest_row(view) >= pod.gpus else PLAIN
    if pod.hardware.kind == "inference":
        share = saturation(pod, view)
        if share is None:
            return PLAIN
        # Up to 0.8 fuller is better, so that other nodes stay empty; beyond it requests begin to queue.
        if share > _TIGHT_FROM:
            return TIGHT
        return PACKED if share >= _PACKED_FROM else ROOMY
    return PLAIN


ISOLATION_SCORE = Scorer(name="WorkloadIsolation", score=_score, most=100)
