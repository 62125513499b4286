"""What `berth explain` shows for a Workload that holds quota: where it runs, since when, and until when.

Everything comes from the API objects. A promise remains on the Workload after its start, so that both can be
compared; the condition QuotaReserved says if it runs on a lease.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from admission.answers.run_time import SOURCE_WORDS
from admission.backfill.schedule_plan import SLACK_SECONDS
from api.keys import PLANNED_START
from api.parsing.durations import seconds_text
from api.parsing.times import to_rfc3339, to_seconds
from api.reasons import ConditionType
from api.workload import Admission, Workload
from api.workload_status import LEASE_WORDS
from queues.estimates.runtime_estimate import Estimate

# A start within this time keeps its promise: promises are whole seconds, and pods and clocks add some delay.
_KEPT_WITHIN_SECONDS = SLACK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionView:
    """A Workload's admission. Times are Unix seconds.

    `since` is when it was admitted, or else when its quota was reserved. `ends_at` is when it is expected to
    end by `estimate`; None: there is no estimate, or it does not run yet. `promised_at` is the start that it
    had been promised, or None; `reserved_at` is when it got its quota.
    """

    admission: Admission
    since: float
    reserved_at: float
    is_admitted: bool
    estimate: Estimate | None
    ends_at: float | None
    promised_at: float | None
    on_lease: bool


def holding_of(workload: Workload, admission: Admission, estimate: Estimate | None) -> AdmissionView:
    """Return the view of a Workload that holds this quota."""
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    reserved = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    is_admitted = admitted is not None and admitted.status
    condition = admitted if is_admitted else reserved
    since = condition.at if condition is not None else 0.0
    is_timed = is_admitted and estimate is not None
    return AdmissionView(
        admission=admission,
        since=since,
        reserved_at=reserved.at if reserved is not None else since,
        is_admitted=is_admitted,
        estimate=estimate,
        ends_at=since + estimate.seconds if is_timed and estimate is not None else None,
        promised_at=_promised_at(workload),
        on_lease=reserved is not None and reserved.message.endswith(LEASE_WORDS),
    )


def holding_lines(holding: AdmissionView, *, now: float) -> Iterator[str]:
    """Yield the lines of text output; `now` is in Unix seconds."""
    verb = "runs" if holding.is_admitted else "has quota, and waits for its admission checks,"
    yield f"{verb} since {to_rfc3339(holding.since)} ({seconds_text(max(0.0, now - holding.since))})"
    if holding.promised_at is not None:
        yield _promise_line(holding, holding.promised_at)
    if holding.is_admitted:
        yield _end_line(holding, now)
    if holding.on_lease:
        yield "on a backfill lease: it is evicted if a promised start needs its capacity after its time is up"


def holding_json(holding: AdmissionView) -> dict[str, Any]:
    """Return the same as JSON; unknown values are empty."""
    return {
        "since": to_rfc3339(holding.since),
        "isAdmitted": holding.is_admitted,
        "promisedStart": _text(holding.promised_at),
        "expectedEnd": _text(holding.ends_at),
        "estimateSource": holding.estimate.source.value if holding.estimate is not None else "",
        "isOnLease": holding.on_lease,
        "podSets": [
            {
                "name": one.name,
                "count": one.count,
                "flavors": dict(one.flavors),
                "domains": [
                    {"values": list(domain.values), "count": domain.count}
                    for domain in (one.topology.domains if one.topology is not None else ())
                ],
            }
            for one in holding.admission.pod_sets
        ],
    }


def _promise_line(holding: AdmissionView, promised_at: float) -> str:
    late = holding.reserved_at - promised_at
    promised = f"had been promised to start at {to_rfc3339(promised_at)}"
    if late > _KEPT_WITHIN_SECONDS:
        return f"{promised}, and did {seconds_text(late)} later"
    if late < -_KEPT_WITHIN_SECONDS:
        return f"{promised}, and did {seconds_text(-late)} sooner"
    return f"{promised}, and did"


def _end_line(holding: AdmissionView, now: float) -> str:
    if holding.estimate is None or holding.ends_at is None:
        return "its run time is unknown"
    at, by = to_rfc3339(holding.ends_at), SOURCE_WORDS[holding.estimate.source]
    if holding.estimate.is_enforced:
        return f"is stopped at {at} at the latest, by {by}"
    return f"{'was' if holding.ends_at < now else 'is'} expected to end at {at}, by {by}"


def _promised_at(workload: Workload) -> float | None:
    text = workload.annotations.get(PLANNED_START)
    try:
        return to_seconds(text) if text else None
    except ValueError:
        # Another client overwrote the annotation, so the promise is unknown.
        return None


def _text(at: float | None) -> str:
    return to_rfc3339(at) if at is not None else ""
