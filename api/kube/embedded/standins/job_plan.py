"""The next steps for a Job, as a value: pods to create, pods to stop, the status to write.

The decision is a pure function of a Job, its pods and the time. The rules are those of the real Job
controller for plain and Indexed Jobs, without failure policies, success policies and managedBy.

Source: k8s.io/kubernetes, pkg/controller/job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from api.kube.embedded.standins.objects import Job, Pod
from api.objects.common import WireCondition

# Back-off before a failed pod is replaced: ten seconds, doubled with each consecutive failure,
# up to ten minutes.
_FIRST_BACKOFF_SECONDS: Final = 10.0
_LONGEST_BACKOFF_SECONDS: Final = 600.0
# Thirty years. A later deadline has no practical effect, but would exceed the limit of sleep().
_MOST_SECONDS: Final = 30 * 366 * 86_400


@dataclass(slots=True)
class Tally:
    """State that the controller keeps about a Job's pods, in addition to the existing pods.

    `released` are pods that the controller itself has stopped: they count neither as failed nor as succeeded.
    """

    succeeded: int = 0
    failed: int = 0
    succeeded_indexes: set[int] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    # Every pod that the watch has shown. One that was deleted before its creation was
    # answered no longer exists.
    seen: set[str] = field(default_factory=set)
    last_failure: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The next steps for one Job. `create` contains an index for each pod to create (None in a plain Job)."""

    create: tuple[int | None, ...] = ()
    stop: tuple[Pod, ...] = ()
    status: dict[str, Any] | None = None
    look_again_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    active: tuple[Pod, ...]
    terminating: int
    succeeded: int
    failed: int
    indexes: frozenset[int]


def plan_job(job: Job, pods: Iterable[Pod], tally: Tally, *, now: datetime, speed: float = 1.0) -> JobPlan:
    """Return the next steps for `job`, whose pods are `pods`.

    `speed` shortens the back-off after failures. For a finished Job, the only step is to stop
    pods that still run.
    """
    counts = _count(pods, tally, is_indexed=job.spec.completion_mode == "Indexed")
    # The order matters: a finished Job stays finished, failure precedes success, and a Job whose last pod has
    # succeeded is complete even if it was suspended at the same moment.
    if job.is_finished:
        return JobPlan(stop=counts.active)
    if failure := _failure(job, counts, now):
        return _failing(job, counts, failure, now)
    if _is_done(job, counts):
        return _completing(job, counts, now)
    if job.spec.suspend:
        return _suspending(job, counts, now)
    return _running(job, counts, tally, now, speed)


def _count(pods: Iterable[Pod], tally: Tally, *, is_indexed: bool) -> _Counts:
    own = sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    kept = [pod for pod in own if pod.metadata.uid not in tally.released]
    succeeded = [pod for pod in kept if pod.status.phase == "Succeeded"]
    failed = [pod for pod in kept if pod.status.phase == "Failed" or (pod.is_leaving and not pod.is_finished)]
    indexes = {pod.index for pod in succeeded if pod.index is not None} | tally.succeeded_indexes
    return _Counts(
        active=tuple(pod for pod in kept if pod.is_active),
        terminating=sum(pod.is_leaving and not pod.is_finished for pod in own),
        succeeded=len(indexes) if is_indexed else len(succeeded) + tally.succeeded,
        failed=len(failed) + tally.failed,
        indexes=frozenset(indexes),
    )


def _failure(job: Job, counts: _Counts, now: datetime) -> tuple[str, str] | None:
    """Return reason and message if the Job must fail, otherwise None."""
    target = job.condition("FailureTarget")
    if target is not None and target.status == "True":
        return target.reason, target.message
    if counts.failed > job.spec.backoff_limit:
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    deadline = _deadline(job)
    if deadline is not None and not job.spec.suspend and now >= deadline:
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def _deadline(job: Job) -> datetime | None:
    seconds, start = job.spec.active_deadline_seconds, job.status.start_time
    if seconds is None or start is None:
        return None
    return _after(start, seconds)


def _after(start: str, seconds: int) -> datetime:
    # Any 64-bit number is valid here, but dates end with the year 9999.
    return datetime.fromisoformat(start) + timedelta(seconds=min(seconds, _MOST_SECONDS))


def _is_done(job: Job, counts: _Counts) -> bool:
    if job.spec.completions is None:
        # In a work queue, one success means that no work is left; the other pods finish by themselves.
        return counts.succeeded > 0 and not counts.active
    return counts.succeeded >= job.spec.completions


def _failing(job: Job, counts: _Counts, failure: tuple[str, str], now: datetime) -> JobPlan:
    reason, message = failure
    conditions = [_condition("FailureTarget", reason, message, now)]
    is_over = not counts.active and not counts.terminating
    if is_over:
        conditions.append(_condition("Failed", reason, message, now))
    start = job.status.start_time or _text(now)
    status = _status(job, counts, conditions, active=0 if is_over else len(counts.active))
    return JobPlan(stop=counts.active, status=_changed(job, {**status, "startTime": start}))


def _suspending(job: Job, counts: _Counts, now: datetime) -> JobPlan:
    conditions = [] if job.has_condition("Suspended") else [_suspended("True", "JobSuspended", now)]
    status = _status(job, counts, conditions, active=0)
    status.update(startTime=None, ready=0, terminating=counts.terminating + len(counts.active))
    return JobPlan(stop=counts.active, status=_changed(job, status))


