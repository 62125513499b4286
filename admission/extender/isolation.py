"""WorkloadIsolation: training apart from inference, inference packed by GPU memory but not to the brim.

                 neighbour of inference                  10
    training     enough free GPUs in a row               90
                 otherwise                               50

    inference    s = (GPU memory of inference here + its own) / GPU memory of the node
                 s < 0.7: 60      0.7 ≤ s ≤ 0.8: 95      s > 0.8: 30 (it may run out)      s > 1: refused

    others                                               50

Training wants a node to itself; inference may share, since its requests come in bursts. s is a fraction: in
whole numbers it would be nothing but 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable

from admission.extender.facts import NodeView, PodAsk
from admission.extender.rules import Arguments, Filter, Refusal, Scorer

_MIB_PER_GB = 1024
NEIGHBOUR, IN_A_ROW, PLAIN = 10, 90, 50
ROOMY, PACKED, TIGHT = 60, 95, 30
_PACKED_FROM, _TIGHT_FROM = 0.7, 0.8


def saturation(pod: PodAsk, view: NodeView) -> float | None:
    """Return which share of the node's GPU memory inference would take with this pod.

    None where the node does not tell how much it has.
    """
    memory = view.gpus * view.gpu_memory_gb * _MIB_PER_GB
    # Nothing is said of such a node, neither good nor bad.
    if memory <= 0:
        return None
    used = sum(one.gpu_memory_mib for one in view.pods if one.kind == "inference")
    return (used + pod.gpu_memory_mib) / memory


def longest_row(view: NodeView) -> int:
    """Return how many free GPUs of the node have numbers in a row.

    Pods that do not say which they were given are taken to have the lowest that are free, as device plug-ins
    give them.
    """
    taken = {number for pod in view.pods for number in pod.gpu_ids}
    free = [number for number in range(view.gpus) if number not in taken]
    untold = sum(pod.gpus for pod in view.pods if not pod.gpu_ids)
    return _longest(free[untold:])


def _longest(numbers: Iterable[int]) -> int:
    longest = length = 0
    last: int | None = None
    for number in numbers:
        length = length + 1 if last is not None and number == last + 1 else 1
        longest, last = max(longest, length), number
    return longest


def _score(pod: PodAsk, view: NodeView) -> float:
    if pod.kind == "training":
        # Low, and not refused: training beside inference is better than training that waits.
        if any(one.kind == "inference" for one in view.pods):
            return NEIGHBOUR
        return IN_A_ROW if longest_row(view) >= pod.gpus else PLAIN
    if pod.kind == "inference":
        share = saturation(pod, view)
        if share is None:
            return PLAIN
        # Up to here fuller is better, so that other nodes stay empty; beyond it requests begin to queue.
        if share > _TIGHT_FROM:
            return TIGHT
        return PACKED if share >= _PACKED_FROM else ROOMY
    return PLAIN


def _judge(pod: PodAsk, view: NodeView, arguments: Arguments) -> Refusal | None:
    del arguments
    share = saturation(pod, view)
    if share is None or share <= 1:
        return None
    memory = view.gpus * view.gpu_memory_gb
    needed = -(-pod.gpu_memory_mib // _MIB_PER_GB)
    reason = f"insufficient GPU memory for inference: {needed}GB more would make {share:.0%} of {memory}GB"
    # Final where the pod is too large for the node by itself.
    return Refusal(reason, is_final=pod.gpu_memory_mib > memory * _MIB_PER_GB)


MEMORY_FILTER = Filter(
    name="InferenceMemory",
    concerns=lambda pod: pod.kind == "inference" and pod.gpu_memory_mib > 0,
    judge=_judge,
)
ISOLATION_SCORE = Scorer(name="WorkloadIsolation", score=_score, most=100)
