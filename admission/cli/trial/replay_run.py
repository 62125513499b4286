"""One replay on a cluster that is ready: create the queues, submit the Jobs, watch them end, sum up."""

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

# So long nothing may happen, beyond what Jobs that run still need, before the rest is given up as lost.
_SILENCE_SECONDS = 60.0
# By then a controller has made a Workload for the first Job, or there is none.
_FIRST_WORKLOAD_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFinding:
    """A replay in figures. `lost` are sentences, `gaps` counts the times in which nothing was seen."""

    report: RunReport
    audit: Audit
    lost: tuple[str, ...]
    gaps: int
    real_seconds: float


@dataclass(slots=True, kw_only=True)
class ReplayRun:
    """A replay while it goes on. `pace`: how many seconds of the trace pass in a real one."""

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
        """Replay the plan's Jobs and return what was found. Raises NotHoldingError where nobody reacts."""
        await self._create_queues()
        self._started_at = time.monotonic()
        async with in_background(
            progress=show_progress(self._standing), submitter=self._submitter.run(self._started_at)
        ):
            await wait_all_ended(
                self.recorder, [job.key for job in self._jobs], has_stalled=self._has_stalled
            )
        return self._sum_up()

    async def _create_queues(self) -> None:
        # What others name comes before them, so that no queue is inactive for a moment and no Job finds none.
        await create(self.client, RESOURCE_FLAVORS, self.plan.resource_flavor())
        await create(self.client, COHORTS, self.plan.cohort_manifest())
        for queue in self.plan.cluster_queues():
            await create(self.client, CLUSTER_QUEUES, queue)
        for namespace in self.plan.namespaces():
            await create(self.client, NAMESPACES, namespace)
        for queue in self.plan.local_queues():
            await create(self.client, LOCAL_QUEUES, queue)

    def _standing(self) -> JobCounts:
        times = self.recorder.jobs.values()
        ended = sum(each.finished_at is not None for each in times)
        admitted = sum(each.admitted_at is not None and each.finished_at is None for each in times)
        # Counted by what was sent, not by what was seen: a Job that no watch has shown yet waits, too.
        submitted = self._submitter.submitted
        return JobCounts(
            jobs=len(self.plan.jobs),
            submitted=submitted,
            waiting=max(0, submitted - ended - admitted),
            ended=ended,
            trace_seconds=(time.monotonic() - self._started_at) * self.pace,
        )

    def _has_stalled(self) -> bool:
        """Return whether nothing happens any more though Jobs are left. Raises NotHoldingError."""
        now = time.monotonic()
        if now - self._started_at > _FIRST_WORKLOAD_SECONDS and self._submitter.submitted:
            self._check_that_somebody_reacts()
        # More is to come by the trace, however quiet it is now.
        if not self._submitter.is_done:
            return False
        # A Job of hours is quiet for hours: silence counts only once everybody who runs should have ended.
        return now > max(self.recorder.progressed_at, self._last_end_expected()) + _SILENCE_SECONDS

    def _check_that_somebody_reacts(self) -> None:
        # Told after half a minute rather than after the whole trace has been sent in vain.
        if not self.recorder.wanted_workloads():
            raise NotHoldingError(
                f"no controller on {self.client.server} made a Workload for any Job;"
                " start berth controller there, or give --controller"
            )

    def _last_end_expected(self) -> float:
        """Return when the Jobs that were admitted will have ended, as far as they may run at once."""
        ends = [self._started_at]
        for job in self._jobs:
            times = self.recorder.jobs.get(job.key)
            if times and times.admitted_at is not None and times.finished_at is None:
                ends.append(times.admitted_at + job.duration_seconds / self.pace)
        return max(ends)

    def _sum_up(self) -> ReplayFinding:
        # Read first: summing up a long trace takes seconds that are no part of the run.
        ended_at = time.monotonic()
        # Afterwards and as a whole, as versions of different kinds arrive by watches of their
        # own, out of order.
        result = audit(self.recorder.records)
        results = job_results(self.recorder, self._jobs, started_at=self._started_at, pace=self.pace)
        return ReplayFinding(
            report=summarise(results, gpus=self.plan.nodes.gpus, exceeded=len(result.exceeded)),
            audit=result,
            lost=explain_lost(self.recorder, self._jobs, self._submitter.refused, now=time.time()),
            gaps=self.recorder.gaps,
            real_seconds=ended_at - self._started_at,
        )
