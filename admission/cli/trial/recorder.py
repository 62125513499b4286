"""Records the versions of a run's objects, for the live table and for the audit afterwards.

The recorder has its own connections to the API server and uses no data of the controller. Times are those of
this process's monotonic clock when the watch delivered the version. The objects' own times are whole seconds,
and at speed 600 a second is ten minutes of the trace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from admission.cli.views.workload_view import job_of, key_of
from admission.simulation.ledger import QuotaLedger
from admission.simulation.records import ObjectRecord
from api.kube.client import KubeClient
from api.kube.informer import Change, ChangeType, Informer, Listener, ListWatch
from api.kube.resources import CLUSTER_QUEUES, COHORTS, JOBS, LOCAL_QUEUES, PODS, WORKLOADS, Resource
from api.objects.cluster import JobObject, PodObject
from api.objects.common import WireCondition
from api.objects.queues import ClusterQueueObject, CohortObject, LocalQueueObject
from api.objects.workloads import WorkloadObject
from api.workload import WorkloadKey

_JOB_NAME_LABEL = "batch.kubernetes.io/job-name"


@dataclass(slots=True)
class JobTimes:
    """The times of a Job's events, in monotonic seconds; None: not yet.

    `stuck_seconds`: how long one of its admitted pods found no node, the maximum over its pods.
    """

    created_at: float | None = None
    admitted_at: float | None = None
    finished_at: float | None = None
    has_failed: bool = False
    is_gone: bool = False
    stuck_seconds: float = 0.0


class Recorder:
    """Keeps every version of Workloads, ClusterQueues and Cohorts that the watches deliver.

    `wants` selects the namespaces of Workloads, Jobs and pods: in a shared cluster only those of the run
    matter. But all Workloads use quota, so the records contain Workloads of every namespace.
    """

    def __init__(self, client: KubeClient, *, wants: Callable[[str], bool] = lambda _: True) -> None:
        # All versions in the order of arrival. The audit sorts them by their order of writing.
        self.records: list[ObjectRecord] = []
        self.jobs: dict[WorkloadKey, JobTimes] = {}
        self.ledger = QuotaLedger()
        self.progressed_at = time.monotonic()
        self._wants = wants
        self._client = client
        self._stuck: dict[str, float] = {}
        self.workloads = self._informer(WORKLOADS, WorkloadObject, self._on_workload)
        self.cluster_queues = self._informer(CLUSTER_QUEUES, ClusterQueueObject, self._on_spec)
        self._local_queues = self._informer(LOCAL_QUEUES, LocalQueueObject, lambda _: None)
        self._jobs = self._informer(JOBS, JobObject, self._on_job)
        self._others = (
            self._informer(COHORTS, CohortObject, self._on_spec),
            self._informer(PODS, PodObject, self._on_pod),
        )

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """Return all watches; the caller runs each of them in a task of its own."""
        return (self.workloads, self.cluster_queues, self._local_queues, self._jobs, *self._others)

    @property
    def gaps(self) -> int:
        """Return how often a watch was restarted, so that versions in between may be missing."""
        # Each watch begins with one list. Each further list means a gap before it.
        return sum(max(0, informer.relists - 1) for informer in self.informers)

    @property
    def local_queues(self) -> tuple[LocalQueueObject, ...]:
        """Return the current LocalQueues."""
        return tuple(self._local_queues.store.values())

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers:
                tasks.create_task(informer.run(), name=f"watch {informer.resource.plural}")

    async def wait_synced(self) -> None:
        """Wait until every watch has delivered its first list."""
        for informer in self.informers:
            await informer.synced.wait()

    def times(self, key: WorkloadKey) -> JobTimes:
        """Return the recorded times of a Job; all are None for an unknown one."""
        return self.jobs.setdefault(key, JobTimes())

    def wanted_workloads(self) -> list[WorkloadObject]:
        """Return the current Workloads of the wanted namespaces."""
        return [w for w in self.workloads.store.values() if self._wants(w.metadata.namespace)]

    def _informer(
        self, resource: Resource, type_: type[Any], on_change: Callable[[Change[Any]], None]
    ) -> Informer[Any]:
        # The kinds may be defined later than this, by the controller that starts at the same time.
        what = ListWatch(resource=resource, type_=type_, optional=True)
        return Informer(self._client, what, Listener(on_change=on_change))

    def _note_progress(self, namespace: str) -> bool:
        """Return whether the namespace is wanted, and if so record the time as progress."""
        if not self._wants(namespace):
            return False
        self.progressed_at = time.monotonic()
        return True

    def _record(
        self, change: Change[WorkloadObject] | Change[ClusterQueueObject] | Change[CohortObject]
    ) -> None:
        record = ObjectRecord(
            at=time.monotonic(), object=change.object, is_deleted=change.type is ChangeType.DELETED
        )
        self.records.append(record)
        self.ledger.apply(record)

    def _on_spec(self, change: Change[ClusterQueueObject] | Change[CohortObject]) -> None:
        self._record(change)

    def _on_workload(self, change: Change[WorkloadObject]) -> None:
        self._record(change)
        workload = change.object
        owner = job_of(workload)
        if not self._note_progress(workload.metadata.namespace) or not owner:
            return
        times = self.times(WorkloadKey(workload.metadata.namespace, owner))
        # Ask the ledger, because a Workload may hold quota for its checks before it is admitted.
        if times.admitted_at is None and key_of(workload) in self.ledger.holdings:
            times.admitted_at = time.monotonic()

    def _on_job(self, change: Change[JobObject]) -> None:
        meta = change.object.metadata
        if not self._note_progress(meta.namespace):
            return
        times = self.times(WorkloadKey(meta.namespace, meta.name))
        # Use our own clock: creation times are whole seconds, and at speed 600 a second is ten
        # minutes of the trace.
        times.created_at = times.created_at or time.monotonic()
        times.is_gone = change.type is ChangeType.DELETED
        outcome = _outcome(change.object.status.conditions or ())
        # The first outcome counts: later versions of an ended Job only tidy its status.
        if outcome is not None and times.finished_at is None:
            times.finished_at = time.monotonic()
            times.has_failed = outcome == "Failed"

    def _on_pod(self, change: Change[PodObject]) -> None:
        """Record how long an admitted pod found no node."""
        pod = change.object
        job = (pod.metadata.labels or {}).get(_JOB_NAME_LABEL)
        if not self._note_progress(pod.metadata.namespace) or job is None:
            return
        has_place = pod.spec.node_name is not None or change.type is ChangeType.DELETED
        if not has_place and _is_unschedulable(pod):
            self._stuck.setdefault(pod.metadata.uid, time.monotonic())
        elif has_place and (since := self._stuck.pop(pod.metadata.uid, None)) is not None:
            times = self.times(WorkloadKey(pod.metadata.namespace, job))
            # A gang waits for its last pod, so the longest time is the Job's.
            times.stuck_seconds = max(times.stuck_seconds, time.monotonic() - since)


def _outcome(conditions: tuple[WireCondition, ...]) -> str | None:
    return next((c.type for c in conditions if c.type in ("Complete", "Failed") and c.status == "True"), None)


def _is_unschedulable(pod: PodObject) -> bool:
    conditions = pod.status.conditions or ()
    return any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in conditions)
