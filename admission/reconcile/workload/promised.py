"""The step that keeps the annotations of a waiting Workload up to date with its promised start.

It is level-triggered like all steps: it compares the present promise with the object. So a lost write is
repeated, and a leader that knows of no promise removes the annotations of an old one. Once the Workload holds
quota they are kept, so that the promised start can be compared with the real one.
"""

from __future__ import annotations

from admission.decisions.api_writes import Purpose
from admission.reconcile.decision_texts import planned_text
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import workload_patch
from api.keys import EXPECTED_START, PLANNED_DOMAIN, PLANNED_START
from api.object_events import EventType
from api.parsing.times import to_rfc3339, to_seconds
from queues.profile.planned_start import PlannedStart

# How many domains the annotation names: a gang may be promised a thousand hosts, too many to read.
_MOST_DOMAINS = 32
# An expected start is rewritten if it is off by more than this time, and by more than this share
# of the time left.
_LEAST_CHANGE_SECONDS = 60.0
_LEAST_CHANGE_SHARE = 0.1


def answer_promise(look: Look) -> Answer:
    """Write the promised and the expected start if the Workload's annotations differ."""
    workload, context = look.workload, look.context
    if workload.has_quota_reservation or not workload.active:
        return None
    wanted = _wanted(context.planned, context.expected_at)
    # A value that is close enough is kept, so that no write is sent for a few seconds of difference.
    if _is_near(workload.annotations.get(EXPECTED_START), context.expected_at, now=look.now):
        wanted[EXPECTED_START] = workload.annotations.get(EXPECTED_START)
    changed = {key: value for key, value in wanted.items() if workload.annotations.get(key) != value}
    if not changed:
        return None
    patch = {"metadata": {"annotations": changed}}
    events = []
    if context.planned is not None and changed.keys() & {PLANNED_START, PLANNED_DOMAIN}:
        # The annotation shows whether this is the first promise or a moved one.
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
    """Return whether the written start is close enough to the one that is expected now."""
    if text is None or expected_at is None:
        return False
    try:
        written = to_seconds(text)
    except ValueError:
        # Another client has overwritten it: it is corrected.
        return False
    slack = max(_LEAST_CHANGE_SECONDS, _LEAST_CHANGE_SHARE * max(0.0, expected_at - now))
    return abs(written - expected_at) <= slack


def shortened(domain: str) -> str:
    """Return the domains; if there are very many, the first ones and the number of the others."""
    names = domain.split(",")
    if len(names) <= _MOST_DOMAINS:
        return domain
    return f"{','.join(names[:_MOST_DOMAINS])} and {len(names) - _MOST_DOMAINS} more"
