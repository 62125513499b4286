"""Cases of Kueue's suites that no controller beside the suite's own process can pass, each with the reason.

Only what a case asks of the test's own process makes it not applicable: a fake client in Kueue's manager, or
an object of Kueue's memory. A rule of Kueue that Berth does not have is a failure, not an entry here.
"""

from __future__ import annotations

from dataclasses import dataclass

_FAKE_CLIENT = "makes a write of Kueue's own client fail"
_LEDGER = "reads Kueue's ledger of LocalQueue usage in memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """Cases whose names contain a text, and what they ask of the process."""

    suite: str
    name: str
    reason: str


NOT_APPLICABLE: tuple[NotApplicable, ...] = (
    NotApplicable(suite="scheduler", name="Should retry on failed preemptions", reason=_FAKE_CLIENT),
    NotApplicable(
        suite="scheduler", name="Scheduler patch request fails Should not reserve quota", reason=_FAKE_CLIENT
    ),
    NotApplicable(
        suite="scheduler", name="Should not deadlock the preempting workloads", reason=_FAKE_CLIENT
    ),
    NotApplicable(
        suite="scheduler/fairsharing",
        name="should subtract the entry penalty when the workload is admitted via an AdmissionCheck",
        reason=_LEDGER,
    ),
    NotApplicable(
        suite="scheduler/fairsharing",
        name="should drop the entry penalty when the workload is deleted while waiting",
        reason=_LEDGER,
    ),
    NotApplicable(
        suite="scheduler/fairsharing",
        name="should not stack entry penalties when an evicted workload reserves quota again",
        reason=_LEDGER,
    ),
    NotApplicable(
        suite="scheduler/fairsharing",
        name="should preempt a workload from LQ with higher recent usage",
        reason=_LEDGER,
    ),
    NotApplicable(
        suite="controller/jobs/job",
        name="Shouldn't admit deactivated Workload after manager restart",
        reason="reads a counter that outlives the manager, in the test's own process",
    ),
    NotApplicable(
        suite="controller/core",
        name="Should log concurrent modification errors with log level smaller than error",
        reason="reads the log of Kueue's manager in memory",
    ),
    NotApplicable(
        suite="controller/core",
        name="Should resync metrics after role transition from follower to leader",
        reason="makes Kueue's manager a leader by a call in the process",
    ),
)


def not_applicable(suite: str) -> tuple[NotApplicable, ...]:
    """Return the entries of a suite."""
    return tuple(entry for entry in NOT_APPLICABLE if entry.suite == suite)


def reason_against(suite: str, name: str) -> str | None:
    """Return why a case is not applicable, None if it is."""
    return next((entry.reason for entry in not_applicable(suite) if entry.name in name), None)
