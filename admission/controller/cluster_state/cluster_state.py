"""The state of the cluster as the controller knows it: the engine, Jobs and Workloads, and what has changed.

Jobs and Workloads come in here, from the watch or from the answer to a write; other kinds come into the parts
of this state. An unreadable object is reported in the log; all others are still handled. Whatever changed is
*marked*; the control loop takes the marks one by one and reconciles.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admission.cache.in_use import KEPT_KINDS
from admission.controller.cluster_state.ancestors import Ancestors, workloads_of
from admission.controller.cluster_state.dirty_set import DirtySet
from admission.controller.cluster_state.disruption_budgets import DisruptionBudgets
from admission.controller.cluster_state.ending_pods import EndingPods
from admission.controller.cluster_state.finalizers import Finalizers
from admission.controller.cluster_state.invalid_objects import InvalidObjects
from admission.controller.cluster_state.leader_worker_sets import LeaderWorkerSets
from admission.controller.cluster_state.node_cache import NodeCache
from admission.controller.cluster_state.object_cache import ObjectCache, ObjectKey, Seen
from admission.controller.cluster_state.observers import Observers, WorkloadTransition
from admission.controller.cluster_state.owner_sources import OwnerSources
from admission.controller.cluster_state.pending_evictions import PendingEvictions
from admission.controller.cluster_state.placed_pods import PlacedPods
from admission.controller.cluster_state.pod_gangs import PodGangs
from admission.controller.cluster_state.pod_groups import PodGroups, UnitKey
from admission.controller.cluster_state.prebuilt_names import PrebuiltNames
from admission.controller.cluster_state.provisioning import Provisioning
from admission.controller.cluster_state.queued_objects import QueuedObjects, target_of
from admission.controller.cluster_state.reconcile_contexts import ClusterStateSettings, ReconcileContexts
from admission.controller.cluster_state.slice_chains import SliceChains
from admission.controller.cluster_state.spec_cache import SpecCache
from admission.controller.cluster_state.stateful_sets import StatefulSets
from admission.controller.cluster_state.workload_counts import WorkloadCounts
from admission.controller.cluster_state.workload_pods import WorkloadPods
from admission.controller.runtime.clock import Clock
from admission.controller.writer.write_order import ObjectTarget
from admission.engine.engine import Engine
from admission.preemption.replicas import is_counted
from admission.reconcile.pod.imported import holds_quota
from api import keys
from api.jobs.job import JOB_KIND, Job, to_job
from api.jobs.owners.owner import Owner, to_owner
from api.jobs.owners.row import OwnerKind
from api.jobs.pod import Pod
from api.jobs.queued_object import QueuedJob
from api.jobs.stateful_set import STATEFUL_SET_KIND
from api.kube.informer import Change, ChangeType
from api.kube.listing import Key
from api.objects.cluster import JobObject, NodeObject, OwnerObject, PodGroupObject, PodObject, ScaledObject
from api.objects.common import Meta, NamedObject
from api.objects.queues import PriorityClassObject
from api.objects.workloads import WorkloadObject
from api.workload import Workload, WorkloadKey
from api.workload_decoding import to_workload

__all__ = ["ClusterState", "ClusterStateSettings", "ObjectKey"]


class ClusterState:
    """The state that the control loop owns. Its parts are public, and each is asked for what it knows."""

    def __init__(self, engine: Engine, clock: Clock, settings: ClusterStateSettings) -> None:
        self.engine = engine
        self.observers = Observers()
        self.workload_counts = WorkloadCounts()
        self.inspection = InvalidObjects()
        self.keeping = Finalizers(engine)
        self.queued = QueuedObjects(settings.owner_kinds)
        self.jobs = self.queued.jobs
        self.owner_sources = OwnerSources()
        self.workloads: ObjectCache[Workload] = ObjectCache()
        self.serving_kinds = settings.serving_kinds
        self.with_devices = settings.with_devices
        self.pods = PodGroups(
            self.observers,
            is_kept=settings.with_pods,
            note_empty=self._note_empty_group,
            note_ungated=self._note_ungated,
            holds_quota=self._holds_quota,
            with_gangs=settings.with_pod_groups,
        )
        self.stateful_sets = StatefulSets(self.pods, self.workloads, self.observers)
        self.gangs = PodGangs(is_kept=settings.with_pod_groups)
        self.leader_worker_sets = LeaderWorkerSets()
        self.provisioning = Provisioning(
            engine, lambda key: self.marks.workload(key), is_kept=settings.with_provisioning
        )
        self._prebuilt = PrebuiltNames()
        self.marks = DirtySet(
            jobs=self.queued,
            workloads=self.workloads,
            pods=self.pods,
            prebuilt=self._prebuilt,
            held=lambda: (key for key, _ in engine.workloads.admissions()),
        )
        mark = self.marks.workload
        self.nodes = NodeCache(engine, clock, observers=self.observers, inspection=self.inspection, mark=mark)
        self.slice_chains = SliceChains(mark, mark_owner=self.marks.job_of, need_pods=self.nodes.needed.set)
        self.placed_pods = PlacedPods(engine, clock, observers=self.observers, chains=self.slice_chains)
        self.workload_pods = WorkloadPods(mark, mark_saved=self.marks.job_of)
        self.ending_pods = EndingPods(engine, clock, is_on=settings.gives_up_pods)
        if settings.gives_up_pods:
            self.nodes.needed.set()
        self.pending_evictions = PendingEvictions(engine, self.workload_pods, self.queued, mark)
        self.disruptions = DisruptionBudgets(engine, self.pods)
        # In this order: what depends on a Workload is marked before the Workload itself.
        self.observers.workload_changed.extend(
            (
                self.workload_counts.observe,
                self.pending_evictions.observe,
                self.disruptions.observe,
                self.slice_chains.observe,
                self.pods.observe,
                self.stateful_sets.observe,
                self.marks.observe,
                self._mark_dependants,
            )
        )
        self.specs = SpecCache(
            engine,
            clock,
            marks=self.marks,
            disruptions=self.disruptions,
            inspection=self.inspection,
            observers=self.observers,
        )
        self.observers.spec_changed.append(self.nodes.observe_spec)
        self._clock = clock
        self.contexts = ReconcileContexts(
            engine=engine,
            settings=settings,
            specs=self.specs,
            jobs=self.queued,
            workloads=self.workloads,
            pods=self.pods,
            stateful_sets=self.stateful_sets,
            nodes=self.nodes,
            placed_pods=self.placed_pods,
            workload_pods=self.workload_pods,
            pending_evictions=self.pending_evictions,
            gangs=self.gangs,
            ancestors=Ancestors(
                self.queued, self.workloads, settings.jobs, self.owner_sources, engine.limits_of
            ),
            provisioning=self.provisioning,
        )
        self.job_context = self.contexts.of_jobs()

    # --- Jobs and Workloads -----------------------------------------------------------------------

    def take_pod(self, change: Change[PodObject]) -> None:
        """Take a change of a pod."""
        self.placed_pods.take_pod(change)
        self.nodes.take_recorded_gpus()
        self.workload_pods.take_pod(change)
        self.ending_pods.take_pod(change)

    def take_node(self, change: Change[NodeObject]) -> None:
        """Take a change of a node."""
        self.nodes.take_node(change)
        self.ending_pods.mark_node(change.object.metadata.name)

    def _mark_dependants(self, transition: WorkloadTransition) -> None:
        """Mark Workloads that wait for one which has changed: what they wait for is reported."""
        del transition
        for key in self.engine.workloads.take_dependants():
            self.marks.workload(key)

    def _note_empty_group(self, unit: UnitKey) -> None:
        """Mark what a group without pods has left behind: no other event will."""
        key = (unit.namespace, unit.group)
        # A follower takes no marks, so marks of deleted objects would pile up.
        if self.workloads.get(key) is not None:
            self.marks.workload(key)
            self.pods.mark(unit, has_workload=True)

    def _holds_quota(self, pod: Pod) -> bool:
        return holds_quota(pod, (seen.value for seen in self.workloads.owned_by(pod.uid)))

    def _note_ungated(self, pod: Pod) -> None:
        """Report that a pod has lost the gate of admission."""
        own = self.workloads.owned_by(pod.uid)
        seen = own[0] if own else self.workloads.get((pod.namespace, pod.group))
        if seen is not None:
            self.observers.report_ungated(keys.ADMISSION_GATE, seen.value, self._clock.now())

    def take_leader_set(self, change: Change[ScaledObject]) -> None:
        """Take a change of a LeaderWorkerSet."""
        if self.leader_worker_sets.take(change):
            self.marks.groups_of(change.object.metadata.namespace)

    def take_pod_group(self, change: Change[PodGroupObject]) -> None:
        """Take a change of a PodGroup."""
        if self.gangs.take(change):
            metadata = change.object.metadata
            self.pods.mark(UnitKey(metadata.namespace, metadata.name, ""))
            # A Job is not found by the group that it names, and groups change rarely.
            self.marks.jobs_of(metadata.namespace)

    def take_job(self, change: Change[JobObject]) -> None:
        """Take a change of a Job."""
        if change.type is ChangeType.DELETED:
            self._forget_job(JOB_KIND, self.jobs, change.object.metadata)
        else:
            self._see_job(change.object, change.raw or b"")

    def drop_unlisted_jobs(self, listed: frozenset[Key], version: str) -> None:
        """Take a complete list of Jobs: those that it lacks are gone."""
        for seen in self.jobs.missing_from(listed, version):
            self._forget_job(JOB_KIND, self.jobs, seen.metadata)

    def take_owner(self, row: OwnerKind, change: Change[OwnerObject]) -> None:
        """Take a change of an object of the table of owners."""
        if change.type is ChangeType.DELETED:
            self._forget_job(row.kind, self.queued.owners[row.kind], change.object.metadata)
        else:
            self._see_owner(row, change.object, change.raw or b"")

    def take_owner_source(self, row: OwnerKind, kind: str, change: Change[NamedObject]) -> None:
        """Take a change of an object that owners of a kind refer to."""
        self.owner_sources.take(kind, change)
        self.marks.jobs_of_kind(row.kind)

    def drop_unlisted_owners(self, row: OwnerKind, listed: frozenset[Key], version: str) -> None:
        """Take a complete list of a kind of owners: those that it lacks are gone."""
        cache = self.queued.owners[row.kind]
        for seen in cache.missing_from(listed, version):
            self._forget_job(row.kind, cache, seen.metadata)

    def take_workload(self, change: Change[WorkloadObject]) -> None:
        """Take a change of a Workload."""
        if change.type is ChangeType.DELETED:
            self._forget_workload(change.object.metadata)
        else:
            self._see_workload(change.object, change.raw or b"")

    def drop_unlisted_workloads(self, listed: frozenset[Key], version: str) -> None:
        """Take a complete list of Workloads: those that it lacks are gone."""
        for seen in self.workloads.missing_from(listed, version):
            self._forget_workload(seen.metadata)

    def _forget_job(self, kind: str, cache: ObjectCache[Any], metadata: Meta) -> None:
        # The Job is gone: only its Workloads have to be looked at.
        if cache.forget(metadata):
            target = ObjectTarget(kind, metadata.namespace, metadata.name)
            self._prebuilt.forget(target)
            self.marks.forget_job(target, metadata.uid)

    def _forget_workload(self, metadata: Meta) -> None:
        key, now = (metadata.namespace, metadata.name), self._clock.now()
        # Read before it is forgotten: observers compare with it.
        known = self.workloads.get(key)
        is_gone = self.workloads.forget(metadata)
        # A Workload that could never be read is not in the cache, and has an entry as unreadable.
        if is_gone or known is None:
            self.inspection.forget("Workload", metadata)
            self.engine.objects.remove(Workload, key, now=now)
        if is_gone and known is not None:
            self.observers.report_workload(WorkloadTransition(before=known.value, after=None, at=now))

    def see_raw(self, kind: str, raw: bytes) -> bool:
        """Take the bytes of an object from the answer to a write, if its kind is kept here.

        Return False if they cannot be read; then nothing changes.
        """
        try:
            if kind == "Job":
                return self._see_job(_JOB.decode(raw), raw)
            if kind in self.queued.rows:
                return self._see_owner(self.queued.rows[kind], _OWNER.decode(raw), raw)
            if kind == "Workload":
                return self._see_workload(_WORKLOAD.decode(raw), raw)
            if kind == "Pod":
                self.placed_pods.see_raw(raw)
                self.pods.see_raw(raw)
                self.workload_pods.see_raw(raw)
                self.ending_pods.see_raw(raw)
            self.provisioning.see_raw(kind, raw)
            # Queues, flavors and other kinds that carry our finalizer.
            if kind in KEPT_KINDS:
                self.keeping.see(kind, _NAMED.decode(raw).metadata)
        except msgspec.DecodeError as error:
            self.observers.report_unreadable(kind, "", "", str(error))
            return False
        return True

    def to_workload(self, raw: bytes) -> Workload | None:
        """Return the Workload in these bytes; None if they cannot be read."""
        try:
            return to_workload(_WORKLOAD.decode(raw))
        except (msgspec.DecodeError, ValueError):
            return None

    def look_up(self, key: WorkloadKey) -> tuple[Workload, bytes] | None:
        """Return a Workload and its bytes as last seen; None if there is none."""
        seen = self.workloads.get((key.namespace, key.name))
        return (seen.value, seen.raw) if seen is not None else None

    def workloads_of(self, job: Seen[QueuedJob]) -> tuple[tuple[Workload, bytes], ...]:
        """Return the Workloads that the Job owns, and the prebuilt one that it names."""
        return tuple((seen.value, seen.raw) for seen in workloads_of(job, self.workloads))

    def workload_of(self, pods: tuple[Seen[Pod], ...]) -> tuple[Workload, bytes] | None:
        """Return the Workload of a unit of pods: of a group by its name, else what the pod names or owns."""
        pod = pods[0].value
        if name := pod.group or pod.prebuilt_workload:
            named = self.workloads.get((pod.namespace, name))
        else:
            named = next(iter(self.workloads.owned_by(pod.uid)), None)
        return None if named is None else (named.value, named.raw)

    def own_workloads(self, pods: tuple[Seen[Pod], ...]) -> dict[str, tuple[Workload, bytes]]:
        """Return the Workloads of those pods that have one by themselves, by the uid of the pod."""
        found = ((pod.metadata.uid, self.workloads.owned_by(pod.metadata.uid)) for pod in pods)
        return {uid: (owned[0].value, owned[0].raw) for uid, owned in found if owned}

    def is_replica(self, workload: Workload) -> bool:
        """Return whether the Workload's pods are ended by evictions, according to its queue's policy."""
        admission = workload.admission
        name = admission.cluster_queue if admission is not None else ""
        return is_counted(workload, self.engine.queues.policy_of(name))

    def _see_job(self, obj: JobObject, raw: bytes) -> bool:
        if not self.jobs.is_newer(obj.metadata):
            return True
        try:
            job = to_job(obj)
        except ValueError as error:
            self.observers.report_unreadable("Job", obj.metadata.namespace, obj.metadata.name, str(error))
            return False
        self._keep_job(self.jobs, obj.metadata, job, raw)
        return True

    def _see_owner(self, row: OwnerKind, obj: OwnerObject, raw: bytes) -> bool:
        cache = self.queued.owners[row.kind]
        if not cache.is_newer(obj.metadata):
            return True
        try:
            owner = to_owner(row, obj)
        except ValueError as error:
            self.observers.report_unreadable(row.kind, obj.metadata.namespace, obj.metadata.name, str(error))
            return False
        self._keep_job(cache, obj.metadata, owner, raw)
        return True

    def _keep_job(self, cache: ObjectCache[Any], metadata: Meta, job: QueuedJob, raw: bytes) -> None:
        is_new = cache.by_uid(metadata.uid) is None
        cache.see(metadata, job, raw)
        target = target_of(job)
        self._prebuilt.see(target, job)
        self.marks.job(target)
        self.marks.family_of(job, is_new=is_new)

    def _see_workload(self, obj: WorkloadObject, raw: bytes) -> bool:
        metadata = obj.metadata
        if not self.workloads.is_newer(metadata):
            # Already known from the answer to our own write: the watch is late.
            return True
        key, now = (metadata.namespace, metadata.name), self._clock.now()
        known = self.workloads.get(key)
        before = known.value if known is not None else None
        try:
            workload = to_workload(obj, before)
        except (msgspec.DecodeError, ValueError) as error:
            self.observers.report_unreadable("Workload", *key, str(error))
            self.inspection.note("Workload", metadata, str(error), raw)
            # The engine keeps the last readable version, if there was one: forgetting it would free the
            # quota that it uses.
            self.engine.objects.unreadable(Workload, key, str(error), now=now)
            return False
        self.inspection.clear("Workload", metadata)
        self.workloads.see(metadata, workload, raw)
        self.engine.objects.upsert(workload, now=now)
        self.observers.report_workload(WorkloadTransition(before=before, after=workload, at=now))
        return True

    # --- objects that cannot be decoded -----------------------------------------------------------

    def take_unreadable(self, kind: type, namespace: str, name: str, error: str) -> None:
        """Record an object that could not be decoded."""
        # Not even its name could be: no other object depends on it, and the log is all that can name it.
        if not name:
            self.observers.report_unreadable(kind.__name__, namespace, name, error)
            return
        if kind not in (Job, Owner, Pod, Workload):
            self.specs.take_unreadable(kind, namespace, name, error)
            return
        self.observers.report_unreadable(kind.__name__, namespace, name, error)
        # The engine keeps neither Jobs nor pods, and neither holds quota by itself.
        if kind is Workload:
            key = (namespace, name) if namespace else name
            self.engine.objects.unreadable(Workload, key, error, now=self._clock.now())

    def drop_unreadable(self, kind: type, namespace: str, name: str) -> None:
        """Record that an object is gone that could not be decoded."""
        # The engine knows none of these kinds, and no object without a name.
        is_kept_elsewhere = kind in (Job, Owner, Pod, PriorityClassObject) or not name
        if is_kept_elsewhere or (kind is Workload and self.workloads.get((namespace, name)) is not None):
            # For a Workload: another of the same name exists by now and is readable.
            return
        self.engine.objects.remove(kind, (namespace, name) if namespace else name, now=self._clock.now())

    # --- marks ------------------------------------------------------------------------------------

    def mark(self, kind: str, key: ObjectKey) -> None:
        """Mark a Job, StatefulSet, Workload or pod, and also its Workloads or its owner."""
        if kind in self.queued:
            self.marks.job_and_workloads(ObjectTarget(kind, *key))
        elif kind == "Pod":
            self.placed_pods.mark_pod(*key)
            self.pods.mark_pod(key)
            self.ending_pods.mark(ObjectTarget(kind, *key))
        elif kind == STATEFUL_SET_KIND:
            self.stateful_sets.mark(key)
        else:
            self.marks.workload_and_owner(key)

    def mark_all(self) -> None:
        """Mark everything."""
        self.inspection.mark_all()
        self.keeping.mark_all()
        self.ending_pods.mark_all()
        self.marks.everything()


_JOB = msgspec.json.Decoder(JobObject)
_OWNER = msgspec.json.Decoder(OwnerObject)
_NAMED = msgspec.json.Decoder(NamedObject)
_WORKLOAD = msgspec.json.Decoder(WorkloadObject)
