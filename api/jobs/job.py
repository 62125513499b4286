"""batch/v1 Job as a frozen value: what its spec requests and how far its pods have progressed.

Only the fields that decisions need are translated. Patches and Workloads are made from the bytes of the
object (`api.jobs.job_patches`, `api.jobs.job_workload`), so that no other field of the Job is lost. Source:
Kueue, pkg/controller/jobs/job; Kubernetes, batch/v1 Job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from api import keys
from api.jobs.queued_object import JobOutcome, QueuedJob
from api.objects.cluster import JobObject
from api.objects.common import WireSelector
from api.workload import NOTHING

JOB_KIND = "Job"
JOB_GROUP = "batch"
MAIN_POD_SET = "main"
_BUILT_IN_CONTROLLER = "kubernetes.io/job-controller"


class ComposeError(ValueError):
    """A Job cannot be queued. The message names the field, its value, the rule and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(QueuedJob):
    """One Job. The counts of pods are those of the Job controller; `completions` None means a work queue.

    `is_dispatched`: another cluster runs it (MultiKueue). `selector` selects its pods; None if the API server
    has not set it.
    """

    parallelism: int = 1
    completions: int | None = None
    is_indexed: bool = False
    has_foreign_controller: bool = False
    is_dispatched: bool = False
    selector: WireSelector | None = None
    terminating: int = 0
    ready: int = 0
    succeeded: int = 0
    uncounted_succeeded: int = 0
    terminal_indexes: int = 0
    has_start_time: bool = False

    @property
    def is_stopping(self) -> bool:
        """Whether Berth has suspended it and its template has not been restored yet."""
        return keys.STOPPING in self.annotations

    @property
    def pod_count(self) -> int:
        """Number of pods that run concurrently; never more than completions."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)

    @property
    def has_pods_ready(self) -> bool:
        """Whether all pods that run concurrently are ready or have succeeded."""
        # Uncounted pods have finished, but are not in any other count yet; without them a Job would appear
        # unready for a moment at its end.
        return self.succeeded + self.ready + self.uncounted_succeeded >= self.pod_count

    @property
    def reclaimable_pods(self) -> int:
        """Number of pods whose quota is no longer needed, because fewer completions remain than pods run.

        An Indexed Job counts its finished indexes, failed ones included. Any other Job counts successes only,
        because a failed pod is replaced.
        """
        terminal = self.terminal_indexes if self.is_indexed else self.succeeded
        # A single pod needs its quota until the end, whatever remains to be completed.
        if self.pod_count <= 1 or terminal == 0:
            return 0
        wanted = self.parallelism if self.completions is None else self.completions
        return max(0, self.pod_count - max(0, wanted - terminal))


def to_job(obj: JobObject) -> Job:
    """Return the Job as a value. Absent counts get Kubernetes' defaults."""
    meta, spec, status = obj.metadata, obj.spec, obj.status
    uncounted = status.uncounted_terminated_pods or {}
    return Job(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        labels=meta.labels or NOTHING,
        annotations=meta.annotations or NOTHING,
        owner=meta.controller,
        is_deleted=meta.deletion_timestamp is not None,
        is_suspended=bool(spec.suspend),
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        completions=spec.completions,
        is_indexed=spec.completion_mode == "Indexed",
        # The built-in controller may be named explicitly, which means the same as an absent field.
        has_foreign_controller=spec.managed_by not in (None, _BUILT_IN_CONTROLLER),
        is_dispatched=spec.managed_by == keys.MULTIKUEUE_CONTROLLER,
        selector=spec.selector,
        active=status.active or 0,
        terminating=status.terminating or 0,
        ready=status.ready or 0,
        succeeded=status.succeeded or 0,
        uncounted_succeeded=len(uncounted.get("succeeded") or ()),
        # Failed indexes count too, because no pod is created for them again.
        terminal_indexes=index_count(
            (status.completed_indexes, status.failed_indexes), below=spec.completions
        ),
        has_start_time=status.start_time is not None,
        active_deadline_seconds=spec.active_deadline_seconds,
        outcome=_outcome(obj),
    )


def index_count(texts: Iterable[str | None], *, below: int | None = None) -> int:
    """Return how many completion indexes are named by texts such as "1,3-5,7", each counted once.

    Only those `below` that number count: a Job with fewer completions than before still names the others.
    Works on intervals instead of numbers, because an Indexed Job may have 100,000 indexes. Malformed
    intervals are ignored; only the Job controller writes this field.
    """
    total, reached = 0, -1
    for first, last in sorted(interval for text in texts for interval in _intervals(text or "")):
        # The intervals are sorted by their starts, so an overlapping one adds only the part beyond `reached`.
        last = last if below is None else min(last, below - 1)
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
            # Kueue's messages, used if the Job controller gives none.
            fallback = "Job finished successfully" if is_success else "Job failed"
            return JobOutcome(is_success=is_success, message=condition.message or fallback)
    return None
