"""A Job and its Workloads during one look: what was given, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from admission.decisions.api_writes import job_ref
from admission.reconcile.job.context import JobContext
from api.jobs.gang import Gang, gang_name, with_minimum
from api.jobs.job import Job
from api.jobs.job_workload import is_equivalent, job_template
from api.object_events import ObjectRef
from api.workload import PodSetAssignment, Workload


class HeldJob:
    """A Workload with the bytes in which it was seen."""

    def __init__(self, workload: Workload, raw: bytes) -> None:
        self.workload = workload
        self.raw = raw

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """Return the decoded object."""
        return _DECODER.decode(self.raw)

    @property
    def pod_set(self) -> Mapping[str, Any] | None:
        """Return the only pod set; None if there is not exactly one, which no Workload of a Job has."""
        pod_sets: Sequence[Mapping[str, Any]] = self.body.get("spec", {}).get("podSets") or ()
        return pod_sets[0] if len(pod_sets) == 1 else None

    @property
    def assignment(self) -> PodSetAssignment | None:
        """Return the assignment of the only pod set; None without a reservation."""
        admission = self.workload.admission
        return admission.pod_sets[0] if admission is not None and admission.pod_sets else None

    @property
    def admitted_count(self) -> int | None:
        """Return how many pods it was admitted with; None while it holds no quota."""
        return None if self.assignment is None else self.assignment.count


class JobView:
    """A Job, its own Workloads, and the context. Bytes are decoded only when a step needs them."""

    def __init__(
        self,
        job: Job,
        raw: bytes,
        workloads: Sequence[tuple[Workload, bytes]],
        *,
        context: JobContext,
        now: float,
    ) -> None:
        self.context = context
        self.now = now
        self._raw = raw
        held = [HeldJob(workload, seen) for workload, seen in workloads]
        # By admission, then by reservation, then by age. A Workload that holds quota comes first, so that of
        # two that match the idle one is deleted.
        self.owned = tuple(
            sorted(
                (h for h in held if h.workload.owner_uid == job.uid), key=lambda h: _precedence(h.workload)
            )
        )
        # A partial start has lowered the Job's own number; its Workload shows what it was.
        pods = max((one.count for held in self.owned for one in held.workload.pod_sets), default=0)
        self.job = with_minimum(job, self._gang(job), pods=pods)
        self.live = tuple(h for h in self.owned if h.workload.deleted_at is None)
        self.prebuilt = next((h for h in held if h.workload.key.name == job.prebuilt_workload), None)

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

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """Return the decoded Job."""
        return _DECODER.decode(self._raw)

    @property
    def template(self) -> Mapping[str, Any]:
        """Return the Job's pod template."""
        return job_template(self.body)

    @cached_property
    def match(self) -> HeldJob | None:
        """Return the Workload that matches this Job; None if none does."""
        if self.job.prebuilt_workload:
            # A prebuilt Workload that is being deleted does not count.
            return self.prebuilt if self.prebuilt in self.live else None
        return next((held for held in self.live if self.is_match(held)), None)

    def is_match(self, held: HeldJob) -> bool:
        """Return whether the Workload still describes the Job."""
        pod_set = held.pod_set
        return pod_set is not None and is_equivalent(
            self.job, self.template, pod_set, admitted_count=held.admitted_count
        )


def _precedence(workload: Workload) -> tuple[bool, bool, float, str]:
    return (not workload.is_admitted, workload.admission is None, workload.created_at, workload.key.name)


_DECODER = msgspec.json.Decoder(dict[str, Any])
