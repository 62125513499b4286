"""Which Jobs name a prebuilt Workload, so that they are looked at when it is created or changes.

Until a Job has adopted the Workload that it names, nothing on the Workload leads to the Job.
"""

from __future__ import annotations

from collections.abc import Iterable

from admission.controller.cluster_state.object_cache import ObjectKey
from api.jobs.job import Job


class PrebuiltNames:
    """The Jobs that name a prebuilt Workload, by the Workload's namespace and name."""

    def __init__(self) -> None:
        self._named: dict[ObjectKey, ObjectKey] = {}
        self._jobs: dict[ObjectKey, dict[ObjectKey, None]] = {}

    def see(self, job: Job) -> None:
        """Take the Job as it is now."""
        key = (job.namespace, job.name)
        self.forget(key)
        if job.prebuilt_workload:
            workload = (job.namespace, job.prebuilt_workload)
            self._named[key] = workload
            self._jobs.setdefault(workload, {})[key] = None

    def forget(self, key: ObjectKey) -> None:
        """Drop a Job that is gone."""
        workload = self._named.pop(key, None)
        if workload is None:
            return
        jobs = self._jobs[workload]
        del jobs[key]
        if not jobs:
            del self._jobs[workload]

    def jobs_of(self, workload: ObjectKey) -> Iterable[ObjectKey]:
        """Return the Jobs that name this Workload, the first seen first."""
        return tuple(self._jobs.get(workload, ()))
