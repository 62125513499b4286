"""What the controller knows: the engine, Jobs and Workloads with their bytes, and what has to be looked at.

Every object comes in here, from the watch or as the answer to a write of ours; what cannot be read is named,
in the log and where it makes a queue inactive, and the others go on. Whatever changed is *marked*; the brain
takes marks one by one and reconciles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from admission.controller.census import Census
from admission.controller.clock import Clock
from admission.controller.crews import Crews
from admission.controller.departures import Departures
from admission.controller.ground import Ground
from admission.controller.inspection import Inspection
from admission.controller.journal import Journal
from admission.controller.keeping import Keeping
from admission.controller.metric_labels import MetricLabels
from admission.controller.mirror import Mirror, ObjectKey, Seen, controller_of
from admission.controller.podbook import PodBook
from admission.engine import Engine
from admission.inuse import KEPT_KINDS
from admission.jobs import Ancestor, JobContext, JobSettings, PriorityClass
from admission.lifecycle import LifecycleContext, LifecycleSettings, Owner
from admission.preemption.replicas import is_taken_one_by_one
from api import specs
from api.disruption import DisruptionBudget
from api.eviction import has_request
from api.job import Job, to_job
from api.keys import BATCH_VERSION
from api.kube.informer import Change, ChangeType
from api.objects import (
    JobObject,
    Meta,
    NamedObject,
    NamespaceObject,
    PodObject,
    PriorityClassObject,
    WireSelector,
    WorkloadObject,
)
from api.pod import Pod
from api.policy import KUEUE, AdmissionPolicy, Recovery
from api.queueing import ClusterQueue, Cohort, LocalQueue, Namespace, ResourceFlavor, Topology
from api.selectors import matches_selector
from api.workload import Workload, WorkloadKey, to_seconds, to_workload

SpecKey = str | ObjectKey

# A Job further below its queued ancestor than this is not looked through.
MAX_NESTING = 10
# Kinds whose labels and annotations may show on their metrics.
_LABELLED = (ClusterQueue, LocalQueue, Cohort)

__all__ = ["Knowledge", "KnowledgeSettings", "ObjectKey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeSettings:
    """What the configuration says of Jobs and Workloads. `namespace_selector` None manages all namespaces.

    `with_pods`: pods may be queued by themselves and in groups. `serving_kinds`: whose pods are queued
    because they say so themselves; the two selectors of pods narrow down which ones are queued at all.
    """

    with_pods: bool = False
    serving_kinds: frozenset[str] = frozenset()
    pod_namespace_selector: WireSelector = field(default_factory=WireSelector)
    pod_selector: WireSelector = field(default_factory=WireSelector)
    jobs: JobSettings = field(default_factory=JobSettings)
    lifecycle: LifecycleSettings = field(default_factory=LifecycleSettings)
    namespace_selector: WireSelector | None = None


class Knowledge:
    """The state that the brain owns."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        settings: KnowledgeSettings,
        *,
        labels: MetricLabels | None = None,
    ) -> None:
        """`labels` is told the metadata of queues and cohorts."""
        self.engine = engine
        self.census = Census()
        self.inspection = Inspection()
        self.keeping = Keeping(engine)
        self._labels = labels if labels is not None else MetricLabels()
        self.jobs: Mirror[Job] = Mirror()
        self.workloads: Mirror[Workload] = Mirror()
        self.ground = Ground(engine, journal, clock, inspection=self.inspection, mark=self.mark_workload)
        self.serving_kinds = settings.serving_kinds
        self.pods = PodBook(journal, is_kept=settings.with_pods)
        self.crews = Crews(self._mark_owned, mark_saved=self._mark_job)
        self.departures = Departures(engine, self.crews, self.mark_workload)
        self._journal = journal
        self._clock = clock
        self._settings = settings
        self._namespaces: dict[str, dict[str, str]] = {}
        self.local_queues: dict[ObjectKey, LocalQueue] = {}
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self._workload_priorities: dict[str, int] = {}
        self._priorities: dict[str, PriorityClass] = {}
        # Every spec that could be read, as the engine has it.
        self._values: dict[tuple[type, SpecKey], object] = {}
        self._dirty_jobs: dict[ObjectKey, None] = {}
        self._dirty_workloads: dict[ObjectKey, None] = {}
        self._are_all_dirty = False
        self.job_context = JobContext(
            injection=engine.flavor_injection,
            settings=settings.jobs,
            is_namespace_managed=self._is_namespace_managed,
            is_pod_selected=self._is_pod_selected,
            is_domain=engine.is_domain,
            awaits_ends=self._awaits_ends,
            saved_at=lambda job: self.crews.saved_at(job.uid),
            ancestor=self._ancestor,
            workload_priority_classes=self._workload_priorities,
            priority_classes=self._priorities,
        )

    # --- Jobs and Workloads -----------------------------------------------------------------------

    def take_pod(self, change: Change[PodObject]) -> None:
        """Take a change of a pod."""
        self.ground.take_pod(change)
        self.crews.take_pod(change)

    def take_job(self, change: Change[JobObject]) -> None:
        """Take a change of a Job."""
        metadata = change.object.metadata
        if change.type is not ChangeType.DELETED:
            self._see_job(change.object, change.raw or b"")
        elif self.jobs.forget(metadata):
            self._dirty_jobs.pop((metadata.namespace, metadata.name), None)
            self._mark_owned(metadata.uid)

    def take_workload(self, change: Change[WorkloadObject]) -> None:
        """Take a change of a Workload."""
        metadata = change.object.metadata
        if change.type is not ChangeType.DELETED:
            self._see_workload(change.object, change.raw or b"")
            return
        known = self.workloads.get((metadata.namespace, metadata.name))
        if self.workloads.forget(metadata):
            self.census.move(known.value if known is not None else None, None)
            self.departures.see(known.value if known is not None else None, None)
            self.inspection.forget("Workload", metadata)
            # Who does not lead takes no marks, so that those of the dead would pile up.
            self._dirty_workloads.pop((metadata.namespace, metadata.name), None)
            self.engine.remove(Workload, (metadata.namespace, metadata.name), now=self._clock.now())
            if known is not None:
                self._mark_owner(known)
        elif known is None:
            # One that could never be read is not in the mirror; it is noted as unreadable no longer.
            self.inspection.forget("Workload", metadata)
            self.engine.remove(Workload, (metadata.namespace, metadata.name), now=self._clock.now())

    def see_raw(self, kind: str, raw: bytes) -> bool:
        """Take the bytes of an object that answered a write of ours, where it is one that is kept here.

        Returns False where they cannot be read: then nothing that is known has changed.
        """
        try:
            if kind == "Job":
                return self._see_job(_JOB.decode(raw), raw)
            if kind == "Workload":
                return self._see_workload(_WORKLOAD.decode(raw), raw)
            if kind == "Pod":
                self.ground.see_raw(raw)
                self.pods.see_raw(raw)
                self.crews.see_raw(raw)
            if kind in KEPT_KINDS:
                self.keeping.see(kind, _NAMED.decode(raw).metadata)
        except msgspec.DecodeError as error:
            self._journal.note_unreadable(kind, "", str(error))
            return False
        return True

    def to_workload(self, raw: bytes) -> Workload | None:
        """Return the Workload in these bytes, None where they cannot be read."""
        try:
            return to_workload(_WORKLOAD.decode(raw))
        except (msgspec.DecodeError, ValueError):
            return None

    def look_up(self, key: WorkloadKey) -> tuple[Workload, bytes] | None:
        """Return a Workload and its bytes as last seen."""
        seen = self.workloads.get((key.namespace, key.name))
        return (seen.value, seen.raw) if seen is not None else None

    def workloads_of(self, job: Seen[Job]) -> tuple[tuple[Workload, bytes], ...]:
        """Return the Workloads that the Job owns, and the one that it names."""
        owned = {seen.value.key: seen for seen in self.workloads.owned_by(job.metadata.uid)}
        if job.value.prebuilt_workload:
            named = self.workloads.get((job.value.namespace, job.value.prebuilt_workload))
            if named is not None:
                owned[named.value.key] = named
        return tuple((seen.value, seen.raw) for seen in owned.values())

    def workload_of(self, pods: tuple[Seen[Pod], ...]) -> tuple[Workload, bytes] | None:
        """Return the Workload of a unit of pods: of a group by its name, else the one that the pod owns."""
        pod = pods[0].value
        if pod.group:
            named = self.workloads.get((pod.namespace, pod.group))
        else:
            named = next(iter(self.workloads.owned_by(pod.uid)), None)
        return None if named is None else (named.value, named.raw)

    def is_replica(self, workload: Workload) -> bool:
        """Return whether the Workload's pod is ended by an eviction, as the policy of its queue says."""
        admission = workload.admission
        name = admission.cluster_queue if admission is not None else ""
        return is_taken_one_by_one(workload, self.engine.policy_of(name))

    def _see_job(self, obj: JobObject, raw: bytes) -> bool:
        if not self.jobs.is_news(obj.metadata):
            return True
        try:
            job = to_job(obj)
        except ValueError as error:
            self._journal.note_unreadable("Job", f"{obj.metadata.namespace}/{obj.metadata.name}", str(error))
            return False
        self.jobs.see(obj.metadata, job, raw)
        self._dirty_jobs[job.namespace, job.name] = None
        return True

    def _see_workload(self, obj: WorkloadObject, raw: bytes) -> bool:
        metadata = obj.metadata
        if not self.workloads.is_news(metadata):
            return True
        key = (metadata.namespace, metadata.name)
        known = self.workloads.get(key)
        try:
            workload = to_workload(obj, known.value if known is not None else None)
        except (msgspec.DecodeError, ValueError) as error:
            self._journal.note_unreadable("Workload", "/".join(key), str(error))
            self.inspection.note("Workload", metadata, str(error), raw)
            self.engine.unreadable(Workload, key, str(error), now=self._clock.now())
            return False
        self.inspection.clear("Workload", metadata)
        self._count_change(known.value if known is not None else None, workload)
        self.workloads.see(metadata, workload, raw)
        self.engine.upsert(workload, now=self._clock.now())
        self.departures.see(known.value if known is not None else None, workload)
        self._dirty_workloads[key] = None
        self._mark_owner(Seen(metadata, workload, raw))
        return True

    def _count_change(self, before: Workload | None, after: Workload) -> None:
        now = self._clock.now()
        self.census.move(before, after)
        if before is not None:
            above = self.engine.cohorts_above
            self._journal.note_progress(before, after, now=now, cohorts_above=above)
            if after.is_evicted or has_request(before) or has_request(after):
                self._note_leaving(before, after, now)
            if before.unhealthy_nodes and not after.unhealthy_nodes:
                self._note_recovery(before, after)
            return
        job = self.jobs.by_uid(after.owner_uid) if after.owner_uid is not None else None
        if job is not None:
            self._journal.note_created("Job", now - to_seconds(job.metadata.creation_timestamp))

    def _note_leaving(self, before: Workload, after: Workload, now: float) -> None:
        """Count what became of an eviction, and what it loses."""
        saved_at = self.departures.saved_at(after)
        self._journal.note_saving(before, after, saved_at=saved_at)
        cost_of = self.engine.device_cost
        self._journal.note_loss(before, after, saved_at=saved_at, now=now, cost_of=cost_of)

    def _note_recovery(self, before: Workload, after: Workload) -> None:
        """Measure the time from the first sign of a failed node until the gang had another, or went."""
        seconds = self.ground.seconds_since_fault(before.unhealthy_nodes)
        if seconds is not None and (after.is_evicted or after.admission != before.admission):
            self._journal.note_recovery("evicted" if after.is_evicted else "replaced", seconds)

    # --- other kinds ------------------------------------------------------------------------------

    def take_spec(self, kind: type, read: Callable[[Any], Any], change: Change[Any]) -> None:
        """Take a change of an object that the engine keeps as a value: queues, flavors, limit ranges, ..."""
        metadata: Meta = change.object.metadata
        key = (metadata.namespace, metadata.name) if metadata.namespace else metadata.name
        if change.type is ChangeType.DELETED:
            self._labels.forget(kind.__name__, metadata)
            self.engine.remove(kind, key, now=self._clock.now())
            self._values.pop((kind, key), None)
            if kind is LocalQueue:
                self.local_queues.pop((metadata.namespace, metadata.name), None)
            elif kind is ClusterQueue:
                self.cluster_queues.pop(metadata.name, None)
            elif kind in (ResourceFlavor, Topology):
                self.ground.inspect_all()
            self._mark_waiting(kind, metadata.namespace, metadata.name)
            return
        if kind in _LABELLED:
            self._labels.see(kind.__name__, metadata)
        if kind is ResourceFlavor and (problem := specs.cost_problem(metadata.annotations or {})):
            self.inspection.restate(kind.__name__, metadata, problem)
        try:
            value = read(change.object)
        except ValueError as error:
            self.inspection.note(kind.__name__, metadata, str(error))
            self.take_unreadable(kind, metadata.namespace, metadata.name, str(error))
        else:
            if self._keep(kind, key, value):
                self._mark_waiting(kind, metadata.namespace, metadata.name)

    def _keep(self, kind: type, key: SpecKey, value: Any) -> bool:
        """Keep a readable spec. Returns whether it says anything new: most changes are of a status."""
        if isinstance(value, LocalQueue) and value.past_usage is not None:
            # What another leader has written: its status is no spec, and equal specs are passed over below.
            self.engine.adopt_usage((value.namespace, value.name), value.past_usage)
        if self._values.get((kind, key)) == value:
            return False
        self._values[kind, key] = value
        self.engine.upsert(value, now=self._clock.now())
        if isinstance(value, LocalQueue):
            self.local_queues[value.namespace, value.name] = value
        elif isinstance(value, ClusterQueue):
            self.cluster_queues[value.name] = value
        elif isinstance(value, ResourceFlavor):
            self.ground.see_flavor(value)
            self.ground.inspect_all()
        elif isinstance(value, Topology):
            self.ground.inspect_all()
        elif isinstance(value, AdmissionPolicy) and value.preemption is not None:
            # Victims are asked for checkpoints through their pods.
            self.ground.is_needed.set()
        return True

    def take_unreadable(self, kind: type, namespace: str, name: str, error: str) -> None:
        """Take note of an object that could not even be decoded."""
        self._journal.note_unreadable(kind.__name__, f"{namespace}/{name}" if namespace else name, error)
        key: SpecKey = (namespace, name) if namespace else name
        if kind in (Job, Pod):
            return
        self._values.pop((kind, key), None)
        self.engine.unreadable(kind, key, error, now=self._clock.now())
        if kind is not Workload:
            self._mark_waiting(kind, namespace, name)

    def drop_unreadable(self, kind: type, namespace: str, name: str) -> None:
        """Take note that an object is gone that could not be decoded."""
        is_kept_elsewhere = kind in (Job, Pod, PriorityClassObject)
        if is_kept_elsewhere or (kind is Workload and self.workloads.get((namespace, name)) is not None):
            # Of a Workload, another of its name is there by now, and readable.
            return
        self.engine.remove(kind, (namespace, name) if namespace else name, now=self._clock.now())

    def take_namespace(self, change: Change[NamespaceObject]) -> None:
        """Take a change of a namespace's labels."""
        metadata = change.object.metadata
        if change.type is ChangeType.DELETED:
            self._namespaces.pop(metadata.name, None)
        else:
            labels = metadata.labels or {}
            if self._namespaces.get(metadata.name) == labels:
                return
            self._namespaces[metadata.name] = labels
        self.take_spec(Namespace, specs.to_namespace, change)
        self.pods.mark_all(metadata.name)
        for seen in self.jobs:
            if seen.metadata.namespace == metadata.name:
                self._dirty_jobs[seen.metadata.namespace, seen.metadata.name] = None

    def take_workload_priority_class(self, change: Change[PriorityClassObject]) -> None:
        """Take a change of a WorkloadPriorityClass."""
        name = change.object.metadata.name
        if change.type is ChangeType.DELETED:
            self._workload_priorities.pop(name, None)
        else:
            self._workload_priorities[name] = change.object.value
        self._mark_jobs()

    def take_priority_class(self, change: Change[PriorityClassObject]) -> None:
        """Take a change of a PriorityClass."""
        obj = change.object
        if change.type is ChangeType.DELETED:
            self._priorities.pop(obj.metadata.name, None)
        else:
            self._priorities[obj.metadata.name] = PriorityClass(
                value=obj.value, is_global_default=bool(obj.global_default)
            )
        self._mark_jobs()

    # --- what has to be looked at -----------------------------------------------------------------

    def take_dirty_job(self) -> ObjectKey | None:
        """Return a marked Job and take its mark away; None when there is none."""
        return _pop_first(self._dirty_jobs)

    def take_dirty_workload(self) -> ObjectKey | None:
        """Return a marked Workload and take its mark away; None when there is none."""
        if self._are_all_dirty:
            self._are_all_dirty = False
            unfinished = (seen for seen in self.workloads if not seen.value.is_finished)
            self._mark_workloads(unfinished)
        return _pop_first(self._dirty_workloads)

    def mark(self, kind: str, key: ObjectKey) -> None:
        """Look at this Job, Workload or pod again, and at its Workloads or owner: one waits for another."""
        if kind == "Job":
            self._dirty_jobs[key] = None
            job = self.jobs.get(key)
            if job is not None:
                self._mark_owned(job.metadata.uid)
            return
        if kind == "Pod":
            self.ground.look_again(*key)
            self.pods.mark_pod(key)
            return
        self._dirty_workloads[key] = None
        seen = self.workloads.get(key)
        if seen is not None:
            self._mark_owner(seen)

    def mark_workload(self, key: WorkloadKey) -> None:
        """Look at this Workload again."""
        self._dirty_workloads[key.namespace, key.name] = None

    def mark_all(self) -> None:
        """Look at everything again."""
        self.inspection.mark_all()
        self.keeping.mark_all()
        self._mark_jobs()
        self._mark_workloads(self.workloads)

    def _mark_jobs(self) -> None:
        self.pods.mark_all()
        self._dirty_jobs.update(((seen.metadata.namespace, seen.metadata.name), None) for seen in self.jobs)

    def _mark_workloads(self, workloads: Iterable[Seen[Workload]]) -> None:
        self._dirty_workloads.update(
            ((seen.metadata.namespace, seen.metadata.name), None) for seen in workloads
        )

    def _mark_owner(self, workload: Seen[Workload]) -> None:
        self.pods.mark(self.pods.unit_of_workload(workload.value))
        owner = controller_of(workload.metadata)
        job = self.jobs.by_uid(owner.uid) if owner is not None else None
        if job is not None:
            self._dirty_jobs[job.metadata.namespace, job.metadata.name] = None

    def _mark_job(self, uid: str) -> None:
        job = self.jobs.by_uid(uid)
        if job is not None:
            self._dirty_jobs[job.metadata.namespace, job.metadata.name] = None

    def _mark_owned(self, uid: str) -> None:
        self._mark_workloads(self.workloads.owned_by(uid))

    def _mark_waiting(self, kind: type, namespace: str, name: str) -> None:
        """A new spec may change what Workloads are told, and whether they keep their quota.

        Of a LocalQueue that are its own; of all else any, and one look at all serves many changes.
        """
        if kind is LocalQueue:
            self._dirty_workloads.update(dict.fromkeys(self.engine.members((namespace, name))))
        elif kind is not DisruptionBudget:
            self._are_all_dirty = True

    # --- contexts ---------------------------------------------------------------------------------

    def lifecycle_context(self, workload: Workload) -> LifecycleContext:
        """Return what a Workload's reconciliation needs to know of the cluster."""
        local_queue = self.local_queues.get((workload.key.namespace, workload.queue_name))
        cluster_queue = (
            self.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
        )
        if workload.admission is not None:
            cluster_queue = self.cluster_queues.get(workload.admission.cluster_queue, cluster_queue)
        policy = self.engine.policy_of(cluster_queue.name) if cluster_queue is not None else KUEUE
        return LifecycleContext(
            owner=self._owner(workload),
            queue_problem=self.engine.queue_problem(workload),
            required_checks=self.engine.required_checks(workload),
            local_queue_stop=local_queue.stop_policy if local_queue is not None else None,
            cluster_queue_stop=cluster_queue.stop_policy if cluster_queue is not None else None,
            settings=self._settings.lifecycle,
            pods=self.ground.pods_of(workload.key),
            faults=self.ground.faults(workload),
            misplaced=self.ground.misplaced(workload.key),
            recovery=self._recovery(workload),
            planned=self.engine.planned(workload.key),
            expected_at=self.engine.expected_start(workload.key),
            saving=self.departures.context(workload, policy),
            policy=policy,
            turns_at=self.engine.turns_at(workload),
        )

    def _awaits_ends(self, workload: Workload) -> bool:
        """Return whether a policy wants a Workload's quota to wait until its last pod has ended."""
        admission = workload.admission
        return admission is not None and self.engine.policy_of(admission.cluster_queue).preemption is not None

    def _recovery(self, workload: Workload) -> Recovery | None:
        if workload.admission is None or self.ground.is_disrupted:
            return None
        placement = self.engine.policy_of(workload.admission.cluster_queue).placement
        return placement.recovery if placement is not None else None

    def _owner(self, workload: Workload) -> Owner:
        """Return what stands behind the Workload.

        A Job that is merely not known yet is no missing one: the watch of Jobs may lag behind that of
        Workloads. It is missing when it was seen to go, or when the garbage collector takes its Workload.
        """
        unit = self.pods.unit_of_workload(workload) if self.pods.is_kept else None
        if unit is not None and unit.group:
            return Owner.JOB if self.pods.members(unit) else Owner.NONE
        if workload.owner_uid is None:
            return Owner.NONE
        if workload.owner_kind != "Job" and unit is None:
            return Owner.OTHER
        owners = self.jobs if unit is None else self.pods
        if owners.by_uid(workload.owner_uid) is not None:
            return Owner.JOB
        is_gone = owners.has_gone(workload.owner_uid) or workload.deleted_at is not None
        return Owner.MISSING if is_gone else Owner.JOB

    def _is_namespace_managed(self, namespace: str) -> bool:
        selector = self._settings.namespace_selector
        return selector is None or matches_selector(selector, self._namespaces.get(namespace))

    def _is_pod_selected(self, namespace: str, labels: Mapping[str, str]) -> bool:
        settings = self._settings
        return matches_selector(settings.pod_selector, labels) and matches_selector(
            settings.pod_namespace_selector, self._namespaces.get(namespace)
        )

    def _ancestor(self, job: Job) -> Ancestor:
        """Return what stands above the Job: Jobs are the one kind of ancestor that is managed here."""
        found, depth = job.owner, 0
        while found is not None and found.kind == "Job" and found.api_version == BATCH_VERSION:
            parent = self.jobs.by_uid(found.uid)
            if parent is None:
                return Ancestor.NONE
            if parent.value.queue_name:
                return self._state_of_ancestor(parent)
            found, depth = parent.value.owner, depth + 1
            if depth >= MAX_NESTING:
                return Ancestor.TOO_DEEP
        return Ancestor.NONE

    def _state_of_ancestor(self, job: Seen[Job]) -> Ancestor:
        is_admitted = any(workload.is_admitted for workload, _ in self.workloads_of(job))
        return Ancestor.ADMITTED if is_admitted else Ancestor.WAITING


def _pop_first(marks: dict[ObjectKey, None]) -> ObjectKey | None:
    key = next(iter(marks), None)
    if key is not None:
        del marks[key]
    return key


_JOB = msgspec.json.Decoder(JobObject)
_NAMED = msgspec.json.Decoder(NamedObject)
_WORKLOAD = msgspec.json.Decoder(WorkloadObject)
