"""Computes a run's report: waits per tenant, utilisation, and the components of the waits.

The wait of a Job is finish − submit − duration, so it includes every delay. It has three components: there
was no quota; there was quota but no node with room; and the rest, which is machine latency (API server,
controller, kubelet, and this program). All times are seconds of the run's own clock, which for a replay is
that of the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from admission.simulation.figures import mean, percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of one Job. `finished_at` is None if it never ended and is therefore lost."""

    tenant: str
    gpus: int
    submitted_at: float
    duration_seconds: float
    finished_at: float | None
    has_failed: bool = False
    quota_wait_seconds: float = 0.0
    node_wait_seconds: float = 0.0

    @property
    def wait_seconds(self) -> float | None:
        """Return how much later than possible it finished, or None if it never did."""
        if self.finished_at is None:
            return None
        # The trace's minutes and the cluster's clock differ by rounding, which must not give a negative wait.
        return max(0.0, self.finished_at - self.submitted_at - self.duration_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts of a run's Jobs, each of which finished, failed or was lost, and of exceeded quotas."""

    jobs: int
    finished: int
    failed: int
    lost: int
    exceeded: int

    @property
    def is_good(self) -> bool:
        """Return whether no Job failed or was lost and no quota was exceeded."""
        return self.finished == self.jobs and self.exceeded == 0

    def __str__(self) -> str:
        """Return the last line of demo and replay, which scripts look for."""
        return (
            f"jobs {self.jobs} finished {self.finished} failed {self.failed}"
            f" lost {self.lost} quota-exceeded {self.exceeded}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFigures:
    """Waits of the finished Jobs of a tenant (or of all), in seconds. Percentiles are actual waits."""

    jobs: int
    mean_wait_seconds: float
    p50_wait_seconds: float
    p90_wait_seconds: float
    longest_wait_seconds: float
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitShares:
    """The components of the waits as shares of their sum, together 1; all 0 if no Job waited."""

    quota: float
    nodes: float
    machine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The figures of a run. Utilisation is useful GPU time ÷ GPU time of all GPUs.

    `utilisation` counts until the last Job ended, `utilisation_while_submitting` only while Jobs were
    submitted: a single long Job at the end does not show how well the queue was served.
    """

    totals: Totals
    everyone: WaitFigures
    tenants: Mapping[str, WaitFigures]
    shares: WaitShares
    utilisation: float
    utilisation_while_submitting: float


def summarise(results: Sequence[JobResult], *, gpus: int, exceeded: int) -> RunReport:
    """Return the report of a run on `gpus` GPUs in which quota was exceeded `exceeded` times."""
    tenants = sorted({result.tenant for result in results})
    # After the last submit no new Job can fill the GPUs, so the rest depends only on the longest Job.
    last_submit = max((result.submitted_at for result in results), default=0.0)
    last_end = max((result.finished_at or 0.0 for result in results), default=0.0)
    return RunReport(
        totals=_totals(results, exceeded),
        everyone=_figures(results),
        tenants={name: _figures([r for r in results if r.tenant == name]) for name in tenants},
        shares=_shares(results),
        utilisation=_utilisation(results, gpus, last_end),
        utilisation_while_submitting=_utilisation(results, gpus, last_submit),
    )


def _totals(results: Sequence[JobResult], exceeded: int) -> Totals:
    ended = [result for result in results if result.finished_at is not None]
    # A failed Job has ended, so it is neither lost nor finished.
    failed = sum(result.has_failed for result in ended)
    return Totals(
        jobs=len(results),
        finished=len(ended) - failed,
        failed=failed,
        lost=len(results) - len(ended),
        exceeded=exceeded,
    )


def _figures(results: Sequence[JobResult]) -> WaitFigures:
    waits = sorted(wait for result in results if (wait := result.wait_seconds) is not None)
    return WaitFigures(
        jobs=len(results),
        mean_wait_seconds=mean(waits),
        p50_wait_seconds=percentile(waits, 50),
        p90_wait_seconds=percentile(waits, 90),
        longest_wait_seconds=waits[-1] if waits else 0.0,
        gpu_hours=sum(result.gpus * result.duration_seconds for result in results) / 3600,
    )


def _shares(results: Sequence[JobResult]) -> WaitShares:
    quota = nodes = whole = 0.0
    for result in results:
        wait = result.wait_seconds or 0.0
        # Cap one component after the other, because they come from different clocks and may add up to
        # more than the whole.
        of_quota = min(wait, result.quota_wait_seconds)
        whole += wait
        quota += of_quota
        nodes += min(wait - of_quota, result.node_wait_seconds)
    if whole == 0:
        return WaitShares(quota=0.0, nodes=0.0, machine=0.0)
    # Machine latency is the remainder, because it cannot be measured directly.
    return WaitShares(quota=quota / whole, nodes=nodes / whole, machine=1 - (quota + nodes) / whole)


def _utilisation(results: Sequence[JobResult], gpus: int, until: float) -> float:
    """Return useful GPU-seconds ÷ available GPU-seconds, from the first submit to `until`."""
    since = min((result.submitted_at for result in results), default=0.0)
    # With a single submit time or without GPUs, there is no time span to measure.
    if gpus == 0 or until <= since:
        return 0.0
    return sum(_busy(result, until) for result in results) / (gpus * (until - since))


def _busy(result: JobResult, until: float) -> float:
    # A Job that did not finish did no useful work, however long it held its GPUs.
    if result.finished_at is None or result.has_failed:
        return 0.0
    # Count the Job's run time back from its end; the time before was waiting.
    started_at = max(result.submitted_at, result.finished_at - result.duration_seconds)
    return result.gpus * max(0.0, min(until, result.finished_at) - started_at)
