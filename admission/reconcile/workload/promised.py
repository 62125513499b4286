"""The step that keeps a waiting Workload's annotations in step with what it is promised.

Level-triggered like all others: it compares the promise as it stands with what the object says, so a write
that was lost is made good, and a leader that knows of no promise takes an old one's annotations off. Once the
Workload has its quota they stay as they are: what was promised can be compared with what came.
"""

from __future__ import annotations

from admission.decisions.api_writes import EventType, Purpose
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import planned_text, workload_patch
from api.keys import EXPECTED_START, PLANNED_DOMAIN, PLANNED_START
from api.workload import to_rfc3339, to_seconds
from queues.profile.planned_start import PlannedStart

# A gang may be promised a thousand hosts; an annotation that names them all helps nobody.
_MOST_DOMAINS = 32
# An expected start is written again when it is off by more than this, or by this share of what is left.
_LEAST_CHANGE_SECONDS = 60.0
_LEAST_CHANGE_SHARE = 0.1


def answer_promise(look: Look) -> Answer:
    """Write what the Workload is promised and expected, where its annotations say otherwise."""
    workload, context = look.workload, look.context
    if workload.has_quota_reservation or not workload.active:
        return None
    wanted = _wanted(context.planned, context.expected_at)
    # As it was written, where it is close enough: the annotation stays, and nothing is sent for seconds.
    if _is_near(workload.annotations.get(EXPECTED_START), context.expected_at, now=look.now):
        wanted[EXPECTED_START] = workload.annotations.get(EXPECTED_START)
    changed = {key: value for key, value in wanted.items() if workload.annotations.get(key) != value}
    if not changed:
        return None
    patch = {"metadata": {"annotations": changed}}
    events = []
    if context.planned is not None and changed.keys() & {PLANNED_START, PLANNED_DOMAIN}:
        # Whether it was promised before tells a first promise from a moved one.
        is_first = PLANNED_START not in workload.annotations
        reason = "StartPlanned" if is_first else "PlannedStartMoved"
        events.append(look.event(EventType.NORMAL, reason, f"The Workload {planned_text(context.planned)}"))
    return (workload_patch(workload, patch, Purpose.PLAN, *events),)


def _wanted(planned: PlannedStart | None, expected_at: float | None) -> dict[str, str | None]:
    wanted: dict[str, str | None] = {PLANNED_START: None, PLANNED_DOMAIN: None, EXPECTED_START: None}
    if planned is not None:
        wanted[PLANNED_START] = to_rfc3339(planned.start_at)
        wanted[PLANNED_DOMAIN] = shortened(planned.domain) or None
    if expected_at is not None:
        wanted[EXPECTED_START] = to_rfc3339(expected_at)
    return wanted


def _is_near(text: str | None, expected_at: float | None, *, now: float) -> bool:
    """Return whether what was written is close enough to what is expected now."""
    if text is None or expected_at is None:
        return False
    try:
        written = to_seconds(text)
    except ValueError:
        # Somebody wrote over it; it is put right.
        return False
    slack = max(_LEAST_CHANGE_SECONDS, _LEAST_CHANGE_SHARE * max(0.0, expected_at - now))
    return abs(written - expected_at) <= slack


def shortened(domain: str) -> str:
    """Return the domains, of very many the first and how many more there are."""
    names = domain.split(",")
    if len(names) <= _MOST_DOMAINS:
        return domain
    return f"{','.join(names[:_MOST_DOMAINS])} and {len(names) - _MOST_DOMAINS} more"
