"""The PodGroups of scheduling.x-k8s.io: how many pods of each gang must run together.

Their definition belongs to another project, so a cluster may have it, get it later, or lose it. A gang whose
PodGroup is unknown waits, and one whose pods carry the minimum themselves needs none.
"""

from __future__ import annotations

from collections.abc import Mapping

from admission.controller.cluster_state.object_cache import ObjectKey
from api.jobs.gang import Gang, gang_name, gang_of_texts, to_gang
from api.jobs.pod import Pod
from api.kube.informer import Change, ChangeType
from api.objects.cluster import PodGroupObject


class PodGangs:
    """The gangs by namespace and name of their PodGroups. `is_kept`: whether PodGroups are read at all."""

    def __init__(self, *, is_kept: bool) -> None:
        self.is_kept = is_kept
        self._gangs: dict[ObjectKey, Gang] = {}

    def take(self, change: Change[PodGroupObject]) -> bool:
        """Take a change of a PodGroup. Return whether it is relevant: most changes are of the status."""
        metadata = change.object.metadata
        key = (metadata.namespace, metadata.name)
        if change.type is ChangeType.DELETED:
            return self._gangs.pop(key, None) is not None
        found = to_gang(change.object)
        is_news = self._gangs.get(key) != found
        self._gangs[key] = found
        return is_news

    def gang_of(self, namespace: str, labels: Mapping[str, str]) -> Gang | None:
        """Return the gang that these labels name; None if they name none, or an unknown PodGroup."""
        name = gang_name(labels)
        return self._gang(namespace, name, labels, {}) if name else None

    def gang_of_pod(self, pod: Pod) -> Gang | None:
        """Return the gang that the pod belongs to; None if it belongs to none, or to an unknown PodGroup."""
        return self._gang(pod.namespace, pod.gang, pod.labels, pod.annotations) if pod.gang else None

    def _gang(
        self, namespace: str, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> Gang | None:
        if not self.is_kept:
            return None
        # The object is the newer form, and can be changed while its pods wait.
        return self._gangs.get((namespace, name)) or gang_of_texts(labels, annotations)
