"""The marks: which Jobs, other owners and Workloads the control loop has yet to look at.

Whatever may change the next step of an object marks that object and those that depend on it. A mark is kept
once however often it is made, and the control loop takes marks one by one. Pods have theirs in `PodGroups`.

What concerns all Workloads starts a sweep over them, which is taken apart from the marks: a look at each of a
hundred thousand takes seconds, and decisions need not wait for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from admission.controller.cluster_state.object_cache import ObjectCache, ObjectKey, Seen
from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.cluster_state.pod_groups import PodGroups
from admission.controller.cluster_state.prebuilt_names import PrebuiltNames
from admission.controller.cluster_state.queued_objects import QueuedObjects, target_of
from admission.controller.writer.write_order import ObjectTarget
from api.jobs.queued_object import QueuedJob
from api.workload import Workload, WorkloadKey

Marked = TypeVar("Marked")


class DirtySet:
    """The marked Jobs and Workloads. The object caches know which belong together."""

    def __init__(
        self,
        *,
        jobs: QueuedObjects,
        workloads: ObjectCache[Workload],
        pods: PodGroups,
        prebuilt: PrebuiltNames,
        held: Callable[[], Iterable[WorkloadKey]],
    ) -> None:
        """`held` returns the Workloads that hold quota, which come first: they may give it back."""
        self._known_jobs = jobs
        self._known_workloads = workloads
        self._pods = pods
        self._prebuilt = prebuilt
        self._held = held
        # For their order: the object that was marked first is looked at first.
        self._jobs: OrderedDict[ObjectTarget, None] = OrderedDict()
        self._workloads: OrderedDict[ObjectKey, None] = OrderedDict()
        # Marks of all Workloads are not made but swept: a hundred thousand at once would hold up the event
        # loop, and specs that concern all of them often change in bursts.
        self._is_unfinished_due = self._is_everything_due = False
        self._sweep: Iterator[ObjectKey] | None = None

    # --- taking -------------------------------------------------------------------------------------------

    @property
    def jobs_marked(self) -> int:
        """How many Jobs and other owners have a mark. Those that were marked first are taken first."""
        return len(self._jobs)

    @property
    def workloads_marked(self) -> int:
        """How many Workloads have a mark of their own. Those that were marked first are taken first."""
        return len(self._workloads)

    def take_job(self) -> ObjectTarget | None:
        """Return a marked Job or other owner, and remove its mark; None if there is none."""
        return _pop_first(self._jobs)

    def take_workload(self) -> ObjectKey | None:
        """Return a Workload with a mark of its own and remove the mark; None if there is none."""
        return _pop_first(self._workloads)

    def take_swept(self) -> ObjectKey | None:
        """Return the next Workload of a pass over all of them; None if no pass is under way."""
        if self._sweep is None:
            self._sweep = self._swept()
        if (key := next(self._sweep, None)) is not None:
            # Looked at once, though it may have a mark of its own.
            self._workloads.pop(key, None)
            return key
        self._sweep = None
        return None

    # --- marking ------------------------------------------------------------------------------------------

    def job(self, target: ObjectTarget) -> None:
        """Mark this Job or other owner."""
        self._jobs[target] = None

    def job_and_workloads(self, target: ObjectTarget) -> None:
        """Mark this Job and its Workloads: a Job is judged together with them."""
        self.job(target)
        job = self._known_jobs.get(target)
        if job is not None:
            self._mark_workloads(self._known_workloads.owned_by(job.metadata.uid))

    def jobs_of(self, namespace: str) -> None:
        """Mark all Jobs and pods of a namespace."""
        self._pods.mark_all(namespace)
        for target, _ in self._known_jobs:
            if target.namespace == namespace:
                self.job(target)

    def jobs_of_kind(self, kind: str) -> None:
        """Mark all objects of a kind of owners."""
        for target, _ in self._known_jobs:
            if target.kind == kind:
                self.job(target)

    def job_of(self, uid: str) -> None:
        """Mark the Job or other owner with this uid if it is known."""
        job = self._known_jobs.by_uid(uid)
        if job is not None:
            self.job(target_of(job.value))

    def family_of(self, job: QueuedJob, *, is_new: bool) -> None:
        """Mark what waits for a Job or another owner that has changed."""
        if is_new:
            # What it owns may have been seen first, and waits to be counted by it.
            for child in self._known_jobs.owned_by(job.uid):
                self.job(target_of(child.value))
        parent = self._known_jobs.by_uid(job.owner.uid) if job.owner is not None else None
        # One that stops waits for the last pod of what it owns, and an elastic one has as many pods as that.
        if parent is not None and (parent.value.is_suspended or parent.value.asks_to_be_elastic):
            self.job(target_of(parent.value))

    def all_jobs(self) -> None:
        """Mark everything that Workloads are created for: all Jobs, other owners and pods."""
        self._pods.mark_all()
        self._jobs.update((target, None) for target, _ in self._known_jobs)

    def workload(self, key: WorkloadKey | ObjectKey) -> None:
        """Mark this Workload."""
        namespace, name = key
        self._workloads[namespace, name] = None

    def workload_and_owner(self, key: ObjectKey) -> None:
        """Mark this Workload and the Job or pods that it was created for."""
        self.workload(key)
        seen = self._known_workloads.get(key)
        if seen is not None:
            self._mark_owner(seen.value)

    def workloads_in(self, keys: Iterable[WorkloadKey]) -> None:
        """Mark the Workloads with these keys."""
        self._workloads.update(dict.fromkeys(keys))

    def groups_of(self, namespace: str) -> None:
        """Mark all groups of pods of a namespace, including those that have lost their pods."""
        for seen in self._known_workloads:
            if seen.metadata.namespace == namespace:
                self._pods.mark(self._pods.unit_of_workload(seen.value), has_workload=True)

    def all_unfinished(self) -> None:
        """Mark every Workload that is not finished. One pass over all of them serves many changes."""
        self._is_unfinished_due = True

    def everything(self) -> None:
        """Mark every Job, pod and Workload; those Workloads that hold quota each by a mark of its own."""
        self.all_jobs()
        self._is_everything_due = True
        # The pass comes by all, but decisions wait for those that may give quota back.
        self._workloads = OrderedDict.fromkeys(self._held())
        # A pass that is under way is part of this one.
        self._sweep = None

    def forget_job(self, target: ObjectTarget, uid: str) -> None:
        """Mark only the Workloads of a Job that is gone."""
        self._jobs.pop(target, None)
        self._mark_workloads(self._known_workloads.owned_by(uid))

    def observe(self, change: WorkloadTransition) -> None:
        """Mark a changed Workload, and its owner, whose next step depends on it."""
        if change.after is not None:
            self.workload(change.after.key)
        else:
            # A follower takes no marks, so marks of deleted objects would pile up.
            self._workloads.pop(change.workload.key, None)
        self._mark_owner(change.workload)

    def _swept(self) -> Iterator[ObjectKey]:
        """Yield the Workloads of passes that are due, and mark the pods that they stand for."""
        while self._is_everything_due or self._is_unfinished_due:
            is_everything = self._is_everything_due
            self._is_everything_due = self._is_unfinished_due = False
            for key in dict.fromkeys((*self._held(), *self._known_workloads.all_keys())):
                # It may have gone since the pass began.
                seen = self._known_workloads.get(key)
                if seen is None or (seen.value.is_finished and not is_everything):
                    continue
                if is_everything:
                    self._pods.mark(self._pods.unit_of_workload(seen.value), has_workload=True)
                yield key

    def _mark_workloads(self, workloads: Iterable[Seen[Workload]]) -> None:
        self._workloads.update(((seen.metadata.namespace, seen.metadata.name), None) for seen in workloads)

    def _mark_owner(self, workload: Workload) -> None:
        """Mark the Job or the pods that the Workload was created for."""
        is_known = self._known_workloads.get(workload.key) is not None
        self._pods.mark(self._pods.unit_of_workload(workload), has_workload=is_known)
        if workload.owner_uid is not None:
            self.job_of(workload.owner_uid)
            self._mark_children(workload.owner_uid)
        # A prebuilt Workload may be created after the Jobs or pods that name it, and has no owner until then.
        for target in self._prebuilt.naming(workload.key):
            self.job(target)
        for pod in self._pods.prebuilt.naming(workload.key):
            self._pods.mark_pod((pod.namespace, pod.name))

    def _mark_children(self, uid: str) -> None:
        """Mark the Jobs below this one in the chain of controllers: they wait for its Workload."""
        # A tenant may name owners in a circle.
        seen = {uid}
        parents = [uid]
        while parents:
            for child in self._known_jobs.owned_by(parents.pop()):
                self.job(target_of(child.value))
                if child.metadata.uid not in seen:
                    seen.add(child.metadata.uid)
                    parents.append(child.metadata.uid)


def _pop_first(marks: OrderedDict[Marked, None]) -> Marked | None:
    return marks.popitem(last=False)[0] if marks else None
