"""Which Jobs or pods name a prebuilt Workload, so that they are looked at when it is created or changes.

Until one has adopted the Workload that it names, nothing on the Workload leads to it.
"""

from __future__ import annotations

from collections.abc import Iterable

from admission.controller.cluster_state.object_cache import ObjectKey
from admission.controller.writer.write_order import ObjectTarget
from api.jobs.queued_object import Queued


class PrebuiltNames:
    """The Jobs, or the pods, that name a prebuilt Workload, by the Workload's namespace and name."""

    def __init__(self) -> None:
        self._named: dict[ObjectTarget, ObjectKey] = {}
        self._naming: dict[ObjectKey, dict[ObjectTarget, None]] = {}

    def see(self, target: ObjectTarget, queued: Queued) -> None:
        """Take the Job, pod or other owner as it is now."""
        self.forget(target)
        if queued.prebuilt_workload:
            workload = (queued.namespace, queued.prebuilt_workload)
            self._named[target] = workload
            self._naming.setdefault(workload, {})[target] = None

    def forget(self, target: ObjectTarget) -> None:
        """Drop one that is gone."""
        workload = self._named.pop(target, None)
        if workload is None:
            return
        naming = self._naming[workload]
        del naming[target]
        if not naming:
            del self._naming[workload]

    def naming(self, workload: ObjectKey) -> Iterable[ObjectTarget]:
        """Return those that name this Workload, the first seen first."""
        return tuple(self._naming.get(workload, ()))
