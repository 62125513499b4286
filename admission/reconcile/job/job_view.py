"""The view of a batch/v1 Job: one pod set, whose template can change only once the Job has stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from admission.decisions.api_writes import Action, Purpose, job_ref
from admission.reconcile.job.context import JobContext
from admission.reconcile.job.held_job import HeldJob
from admission.reconcile.job.view import Prioritised, View
from api.jobs.gang import Gang, gang_name, with_minimum
from api.jobs.job import JOB_GROUP, JOB_KIND, MAIN_POD_SET, Job
from api.jobs.job_patches import (
    clear_start_time_patch,
    restored_patch,
    start_injection,
    start_patch,
    suspend_patch,
)
from api.jobs.job_workload import (
    Priority,
    annotation_problems,
    check_job,
    is_equivalent,
    is_up_to_date,
    job_template,
    name_of_slice,
    name_of_workload,
    owner_reference,
    pod_sets_body,
    workload_body,
)
from api.jobs.pod_template import Template, has_same_containers
from api.object_events import ObjectRef
from api.workload import Workload


class JobView(View):
    """A Job, its own Workloads, and the context."""

    kind = kind_key = JOB_KIND
    job: Job

    def __init__(
        self,
        job: Job,
        raw: bytes,
        workloads: Sequence[tuple[Workload, bytes]],
        *,
        context: JobContext,
        now: float,
    ) -> None:
        super().__init__(job, raw, workloads, context=context, now=now)
        # A partial start has lowered the Job's own number; its Workload shows what it was.
        pods = max((one.count for held in self.owned for one in held.workload.pod_sets), default=0)
        self.job = with_minimum(job, self._gang(job), pods=pods)

    def _gang(self, job: Job) -> Gang | None:
        """Return the gang that the labels of the Job name, or those of its template."""
        if self.context.gang is None:
            return None
        of_pods = (self.template.get("metadata") or {}).get("labels") or {}
        return self.context.gang(job.namespace, job.labels if gang_name(job.labels) else of_pods)

    @property
    def ref(self) -> ObjectRef:
        """Return the reference to the Job, for Events."""
        return job_ref(self.job.namespace, self.job.name, self.job.uid)

    @property
    def owner_reference(self) -> dict[str, Any]:
        """Return the reference by which its Workload names it as controlling owner."""
        return owner_reference(self.job)

    @property
    def workload_name(self) -> str:
        """Return the name of its Workload, or of the slice that it would get now."""
        if self.is_elastic:
            return name_of_slice(JOB_KIND, JOB_GROUP, self.job)
        return name_of_workload(self.job)

    @property
    def may_be_elastic(self) -> bool:
        """Return whether Jobs may be elastic."""
        return True

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of pods of its only pod set."""
        return {MAIN_POD_SET: self.job.pod_count}

    @property
    def template(self) -> Template:
        """Return the Job's pod template."""
        return job_template(self.body)

    def templates(self) -> tuple[Template, ...]:
        """Return the Job's pod template."""
        return (self.template,)

    @property
    def is_stopping(self) -> bool:
        """Return whether Berth has suspended it and its template has not been restored yet."""
        return self.job.is_stopping

    @property
    def terminating(self) -> int:
        """Return how many of its pods have been told to end and have not."""
        return self.job.terminating

    @property
    def in_use(self) -> Mapping[str, int]:
        """Return how many pods of its only pod set run or have yet to end."""
        return {MAIN_POD_SET: self.job.active + self.job.terminating}

    @property
    def has_pods_ready(self) -> bool:
        """Return whether all pods that run concurrently are ready or have succeeded."""
        return self.job.has_pods_ready

    @property
    def reclaimable(self) -> Mapping[str, int]:
        """Return how many pods need their quota no longer."""
        held = self.match or self.running
        assignment = held.assignment if held is not None else None
        return {assignment.name: self.job.reclaimable_pods} if assignment is not None else {}

    def is_match(self, held: HeldJob) -> bool:
        """Return whether the Workload still describes the Job."""
        pod_set = held.pod_set
        return pod_set is not None and is_equivalent(
            self.job, self.template, pod_set, admitted_count=held.admitted_count
        )

    def has_same_templates(self, held: HeldJob) -> bool:
        """Return whether the pods that the Workload describes differ from the Job's in number at most."""
        pod_set = held.pod_set
        return pod_set is not None and has_same_containers(self.template, pod_set.get("template") or {})

    def is_up_to_date(self, held: HeldJob) -> bool:
        """Return whether a waiting Workload has also the Job's labels, selector and topology request."""
        return held.pod_set is None or is_up_to_date(self.job, self.body, held.pod_set)

    def check(self) -> None:
        """Raise ComposeError if the Job cannot be queued."""
        check_job(self.job, self.body)

    def pod_sets(self) -> list[dict[str, Any]]:
        """Return the pod set of its Workload. Raises ComposeError."""
        return pod_sets_body(self.job, self.body)

    def workload_body(self, priority: Priority) -> dict[str, Any]:
        """Return its Workload, ready for creation. Raises ComposeError."""
        copied = self.context.settings.copied
        return workload_body(self.job, self.body, priority, copied=copied)

    def faults(self) -> Iterable[tuple[str, Sequence[str]]]:
        """Return annotations that cannot be read, and that an owner does not count the Job."""
        pods = ((self.job.pod_count, self.template),)
        yield "InvalidAnnotation", annotation_problems(self.job, pods, self.context.is_domain)
        if (note := self.uncounted_note) is not None:
            yield "OwnerNotCounted", (note,)

    def prioritised(self) -> Prioritised:
        """Return the pod spec whose priority class applies."""
        return Prioritised(self.template.get("spec") or {}, "spec.template.spec")

    # --- start and stop ---------------------------------------------------------------------------

    def start(self, held: HeldJob) -> dict[str, Any] | None:
        """Return the patch that starts it as admitted. Raises StartConflict."""
        assignment = held.assignment
        if assignment is None:
            # An admission without a pod set is incomplete: its writer has yet to complete it.
            return None
        node_labels, tolerations = self.context.injection(assignment)
        injection = start_injection(held.workload, assignment, node_labels, tolerations)
        # A slice may have shrunk since it was admitted, and pods that none counts yet wait at their gate.
        count = self.job.pod_count if self.is_elastic else assignment.count
        return start_patch(self.job, self.template, injection, count)

    def suspension(self, source: HeldJob | None) -> dict[str, Any]:
        """Return the patch that begins to stop it."""
        return suspend_patch(is_restored=source is not None)

    def restoration(self, source: HeldJob | None) -> dict[str, Any]:
        """Return the patch that completes a stop."""
        pod_set = None if source is None else source.pod_set
        return restored_patch(self.job, self.template, pod_set)

    def thaw(self) -> tuple[Action, ...] | None:
        """Return what makes a suspended Job's template changeable; None if it is, () to wait."""
        job = self.job
        # The API server refuses to change the template while pods are active.
        if job.active > 0:
            return ()
        if not job.has_start_time:
            return None
        # At once, as Kueue does: the Job controller writes it together with the number of active pods.
        patch = clear_start_time_patch()
        return (self.version.patch(patch, Purpose.CLEAR_START_TIME, subresource="status"),)
