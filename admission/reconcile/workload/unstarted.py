"""PodsReady=False of a Workload whose Job or pods have yet to start, as Kueue reports it from the beginning.

It is written with the admission, or with the reason why the Workload waits, and so costs no write of its own.
Only a Workload that gets neither in time has it written alone.
"""

from __future__ import annotations

from admission.decisions.api_writes import Purpose
from admission.reconcile.workload.context import Owner
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import workload_status
from api.reasons import ConditionType

# Longer than a cycle takes to report why a Workload waits.
_SECONDS = 3.0


def answer_unstarted(look: Look) -> Answer:
    """Report the pods of a Workload as not ready that has waited for a while and does not say so."""
    if not _is_unreported(look) or not look.is_due(look.workload.created_at + _SECONDS):
        return None
    edit = look.edit
    edit.await_start()
    # A report like the reason for waiting: it must not hold up what starts.
    return (workload_status(edit, Purpose.WAIT),)


def unstarted_at(look: Look) -> float | None:
    """Return when to look whether the Workload says that its pods are not ready; None for never."""
    at = look.workload.created_at + _SECONDS
    return at if _is_unreported(look) and at > look.now else None


def _is_unreported(look: Look) -> bool:
    """Return whether a Workload of a Job or of pods waits, and no write has said so yet."""
    workload = look.workload
    return (
        look.context.settings.pods_ready is not None
        and look.owner is Owner.JOB
        and not workload.is_finished
        and ConditionType.QUOTA_RESERVED not in workload.conditions
        and ConditionType.PODS_READY not in workload.conditions
    )
