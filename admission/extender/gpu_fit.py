"""What the scheduler extender answers: which nodes a pod may run on, and how well each suits it.

Filter: a pod that names a GPU model runs on nodes of that model alone; mixing models stalls or breaks a
training job, and all of them advertise the same `nvidia.com/gpu`. Prioritize, from 0 to 10: first the NVLink
fabric that the pod's training job is already in, else the NUMA node that the pod prefers. kube-scheduler
multiplies the score with the extender's weight and adds those of its own plugins: a score moves, the filter
decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from api.wire.extender import NO_LABELS, NodeLabels, PodNeeds

# The extender protocol's range; kube-scheduler scales it to its own 0-100.
BEST_SCORE = 10
PLAIN_SCORE = 1
NO_SCORE = 0

NO_MODEL_LABEL = "Node does not have a GPU model label"
OTHER_MODEL = "GPU model mismatch"
UNKNOWN_NODE = "Node is not known to the extender"


@dataclass(frozen=True, slots=True)
class NodeCandidates:
    """The nodes in question, in the order asked: names, and labels beside them.

    Labels are None for a node that is not known here. Two columns and no rows, because kube-scheduler waits
    while thousands are looked at for each pod.
    """

    names: Sequence[str]
    labels: Sequence[NodeLabels | None]


class Affinity(StrEnum):
    """What the scores of one call go by."""

    NONE = "none"
    NUMA = "NUMA"
    FABRIC = "fabric"


@dataclass(frozen=True, slots=True)
class Scores:
    """One score for each candidate, in their order."""

    affinity: Affinity
    values: Sequence[int]


def failed_nodes(pod: PodNeeds, candidates: NodeCandidates) -> Mapping[str, str]:
    """Return the nodes that the pod cannot run on, with the reason; the others pass.

    Models are compared without regard to case. A pod that names no model can run on every node.
    """
    if not pod.gpu_model:
        return {}
    # A cluster has a few models and thousands of nodes, so each model is judged once.
    verdicts: dict[str, str] = {}
    failed = {}
    for name, labels in zip(candidates.names, candidates.labels, strict=True):
        if labels is None:
            failed[name] = UNKNOWN_NODE
            continue
        model = labels.gpu_model
        verdict = verdicts.get(model)
        if verdict is None:
            verdict = verdicts[model] = _verdict(model, pod.gpu_model)
        if verdict:
            failed[name] = verdict
    return failed


def _verdict(model: str, wanted: str) -> str:
    """Return why a node of this model fails, empty where it passes."""
    if model.lower() == wanted.lower():
        return ""
    return OTHER_MODEL if model else NO_MODEL_LABEL


def score_nodes(
    pod: PodNeeds,
    candidates: NodeCandidates,
    *,
    fabrics: Collection[str] = (),
    expected_fabric: str = "",
) -> Scores:
    """Return how well each candidate suits the pod, from 0 to 10.

    `fabrics`: those that pods of its training job are in; their nodes get 10, all others 1. Without any the
    NUMA node counts: 10 where the node's is the preferred one, else 1, and 0 everywhere for a pod without
    GPUs. `expected_fabric`: where the job's first pods are being sent; nodes elsewhere then get at most 9.
    """
    # The job's pods are there already: whatever else speaks for another node, NVLink across
    # fabrics does not exist.
    if fabrics:
        near = [_fabric(labels) in fabrics for labels in candidates.labels]
        return Scores(Affinity.FABRIC, [BEST_SCORE if one else PLAIN_SCORE for one in near])
    # A pod without GPUs gets nothing from either affinity, and no score says so.
    if pod.gpus == 0:
        return Scores(Affinity.NONE, [NO_SCORE] * len(candidates.names))
    values = _numa_scores(pod, candidates)
    if expected_fabric:
        values = [
            # At most one below the best: elsewhere a node may still win by kube-scheduler's own scores.
            min(value, BEST_SCORE - 1 if _fabric(labels) != expected_fabric else BEST_SCORE)
            for value, labels in zip(values, candidates.labels, strict=True)
        ]
    return Scores(Affinity.NUMA, values)


def _numa_scores(pod: PodNeeds, candidates: NodeCandidates) -> list[int]:
    wanted = pod.numa_node
    return [
        BEST_SCORE if labels is not None and labels.numa_node == wanted else PLAIN_SCORE
        for labels in candidates.labels
    ]


def roomiest_fabric(pod: PodNeeds, candidates: NodeCandidates) -> str:
    """Return the fabric to send a training job's first pod to; empty where no candidate is in one.

    It is the one whose nodes' scores make up the most, since the rest of the job has to fit in too. Equals
    fall by name, so that two replicas that are asked the same choose the same.
    """
    values = _numa_scores(pod, candidates)
    most = Counter[str]()
    for value, labels in zip(values, candidates.labels, strict=True):
        if fabric := _fabric(labels):
            most[fabric] += value
    return min(most, key=lambda fabric: (-most[fabric], fabric), default="")


def _fabric(labels: NodeLabels | None) -> str:
    return (labels or NO_LABELS).fabric
