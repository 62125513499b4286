"""The marks: which Jobs and Workloads the brain has yet to look at.

Whatever may change what is to be done with an object marks it, itself and those that wait for it; a mark is
kept once however often it is made, and the brain takes them one by one. Pods keep theirs in the `PodGroups`.
"""

from __future__ import annotations

from collections.abc import Iterable

from admission.controller.cluster_state.object_cache import ObjectCache, ObjectKey, Seen
from admission.controller.cluster_state.pod_groups import PodGroups
from api.jobs.job import Job
from api.workload import Workload, WorkloadKey


class DirtySet:
    """Whom to look at. The mirrors say who belongs to whom."""

    def __init__(self, *, jobs: ObjectCache[Job], workloads: ObjectCache[Workload], pods: PodGroups) -> None:
        self._known_jobs = jobs
        self._known_workloads = workloads
        self._pods = pods
        # Dictionaries for their order: who was marked first is looked at first.
        self._jobs: dict[ObjectKey, None] = {}
        self._workloads: dict[ObjectKey, None] = {}
        # A spec that concerns everybody often changes in a burst: the marks are made when one is asked for.
        self._are_all_marked = False

    # --- taking -------------------------------------------------------------------------------------------

    def take_job(self) -> ObjectKey | None:
        """Return a marked Job and take its mark away; None when there is none."""
        return _pop_first(self._jobs)

    def take_workload(self) -> ObjectKey | None:
        """Return a marked Workload and take its mark away; None when there is none."""
        if self._are_all_marked:
            self._are_all_marked = False
            self.workloads(seen for seen in self._known_workloads if not seen.value.is_finished)
        return _pop_first(self._workloads)

    # --- marking ------------------------------------------------------------------------------------------

    def job(self, key: ObjectKey) -> None:
        """Look at this Job."""
        self._jobs[key] = None

    def jobs_of(self, namespace: str) -> None:
        """Look at all Jobs of a namespace."""
        for seen in self._known_jobs:
            if seen.metadata.namespace == namespace:
                self._jobs[seen.metadata.namespace, seen.metadata.name] = None

    def job_of(self, uid: str) -> None:
        """Look at the Job with this uid, where it is known."""
        job = self._known_jobs.by_uid(uid)
        if job is not None:
            self._jobs[job.metadata.namespace, job.metadata.name] = None

    def all_jobs(self) -> None:
        """Look at all that has Workloads made for it: Jobs and pods."""
        self._pods.mark_all()
        self._jobs.update(((seen.metadata.namespace, seen.metadata.name), None) for seen in self._known_jobs)

    def workload(self, key: WorkloadKey | ObjectKey) -> None:
        """Look at this Workload."""
        namespace, name = key
        self._workloads[namespace, name] = None

    def workloads(self, workloads: Iterable[Seen[Workload]]) -> None:
        """Look at these Workloads."""
        self._workloads.update(((seen.metadata.namespace, seen.metadata.name), None) for seen in workloads)

    def workloads_in(self, keys: Iterable[WorkloadKey]) -> None:
        """Look at the Workloads of these keys."""
        self._workloads.update(dict.fromkeys(keys))

    def owned_by(self, uid: str) -> None:
        """Look at the Workloads of the Job or pod with this uid."""
        self.workloads(self._known_workloads.owned_by(uid))

    def owner(self, workload: Seen[Workload]) -> None:
        """Look at what the Workload was made for."""
        key = (workload.metadata.namespace, workload.metadata.name)
        is_known = self._known_workloads.get(key) is not None
        self._pods.mark(self._pods.unit_of_workload(workload.value), has_workload=is_known)
        owner = workload.metadata.controller
        if owner is not None:
            self.job_of(owner.uid)

    def groups_of(self, namespace: str) -> None:
        """Look at all groups of pods of a namespace, also at those that have lost their pods."""
        for seen in self._known_workloads:
            if seen.metadata.namespace == namespace:
                self._pods.mark(self._pods.unit_of_workload(seen.value), has_workload=True)

    def all_unfinished(self) -> None:
        """Look at every Workload that is not finished; one look at all serves many changes."""
        self._are_all_marked = True

    def everything(self) -> None:
        """Look at every Job, pod and Workload."""
        self.all_jobs()
        self.workloads(self._known_workloads)
        for seen in self._known_workloads:
            self._pods.mark(self._pods.unit_of_workload(seen.value), has_workload=True)

    # --- who is gone --------------------------------------------------------------------------------------

    def forget_job(self, key: ObjectKey) -> None:
        """Take the mark of a Job away that is gone."""
        self._jobs.pop(key, None)

    def forget_workload(self, key: ObjectKey) -> None:
        """Take the mark of a Workload away that is gone.

        Who does not lead takes no marks, so that those of the dead would pile up.
        """
        self._workloads.pop(key, None)


def _pop_first(marks: dict[ObjectKey, None]) -> ObjectKey | None:
    key = next(iter(marks), None)
    if key is not None:
        del marks[key]
    return key
