"""One replay on a ready cluster: create the queues, submit the Jobs, wait for their ends, and summarise."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from admission.cli.common.errors import NotHoldingError
from admission.cli.trial.embedded_cluster import create, in_background
from admission.cli.trial.job_outcomes import RunJob, explain_lost, job_results
from admission.cli.trial.job_submitter import Submitter, wait_all_ended
from admission.cli.trial.progress import JobCounts, show_progress
from admission.cli.trial.recorder import Recorder
from admission.cli.trial.replay_plan import ReplayPlan
from admission.cli.views.report import RunReport, summarise
from admission.simulation.audit import Audit, audit
from api.kube.client import KubeClient
from api.kube.resources import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, NAMESPACES, RESOURCE_FLAVORS

# How long there may be no progress, after the running Jobs should have ended, until the rest counts as lost.
_SILENCE_SECONDS = 60.0
# If there is no Workload for any Job within this time, no controller is running.
_FIRST_WORKLOAD_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFinding:
    """The results of a replay. `lost` are sentences about lost Jobs, `gaps` counts restarts of watches."""

    report: RunReport
    audit: Audit
    lost: tuple[str, ...]
    gaps: int
    real_seconds: float


@dataclass(slots=True, kw_only=True)
class ReplayRun:
    """A running replay. `pace`: how many seconds of the trace pass in one real second."""

    client: KubeClient
    recorder: Recorder
    plan: ReplayPlan
    pace: float
    _submitter: Submitter = field(init=False)
    _jobs: tuple[RunJob, ...] = field(init=False)
    _started_at: float = 0.0

    def __post_init__(self) -> None:
        self._submitter = Submitter(self.client, self.plan.submissions(self.pace))
        self._jobs = tuple(self.plan.run_jobs())

    async def play(self) -> ReplayFinding:
        """Replay the plan's Jobs and return the results. Raises NotHoldingError if no controller reacts."""
        await self._create_queues()
        self._started_at = time.monotonic()
        async with in_background(
            progress=show_progress(self._counts), submitter=self._submitter.run(self._started_at)
        ):
            await wait_all_ended(
                self.recorder, [job.key for job in self._jobs], has_stalled=self._has_stalled
            )
        return self._sum_up()

    async def _create_queues(self) -> None:
        # Create objects before those that refer to them, so that no queue is inactive for a moment.
        await create(self.client, RESOURCE_FLAVORS, self.plan.resource_flavor())
        await create(self.client, COHORTS, self.plan.cohort_manifest())
        for queue in self.plan.cluster_queues():
            await create(self.client, CLUSTER_QUEUES, queue)
        for namespace in self.plan.namespaces():
            await create(self.client, NAMESPACES, namespace)
        for queue in self.plan.local_queues():
            await create(self.client, LOCAL_QUEUES, queue)

    def _counts(self) -> JobCounts:
        times = self.recorder.jobs.values()
        ended = sum(each.finished_at is not None for each in times)
        admitted = sum(each.admitted_at is not None and each.finished_at is None for each in times)
        # Count created Jobs rather than recorded ones: a Job that no watch has delivered yet also waits.
        submitted = self._submitter.submitted
        return JobCounts(
            jobs=len(self.plan.jobs),
            submitted=submitted,
            waiting=max(0, submitted - ended - admitted),
            ended=ended,
            trace_seconds=(time.monotonic() - self._started_at) * self.pace,
        )

    def _has_stalled(self) -> bool:
        """Return whether there is no more progress although Jobs remain. Raises NotHoldingError."""
        now = time.monotonic()
        if now - self._started_at > _FIRST_WORKLOAD_SECONDS and self._submitter.submitted:
            self._check_that_somebody_reacts()
        # The trace has more Jobs to submit, so a quiet time is expected.
        if not self._submitter.is_done:
            return False
        # A long Job causes no events while it runs: count only from when all running Jobs should have ended.
        return now > max(self.recorder.progressed_at, self._last_end_expected()) + _SILENCE_SECONDS

    def _check_that_somebody_reacts(self) -> None:
        # Report this after half a minute instead of submitting the whole trace first.
        if not self.recorder.wanted_workloads():
            raise NotHoldingError(
                f"no controller on {self.client.server} created a Workload for any Job;"
                " start berth controller there, or give --controller"
            )

    def _last_end_expected(self) -> float:
        """Return when all admitted Jobs should have ended, if all of their pods have nodes."""
        ends = [self._started_at]
        for job in self._jobs:
            times = self.recorder.jobs.get(job.key)
            if times and times.admitted_at is not None and times.finished_at is None:
                ends.append(times.admitted_at + job.duration_seconds / self.pace)
        return max(ends)

    def _sum_up(self) -> ReplayFinding:
        # Read the clock first: the summary of a long trace takes seconds that do not belong to the run.
        ended_at = time.monotonic()
        # Audit all records at the end, because each kind has its own watch and versions of different kinds
        # arrive out of order.
        result = audit(self.recorder.records)
        results = job_results(self.recorder, self._jobs, started_at=self._started_at, pace=self.pace)
        return ReplayFinding(
            report=summarise(results, gpus=self.plan.nodes.gpus, exceeded=len(result.exceeded)),
            audit=result,
            lost=explain_lost(self.recorder, self._jobs, self._submitter.refused, now=time.time()),
            gaps=self.recorder.gaps,
            real_seconds=ended_at - self._started_at,
        )
