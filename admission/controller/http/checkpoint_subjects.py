"""Which checkpoints a pod may report, and on which object the reports are stored.

    controlled by a Job       that Job, if it has a Workload        it outlasts the pod
    queued by itself          the pod itself                        its Workload ends with it
    one of a queued group     the group's Workload                  its pods come and go, it stays

Measured costs are stored on the Workload in each case: see `Subjects.keeper`.

A pod may name any owner and any group, including those of other users. Its claim counts only within its own
namespace, and only if the Workload was created for the object that it names.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.controller.cluster_state.ancestors import workloads_of
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.cluster_state.object_cache import Seen
from admission.controller.http.pod_identity import Reporter
from admission.preemption.lost_work import started_at
from api.jobs.pod import Pod
from api.kube import resources
from api.kube.resources import Resource
from api.object_events import ObjectRef
from api.objects.common import Meta
from api.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The object that reports are stored on, as last seen."""

    resource: Resource
    metadata: Meta

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.key}"

    @property
    def key(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def ref(self) -> ObjectRef:
        """Return the reference to the object, for Events."""
        return ObjectRef(
            kind=self.resource.kind,
            api_version=self.resource.api_version,
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            uid=self.metadata.uid,
        )


class Subjects:
    """Finds subjects in the cluster state."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state

    def of(self, reporter: Reporter) -> Subject | None:
        """Return the object that this pod's reports are stored on; None if Berth does not manage its work."""
        job = self._cluster_state.jobs.by_uid(reporter.owner.uid) if reporter.owner is not None else None
        if job is not None:
            # Kubernetes requires an owner to be in the same namespace, but no server enforces that for the
            # owner references that a pod is created with.
            is_ours = job.metadata.namespace == reporter.pod.namespace and self._cluster_state.workloads_of(
                job
            )
            return Subject(resource=resources.JOBS, metadata=job.metadata) if is_ours else None
        pod = self._cluster_state.pods.by_uid(reporter.pod.uid)
        workload = self._workload_of(pod) if pod is not None else None
        if pod is None or workload is None:
            return None
        if pod.value.group:
            return Subject(resource=resources.WORKLOADS, metadata=workload.metadata)
        return Subject(resource=resources.PODS, metadata=pod.metadata)

    def fresh(self, subject: Subject) -> Subject:
        """Return the subject as it was seen last; unchanged if it is unknown by now."""
        known = self._cluster_state
        mirrors = {"Job": known.jobs.by_uid, "Pod": known.pods.by_uid, "Workload": known.workloads.by_uid}
        seen = mirrors[subject.resource.kind](subject.metadata.uid)
        return subject if seen is None else Subject(resource=subject.resource, metadata=seen.metadata)

    def started_at(self, subject: Subject) -> float | None:
        """Return when the present attempt of the subject's work could start; None if it may not run."""
        starts = (started_at(seen.value) for seen in self._workloads(subject))
        # The latest attempt, if a Job has had several Workloads.
        return max((at for at in starts if at is not None), default=None)

    def keeper(self, subject: Subject) -> Subject | None:
        """Return the Workload that keeps the measured costs: the one that started last; None without any."""
        latest = max(self._workloads(subject), key=lambda seen: started_at(seen.value) or 0.0, default=None)
        return None if latest is None else Subject(resource=resources.WORKLOADS, metadata=latest.metadata)

    def _workloads(self, subject: Subject) -> tuple[Seen[Workload], ...]:
        uid, known = subject.metadata.uid, self._cluster_state
        if subject.resource is resources.WORKLOADS:
            group = known.workloads.by_uid(uid)
            return () if group is None else (group,)
        if subject.resource is resources.PODS:
            return known.workloads.owned_by(uid)
        job = known.jobs.by_uid(uid)
        return () if job is None else workloads_of(job, known.workloads)

    def _workload_of(self, pod: Seen[Pod]) -> Seen[Workload] | None:
        known = self._cluster_state
        found = known.workload_of((pod,))
        seen = known.workloads.get(found[0].key) if found is not None else None
        # The group may have been named like another user's Workload.
        is_own = seen is not None and known.pods.unit_of_workload(seen.value) == known.pods.unit_of(pod.value)
        return seen if is_own else None
