"""Pods that run outside of the domains assigned to their Workload: detected, reported, and left alone.

This happens if a user removes the scheduling gate or binds a pod by hand. The usage of such a pod is counted
in the domain that was assigned to it, so its node looks emptier than it is, and people have to know. The pod
is not stopped: it does its work, and its owner may have had a reason.
"""

from __future__ import annotations

from admission.decisions.api_writes import Purpose
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import workload_status
from api.object_events import EventType
from api.reasons import ConditionType

# How many pods the message names; of the others it gives the number.
_MOST_NAMED = 10


def answer_misplaced_pods(look: Look) -> Answer:
    """Set the condition Misplaced while pods run elsewhere. It becomes False when none does any more."""
    workload, pods = look.workload, look.context.misplaced
    present = workload.conditions.get(ConditionType.MISPLACED)
    # Nothing to report, or nothing any more: the pods of an evicted Workload do not matter.
    if not workload.has_quota_reservation or workload.is_evicted or not (pods or present):
        return None
    edit = look.edit
    if not pods:
        message = "All pods run in the domains assigned to the workload"
        # Written once: at the next look the condition is False already.
        edit.set_condition(ConditionType.MISPLACED, False, reason="InPlace", message=message)
        return (workload_status(edit, Purpose.REPORT_PODS),) if edit.is_changed else None
    notes = [f"pod {pod.name} runs on node {pod.node}" for pod in sorted(pods, key=lambda pod: pod.name)]
    rest = f", and {len(notes) - _MOST_NAMED} more" if len(notes) > _MOST_NAMED else ""
    message = f"{', '.join(notes[:_MOST_NAMED])}{rest}: outside of the domains assigned to the workload"
    edit.set_condition(ConditionType.MISPLACED, True, reason="PodsElsewhere", message=message)
    if not edit.is_changed:
        return None
    before = present.message if present is not None and present.status else ""
    # Pods named in the former message have been reported. A pod that was cut from it is reported again, which
    # is better than not at all.
    events = [look.event(EventType.WARNING, "PodMisplaced", one) for one in notes if one not in before]
    return (workload_status(edit, Purpose.REPORT_PODS, *events),)
