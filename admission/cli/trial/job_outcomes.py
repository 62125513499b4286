"""The outcome of the Jobs of a run: results from recorded times, and a sentence for each lost Job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from admission.cli.trial.recorder import JobTimes, Recorder
from admission.cli.views.report import JobResult
from admission.cli.views.workload_view import WorkloadRow, job_of, workload_rows
from admission.simulation.waiting import quota_waits
from api.workload import WorkloadKey

# How many lost Jobs are explained one by one; the others usually have the same cause.
_EXPLAINED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """A Job of a run as planned. Times are seconds of the run's own clock, from its start."""

    key: WorkloadKey
    tenant: str
    gpus: int
    submitted_at: float
    duration_seconds: float


def job_results(
    recorder: Recorder, jobs: Sequence[RunJob], *, started_at: float, pace: float
) -> tuple[JobResult, ...]:
    """Return the result of each Job.

    `started_at` is monotonic; `pace` is how many seconds of the run's clock pass in one real second.
    """
    waits = _waits_by_job(recorder)
    return tuple(
        _result(job, recorder.jobs.get(job.key, JobTimes()), waits.get(job.key, 0.0), started_at, pace)
        for job in jobs
    )


def explain_lost(
    recorder: Recorder, jobs: Sequence[RunJob], refused: Mapping[WorkloadKey, str], *, now: float
) -> tuple[str, ...]:
    """Return a sentence for each of the first Jobs that did not end, and one that counts the others.

    `refused` maps Jobs that the API server refused to its message. `now` is in Unix seconds.
    """
    rows = {
        # Index by Job, because the Job's name is the name that the run created.
        WorkloadKey(row.namespace, row.job): row
        for row in workload_rows(recorder.wanted_workloads(), recorder.local_queues, now=now)
    }
    # Keep the order of the plan, so that the first lost Job is explained: it often causes the others.
    lost = [job.key for job in jobs if recorder.jobs.get(job.key, JobTimes()).finished_at is None]
    sentences = [
        f"Job {key} is lost: {_why_lost(recorder.jobs.get(key), rows.get(key), refused.get(key))}"
        for key in lost[:_EXPLAINED]
    ]
    if len(lost) > _EXPLAINED:
        sentences.append(f"and {len(lost) - _EXPLAINED} more Jobs are lost")
    return tuple(sentences)


def _waits_by_job(recorder: Recorder) -> dict[WorkloadKey, float]:
    """Return for each Job how long its Workloads waited for quota, in real seconds."""
    owners = {
        WorkloadKey(w.metadata.namespace, w.metadata.name): WorkloadKey(w.metadata.namespace, job_of(w))
        for w in recorder.wanted_workloads()
    }
    waits: dict[WorkloadKey, float] = {}
    for workload, seconds in quota_waits(recorder.records).items():
        if (job := owners.get(workload)) is not None:
            # Add them up: a Job may have had several Workloads, one after another.
            waits[job] = waits.get(job, 0.0) + seconds
    return waits


def _result(job: RunJob, times: JobTimes, quota_wait: float, started_at: float, pace: float) -> JobResult:
    ended = times.finished_at
    return JobResult(
        tenant=job.tenant,
        gpus=job.gpus,
        submitted_at=job.submitted_at,
        duration_seconds=job.duration_seconds,
        # Use the run's own seconds from its start, so that the figures can be compared to the trace.
        finished_at=None if ended is None else (ended - started_at) * pace,
        has_failed=times.has_failed,
        quota_wait_seconds=quota_wait * pace,
        node_wait_seconds=times.stuck_seconds * pace,
    )


def _why_lost(times: JobTimes | None, row: WorkloadRow | None, refused: str | None) -> str:
    if refused is not None:
        return f"the API server refused it ({refused})"
    # Report the earliest missing step; the later steps depend on it.
    if times is None or times.created_at is None:
        return "it was never seen after it was created"
    if times.is_gone:
        return "another client deleted it"
    if row is None:
        return "no controller created a Workload for it"
    if row.status == "pending":
        return f"it still waits ({row.reason or 'no reason given'}: {row.message})"
    return "it was admitted and did not end"
