"""batch/v1 Job as a frozen value: what its spec asks for and how far its pods have come.

Only what decides is translated; patches and Workloads are made from the object's bytes
(`api.jobs.job_patches`, `api.jobs.job_workload`), so that no field of the Job is lost on the way. Source:
Kueue, pkg/controller/jobs/job; Kubernetes, batch/v1 Job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from api import keys
from api.jobs.queued_object import Queued
from api.objects import JobObject
from api.workload import NOTHING

JOB_KIND = "Job"
JOB_GROUP = "batch"
MAIN_POD_SET = "main"
_BUILT_IN_CONTROLLER = "kubernetes.io/job-controller"


class ComposeError(ValueError):
    """A Job cannot be put into a queue as it is. The message names field, value, rule and fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """How a Job ended; `message` is its condition's."""

    is_success: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Queued):
    """One Job. Counts of pods are the Job controller's; `completions` None is a work queue.

    `is_dispatched`: it is to run in another cluster (MultiKueue).
    """

    is_suspended: bool = False
    parallelism: int = 1
    completions: int | None = None
    is_indexed: bool = False
    has_foreign_controller: bool = False
    is_dispatched: bool = False
    active: int = 0
    terminating: int = 0
    ready: int = 0
    succeeded: int = 0
    uncounted_succeeded: int = 0
    terminal_indexes: int = 0
    has_start_time: bool = False
    is_seen_suspended: bool = False
    outcome: JobOutcome | None = None

    @property
    def queue_name(self) -> str:
        """The LocalQueue that the Job names; empty for none. The annotation is Kueue's older spelling."""
        return self.labels.get(keys.QUEUE_NAME) or self.annotations.get(keys.QUEUE_NAME, "")

    @property
    def prebuilt_workload(self) -> str:
        """The name of a Workload that somebody else made for this Job; empty for none."""
        name = keys.PREBUILT_WORKLOAD_NAME
        return self.labels.get(name) or self.annotations.get(name, "")

    @property
    def is_stopping(self) -> bool:
        """Whether it was suspended by us and its template is still to be restored."""
        return keys.STOPPING in self.annotations

    @property
    def pod_count(self) -> int:
        """Pods that run at once: never more than are to be completed."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def has_pods_ready(self) -> bool:
        """Whether all pods that run at once are ready or have succeeded."""
        # Uncounted ones have ended and are in no other number yet; without them a Job would look unready for
        # a moment at its end.
        return self.succeeded + self.ready + self.uncounted_succeeded >= self.pod_count

    @property
    def reclaimable_pods(self) -> int:
        """Pods whose quota will not be needed again, because fewer remain to be completed than run at once.

        An Indexed Job counts its finished indexes, failed ones included; another counts its successes, for a
        failed pod comes again.
        """
        terminal = self.terminal_indexes if self.is_indexed else self.succeeded
        # A single pod holds its quota to the end, whatever is to be completed after it.
        if self.pod_count <= 1 or terminal == 0:
            return 0
        wanted = self.parallelism if self.completions is None else self.completions
        return max(0, self.pod_count - max(0, wanted - terminal))

    @property
    def waits_for_controller(self) -> bool:
        """Whether it is suspended and the Job controller has not yet reacted to that.

        Newer servers take status.startTime away in the same step, so who clears it before only meets 409.
        """
        return self.is_suspended and not self.is_seen_suspended and not self.has_foreign_controller


def to_job(obj: JobObject) -> Job:
    """Return the Job as a value. Absent counts are Kubernetes' defaults."""
    meta, spec, status = obj.metadata, obj.spec, obj.status
    uncounted = status.uncounted_terminated_pods or {}
    return Job(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=meta.labels or NOTHING,
        annotations=meta.annotations or NOTHING,
        owner=meta.controller,
        is_deleted=meta.deletion_timestamp is not None,
        is_suspended=bool(spec.suspend),
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        completions=spec.completions,
        is_indexed=spec.completion_mode == "Indexed",
        # The built-in one may be named as well, and means the same as nobody.
        has_foreign_controller=spec.managed_by not in (None, _BUILT_IN_CONTROLLER),
        is_dispatched=spec.managed_by == keys.MULTIKUEUE_CONTROLLER,
        active=status.active or 0,
        terminating=status.terminating or 0,
        ready=status.ready or 0,
        succeeded=status.succeeded or 0,
        uncounted_succeeded=len(uncounted.get("succeeded") or ()),
        # Both: an index that failed for good takes no pod again either.
        terminal_indexes=index_count((status.completed_indexes, status.failed_indexes)),
        has_start_time=status.start_time is not None,
        active_deadline_seconds=spec.active_deadline_seconds,
        is_seen_suspended=any(c.type == "Suspended" and c.status == "True" for c in status.conditions or ()),
        outcome=_outcome(obj),
    )


def index_count(texts: Iterable[str | None]) -> int:
    """Return how many completion indexes are named by "1,3-5,7" texts, each counted once.

    Counts intervals instead of numbers: an Indexed Job may have 100,000 indexes. What is no interval is
    left out, for only the Job controller writes here.
    """
    total, reached = 0, -1
    for first, last in sorted(interval for text in texts for interval in _intervals(text or "")):
        # Sorted by their beginnings, so that what overlaps is counted by how far it reaches beyond.
        total += max(0, last - max(first, reached + 1) + 1)
        reached = max(reached, last)
    return total


def _intervals(text: str) -> Iterable[tuple[int, int]]:
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            yield int(first), int(last or first)


def _outcome(obj: JobObject) -> JobOutcome | None:
    for condition in obj.status.conditions or ():
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            is_success = condition.type == "Complete"
            # Kueue's words, where the Job controller has none.
            fallback = "Job finished successfully" if is_success else "Job failed"
            return JobOutcome(is_success=is_success, message=condition.message or fallback)
    return None
