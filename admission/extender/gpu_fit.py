"""The extender's answers by GPU model, NVLink fabric and NUMA node.

Filter: a pod that names a GPU model runs only on nodes of that model. A mix of models stalls or breaks a
training job, and all models advertise the same resource `nvidia.com/gpu`. Prioritize, from 0 to 10: first the
NVLink fabric that the pod's training job is already in, otherwise the NUMA node that the pod prefers.
kube-scheduler multiplies the score by the extender's weight and adds the scores of its own plugins, so a
score only influences the choice, while the filter decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from admission.hardware.fit import model_misfit
from api.wire.extender import NO_LABELS, NodeLabels, PodNeeds

# The score range of the extender protocol, which kube-scheduler scales to its own 0-100.
BEST_SCORE = 10
PLAIN_SCORE = 1
NO_SCORE = 0

UNKNOWN_NODE = "Node is not known to the extender"


@dataclass(frozen=True, slots=True)
class NodeCandidates:
    """The candidate nodes in the order of the request: their names, and their labels beside them.

    Labels are None for an unknown node. Two columns instead of one object per node, because kube-scheduler
    waits while thousands of nodes are evaluated for each pod.
    """

    names: Sequence[str]
    labels: Sequence[NodeLabels | None]


class Affinity(StrEnum):
    """What the scores of one call are based on."""

    NONE = "none"
    NUMA = "NUMA"
    FABRIC = "fabric"


@dataclass(frozen=True, slots=True)
class Scores:
    """One score for each candidate, in their order."""

    affinity: Affinity
    values: Sequence[int]


def failed_nodes(pod: PodNeeds, candidates: NodeCandidates) -> Mapping[str, str]:
    """Return the nodes that the pod cannot run on, with the reason. All others pass.

    Models are compared case-insensitively. A pod that names no model can run on every node.
    """
    if not pod.gpu_model:
        return {}
    # A cluster has few models and thousands of nodes, so each model is compared once.
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
    """Return why a node of this model fails; empty where it passes."""
    found = model_misfit(wanted, model)
    return found.reason if found is not None else ""


def score_nodes(
    pod: PodNeeds,
    candidates: NodeCandidates,
    *,
    fabrics: Collection[str] = (),
    expected_fabric: str = "",
) -> Scores:
    """Return how well each candidate suits the pod, from 0 to 10.

    `fabrics` are those that pods of its training job are in: their nodes get 10, all others 1. Without
    any, nodes with the preferred NUMA node get 10 and others 1, and a pod without GPUs gives 0
    everywhere. `expected_fabric` is the fabric that the job's first pods are being sent to; nodes
    elsewhere then get at most 9.
    """
    # Pods of the job are already running. Nothing outweighs that, because NVLink does not reach
    # from one fabric to another.
    if fabrics:
        near = [_fabric(labels) in fabrics for labels in candidates.labels]
        return Scores(Affinity.FABRIC, [BEST_SCORE if one else PLAIN_SCORE for one in near])
    # Neither affinity matters to a pod without GPUs.
    if pod.gpus == 0:
        return Scores(Affinity.NONE, [NO_SCORE] * len(candidates.names))
    values = _numa_scores(pod, candidates)
    if expected_fabric:
        values = [
            # One below the best, so that kube-scheduler's own scores may still favour a node elsewhere.
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

    It is the fabric with the highest sum of its nodes' scores, because the rest of the job has to fit as
    well. Ties are broken by name, so that two replicas choose the same fabric.
    """
    values = _numa_scores(pod, candidates)
    most = Counter[str]()
    for value, labels in zip(values, candidates.labels, strict=True):
        if fabric := _fabric(labels):
            most[fabric] += value
    return min(most, key=lambda fabric: (-most[fabric], fabric), default="")


def _fabric(labels: NodeLabels | None) -> str:
    return (labels or NO_LABELS).fabric
