"""The LeaderWorkerSets in queues: which set a group of pods belongs to, and how many groups it should have.

The pods of a set belong to StatefulSets that come and go with each group, so no owner of a pod outlives its
group. The set itself does, and is found by the labels of the pods. A group that is evicted keeps its
Workload, and therefore its place in the queue, until the set has created its pods again.
Source: Kueue, pkg/controller/jobs/leaderworkerset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from admission.controller.cluster_state.object_cache import ObjectKey
from admission.reconcile.pod.parents import leader_worker_set_of
from admission.reconcile.pod.view import GroupOwner
from api.jobs.pod import Pod
from api.kube import resources
from api.kube.informer import Change, ChangeType
from api.objects.cluster import ScaledObject
from api.objects.common import OwnerReference
from api.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeaderSet:
    reference: OwnerReference
    replicas: int


class LeaderWorkerSets:
    """The sets by namespace and name."""

    def __init__(self) -> None:
        self._sets: dict[ObjectKey, _LeaderSet] = {}

    def take(self, change: Change[ScaledObject]) -> bool:
        """Take a change of a set. Return whether it is relevant: most changes are of the status."""
        metadata, count = change.object.metadata, change.object.spec.replicas
        key = (metadata.namespace, metadata.name)
        if change.type is ChangeType.DELETED:
            return self._sets.pop(key, None) is not None
        kind = resources.LEADER_WORKER_SETS
        reference = OwnerReference(
            api_version=kind.api_version, kind=kind.kind, name=metadata.name, uid=metadata.uid
        )
        found = _LeaderSet(reference=reference, replicas=1 if count is None else count)
        is_news = self._sets.get(key) != found
        self._sets[key] = found
        return is_news

    def set_of(self, pods: Iterable[Pod]) -> GroupOwner | None:
        """Return the set that keeps the group of these pods up; None if no known set does."""
        return self._keeper((pod.namespace, pod.labels, pod.name) for pod in pods)

    def keeper_of_workload(self, workload: Workload) -> GroupOwner | None:
        """Return the same for a group without pods: the templates of its Workload carry the pods' labels."""
        metadata = (pod_set.template.metadata for pod_set in workload.pod_sets)
        return self._keeper(
            (workload.key.namespace, (one.labels if one is not None else None) or {}, "") for one in metadata
        )

    def _keeper(self, pods: Iterable[tuple[str, Mapping[str, str], str]]) -> GroupOwner | None:
        found = None
        for namespace, labels, name in pods:
            owner, index = leader_worker_set_of(labels, name)
            known = self._sets.get((namespace, owner))
            if known is None:
                continue
            if index is not None:
                return GroupOwner(reference=known.reference, has_place=index < known.replicas)
            # A pod without an index may be a leader that the set has not numbered yet; other
            # pods may have one.
            found = GroupOwner(reference=known.reference)
        return found