def _completing(job: Job, counts: _Counts, now: datetime) -> JobPlan:
    reason, message = "CompletionsReached", "Reached expected number of succeeded pods"
    conditions = [_condition("SuccessCriteriaMet", reason, message, now)]
    is_over = not counts.active and not counts.terminating
    status = _status(job, counts, conditions, active=len(counts.active))
    status["startTime"] = job.status.start_time or _text(now)
    if is_over:
        conditions.append(_condition("Complete", reason, message, now))
        status["completionTime"] = _text(now)
        status["conditions"] = _merged(job, conditions)
    return JobPlan(stop=counts.active, status=_changed(job, status))


def _running(job: Job, counts: _Counts, tally: Tally, now: datetime, speed: float) -> JobPlan:
    conditions = []
    if job.has_condition("Suspended"):
        conditions.append(_suspended("False", "JobResumed", now))
    create, stop = _difference(job, counts)
    pause = _pause(tally, counts, now, speed) if create else 0.0
    if pause > 0:
        create = ()
    status = _status(job, counts, conditions, active=len(counts.active) + len(create) - len(stop))
    status["startTime"] = job.status.start_time or _text(now)
    again = [pause] if pause > 0 else []
    if job.spec.active_deadline_seconds is not None:
        deadline = _after(status["startTime"], job.spec.active_deadline_seconds)
        again.append((deadline - now).total_seconds())
    return JobPlan(
        create=create,
        stop=stop,
        status=_changed(job, status),
        look_again_seconds=max(min(again), 0.0) if again else None,
    )


def _difference(job: Job, counts: _Counts) -> tuple[tuple[int | None, ...], tuple[Pod, ...]]:
    """Return the pods to create and to stop, so that as many pods run as the Job wants."""
    wanted = _wanted(job, counts)
    if job.spec.completion_mode == "Indexed":
        return _indexed_difference(job, counts, wanted)
    surplus = len(counts.active) - wanted
    if surplus > 0:
        return (), counts.active[len(counts.active) - surplus :]
    return (None,) * -surplus, ()


def _wanted(job: Job, counts: _Counts) -> int:
    if job.spec.completions is None:
        return len(counts.active) if counts.succeeded else job.spec.parallelism
    return max(min(job.spec.parallelism, job.spec.completions - counts.succeeded), 0)


def _indexed_difference(
    job: Job, counts: _Counts, wanted: int
) -> tuple[tuple[int | None, ...], tuple[Pod, ...]]:
    taken: set[int] = set(counts.indexes)
    keep: list[Pod] = []
    stop: list[Pod] = []
    for pod in sorted(counts.active, key=lambda pod: pod.index if pod.index is not None else -1):
        index = pod.index
        is_useful = index is not None and index not in taken and index < (job.spec.completions or 0)
        if is_useful and index is not None and len(keep) < wanted:
            taken.add(index)
            keep.append(pod)
        else:
            stop.append(pod)
    free = (index for index in range(job.spec.completions or 0) if index not in taken)
    create = tuple(index for index, _ in zip(free, range(wanted - len(keep)), strict=False))
    return create, tuple(stop)


def _pause(tally: Tally, counts: _Counts, now: datetime, speed: float) -> float:
    """Return how many seconds the next pod must still wait after the last failure.

    0 or less if it need not.
    """
    if tally.last_failure is None or not counts.failed:
        return 0.0
    pause = min(_FIRST_BACKOFF_SECONDS * 2 ** (counts.failed - 1), _LONGEST_BACKOFF_SECONDS) / speed
    return (tally.last_failure + timedelta(seconds=pause) - now).total_seconds()


def _status(job: Job, counts: _Counts, conditions: Sequence[WireCondition], *, active: int) -> dict[str, Any]:
    ready = sum(pod.is_ready for pod in counts.active)
    status: dict[str, Any] = {
        "active": active,
        "ready": min(ready, active),
        "terminating": counts.terminating,
        "succeeded": counts.succeeded,
        # The count must not decrease, not even after a restart of this controller.
        "failed": max(counts.failed, job.status.failed),
        "conditions": _merged(job, conditions),
    }
    if job.spec.completion_mode == "Indexed":
        status["completedIndexes"] = index_ranges(counts.indexes)
    return status


def index_ranges(indexes: Iterable[int]) -> str:
    """Return completed indexes in the form of a Job's status: 0,2-4"""
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and ranges[-1][-1] == index - 1:
            ranges[-1] = [ranges[-1][0], index]
        else:
            ranges.append([index])
    return ",".join("-".join(str(end) for end in each) for each in ranges)


def _merged(job: Job, conditions: Sequence[WireCondition]) -> tuple[WireCondition, ...]:
    """Return the Job's conditions with these added; one that already has the same status is unchanged."""
    merged = {each.type: each for each in job.status.conditions or ()}
    for condition in conditions:
        current = merged.get(condition.type)
        if current is None or current.status != condition.status:
            merged[condition.type] = condition
    return tuple(merged.values())


def _condition(type_: str, reason: str, message: str, now: datetime) -> WireCondition:
    return WireCondition(
        type=type_, status="True", reason=reason, message=message, last_transition_time=_text(now)
    )


def _suspended(status: str, reason: str, now: datetime) -> WireCondition:
    message = "Job suspended" if status == "True" else "Job resumed"
    return WireCondition(
        type="Suspended", status=status, reason=reason, message=message, last_transition_time=_text(now)
    )


def _changed(job: Job, status: dict[str, Any]) -> dict[str, Any] | None:
    """Return the part of `status` that differs from the Job's, or None. A None value removes the field."""
    current = job.status
    shown: dict[str, Any] = {
        "active": current.active,
        "ready": current.ready or 0,
        "terminating": current.terminating or 0,
        "succeeded": current.succeeded,
        "failed": current.failed,
        "conditions": current.conditions or (),
        "completedIndexes": current.completed_indexes,
        "startTime": current.start_time,
        "completionTime": current.completion_time,
    }
    return {key: value for key, value in status.items() if shown[key] != value} or None


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
