"""What `berth explain` shows for a Workload that was evicted."""

from __future__ import annotations

from collections.abc import Iterator

from admission.status.last_eviction import PastEviction, lost_seconds
from api.parsing.durations import seconds_text
from api.parsing.times import to_rfc3339
from api.workload import Workload


def eviction_lines(workload: Workload, found: PastEviction | None, *, now: float) -> Iterator[str]:
    """Yield the lines of text output; `now` is in Unix seconds."""
    if found is not None:
        ago = seconds_text(max(0.0, now - found.at))
        yield f"stopped at {to_rfc3339(found.at)} ({ago} ago){_for_whom(found)}: {found.reason}"
        yield _checkpoint_line(found)
    times = sum(workload.evictions.values())
    # If it was stopped once and waits, the line above already says so.
    if times > (0 if found is None else 1):
        by_reason = ", ".join(f"{count} {_cause(*cause)}" for cause, count in workload.evictions.items())
        yield f"stopped {times} time{'s' if times > 1 else ''} so far: {by_reason}"


def _for_whom(found: PastEviction) -> str:
    if found.preemptor is not None:
        return f" for {found.preemptor}"
    return f" for a Workload that no longer exists (UID {found.preemptor_uid})" if found.preemptor_uid else ""


def _checkpoint_line(found: PastEviction) -> str:
    if found.facts.is_inference:
        return "serves again once it starts: inference has no progress to lose"
    saved_at, lost = found.facts.saved_at, lost_seconds(found)
    if saved_at is None or lost is None:
        return "reported no checkpoint: unless it saved without a report, it starts from the beginning"
    step = f", step {found.facts.step}" if found.facts.step is not None else ""
    kept = f"continues from its checkpoint of {to_rfc3339(saved_at)}{step}"
    if not lost:
        return f"{kept}; nothing is lost"
    # The Workload does not show how much of that time it waited between two attempts.
    at_most = "at most " if found.attempts > 1 else ""
    return f"{kept}; {at_most}the last {seconds_text(lost)} of its work are lost"


def _cause(reason: str, underlying: str) -> str:
    return f"{reason} ({underlying})" if underlying else reason
