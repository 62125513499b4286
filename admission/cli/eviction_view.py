"""What `berth explain` tells of a Workload that was stopped: when, why, for whom, and from where it goes on.

Worked out from the objects alone: the condition Evicted, its message (which names the preemptor by uid, as
Kueue's does), the counts in the status, and the last checkpoint that it told of.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from admission.cli.summary import seconds_text
from api.checkpoint_facts import CheckpointFacts, checkpoint_facts
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey, to_rfc3339

# Kueue's words: "Preempted to accommodate a workload (UID: …, JobUID: …) due to …".
_PREEMPTOR = re.compile(r"\(UID: ([^,)]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEviction:
    """The last eviction of a Workload that has not started again. `at` in Unix seconds.

    `preemptor_uid` is empty where it gave way to nobody in particular; `preemptor` is None where that one is
    gone. `ran_seconds` is for how long all its attempts ran.
    """

    at: float
    reason: str
    preemptor_uid: str
    preemptor: WorkloadKey | None
    facts: CheckpointFacts
    ran_seconds: float


def past_eviction(workload: Workload, key_of: Callable[[str], WorkloadKey | None]) -> PastEviction | None:
    """Return the eviction that the Workload has not got over yet; `key_of` finds a Workload by its uid."""
    evicted = workload.conditions.get(ConditionType.EVICTED)
    if evicted is None or not evicted.status or workload.is_finished:
        return None
    named = _PREEMPTOR.search(evicted.message)
    uid = named[1] if named is not None else ""
    return PastEviction(
        at=evicted.at,
        reason=evicted.reason,
        preemptor_uid=uid,
        preemptor=key_of(uid) if uid else None,
        facts=checkpoint_facts(workload),
        ran_seconds=float(workload.accumulated_execution_seconds),
    )


def eviction_lines(workload: Workload, found: PastEviction | None, *, now: float) -> Iterator[str]:
    """Yield the sentences for people; `now` in Unix seconds."""
    if found is not None:
        ago = seconds_text(max(0.0, now - found.at))
        yield f"stopped at {to_rfc3339(found.at)} ({ago} ago){_for_whom(found)}: {found.reason}"
        yield _checkpoint_line(found)
    times = sum(workload.evictions.values())
    # One that was stopped once and waits has been told so above.
    if times > (0 if found is None else 1):
        by_reason = ", ".join(f"{count} {_cause(*cause)}" for cause, count in workload.evictions.items())
        yield f"stopped {times} time{'s' if times > 1 else ''} so far: {by_reason}"


def eviction_json(found: PastEviction | None) -> dict[str, Any] | None:
    """Return the same for machines."""
    if found is None:
        return None
    saved_at = found.facts.saved_at
    return {
        "at": to_rfc3339(found.at),
        "reason": found.reason,
        "preemptorUid": found.preemptor_uid,
        "preemptor": str(found.preemptor) if found.preemptor is not None else "",
        "checkpointTime": to_rfc3339(saved_at) if saved_at is not None else "",
        "checkpointStep": found.facts.step,
        "lostSeconds": _lost_seconds(found),
    }


def _for_whom(found: PastEviction) -> str:
    if found.preemptor is not None:
        return f" for {found.preemptor}"
    return f" for a Workload that is gone (UID {found.preemptor_uid})" if found.preemptor_uid else ""


def _checkpoint_line(found: PastEviction) -> str:
    if found.facts.is_inference:
        return "serves again once it starts: inference keeps no progress"
    saved_at, lost = found.facts.saved_at, _lost_seconds(found)
    if saved_at is None or lost is None:
        return "told of no checkpoint: unless it saved all the same, it begins anew"
    step = f", step {found.facts.step}" if found.facts.step is not None else ""
    kept = f"goes on from its checkpoint of {to_rfc3339(saved_at)}{step}"
    return (
        f"{kept}; the last {seconds_text(lost)} of its work are lost" if lost else f"{kept}; nothing is lost"
    )


def _lost_seconds(found: PastEviction) -> float | None:
    """Return how much of its run time is lost, None where it told of no checkpoint."""
    saved_at = found.facts.saved_at
    if saved_at is None:
        return None
    # A checkpoint older than the attempt: what the attempt did, at most all that ever ran.
    since = max(0.0, found.at - saved_at)
    return min(since, found.ran_seconds) if found.ran_seconds else since


def _cause(reason: str, underlying: str) -> str:
    return f"{reason} ({underlying})" if underlying else reason
