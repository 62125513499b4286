"""One look at a Job and its Workloads: what was given, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from admission.reconcile.job.context import JobContext
from api.jobs.job import Job
from api.jobs.job_workload import is_equivalent, job_template
from api.workload import PodSetAssignment, Workload


class HeldJob:
    """A Workload with the bytes it was seen in."""

    def __init__(self, workload: Workload, raw: bytes) -> None:
        self.workload = workload
        self.raw = raw

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The object as it stands."""
        return _DECODER.decode(self.raw)

    @property
    def pod_set(self) -> Mapping[str, Any] | None:
        """The only pod set, None where there is not exactly one: then it is no Job's Workload."""
        pod_sets: Sequence[Mapping[str, Any]] = self.body.get("spec", {}).get("podSets") or ()
        return pod_sets[0] if len(pod_sets) == 1 else None

    @property
    def assignment(self) -> PodSetAssignment | None:
        """What the only pod set was given, None without a reservation."""
        admission = self.workload.admission
        return admission.pod_sets[0] if admission is not None and admission.pod_sets else None

    @property
    def admitted_count(self) -> int | None:
        """The pods it was admitted with, None while it holds no quota."""
        return None if self.assignment is None else self.assignment.count


class JobView:
    """A Job, the Workloads that are its own, and the context; parsed only as far as a step asks."""

    def __init__(
        self,
        job: Job,
        raw: bytes,
        workloads: Sequence[tuple[Workload, bytes]],
        *,
        context: JobContext,
        now: float,
    ) -> None:
        self.job = job
        self.context = context
        self.now = now
        self._raw = raw
        held = [HeldJob(workload, seen) for workload, seen in workloads]
        # By admission, then by reservation, then by age.
        # Whoever holds quota comes first, so that of two that match the idle one goes.
        self.owned = tuple(
            sorted(
                (h for h in held if h.workload.owner_uid == job.uid), key=lambda h: _precedence(h.workload)
            )
        )
        self.live = tuple(h for h in self.owned if h.workload.deleted_at is None)
        self.prebuilt = next((h for h in held if h.workload.key.name == job.prebuilt_workload), None)

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The Job's object as it stands."""
        return _DECODER.decode(self._raw)

    @property
    def template(self) -> Mapping[str, Any]:
        """The Job's pod template as it stands."""
        return job_template(self.body)

    @cached_property
    def match(self) -> HeldJob | None:
        """The Workload that stands for this Job, None where none does."""
        if self.job.prebuilt_workload:
            # Only live: a prebuilt Workload that is being deleted stands for nothing any more.
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
