"""Which Jobs name a prebuilt Workload, so that they are looked at when it is created or changes.

Until a Job has adopted the Workload that it names, nothing on the Workload leads to the Job.
"""

from __future__ import annotations

from collections.abc import Iterable

from admission.controller.cluster_state.object_cache import ObjectKey
from admission.controller.writer.write_order import ObjectTarget
from api.jobs.queued_object import QueuedJob


class PrebuiltNames:
    """The Jobs that name a prebuilt Workload, by the Workload's namespace and name."""

    def __init__(self) -> None:
        self._named: dict[ObjectTarget, ObjectKey] = {}
        self._jobs: dict[ObjectKey, dict[ObjectTarget, None]] = {}

    def see(self, target: ObjectTarget, job: QueuedJob) -> None:
        """Take the Job, or another owner, as it is now."""
        self.forget(target)
        if job.prebuilt_workload:
            workload = (job.namespace, job.prebuilt_workload)
            self._named[target] = workload
            self._jobs.setdefault(workload, {})[target] = None

    def forget(self, target: ObjectTarget) -> None:
        """Drop a Job that is gone."""
        workload = self._named.pop(target, None)
        if workload is None:
            return
        jobs = self._jobs[workload]
        del jobs[target]
        if not jobs:
            del self._jobs[workload]

    def jobs_of(self, workload: ObjectKey) -> Iterable[ObjectTarget]:
        """Return the Jobs that name this Workload, the first seen first."""
        return tuple(self._jobs.get(workload, ()))
