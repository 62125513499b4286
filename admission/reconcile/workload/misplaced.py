"""Pods that run elsewhere than their Workload was placed: seen, told and counted, and left alone.

It happens where somebody takes the scheduling gate off or binds a pod by hand. What such a pod takes of its
node is counted at the place that it was given, so that the node looks emptier than it is: people have to
know. The pod is not ended: it does its work, and its owner may have had a reason.
"""

from __future__ import annotations

from admission.decisions.api_writes import EventType, Purpose
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import workload_status
from api.reasons import ConditionType

# So many pods are named in the message; of more it says how many.
_MOST_NAMED = 10


def answer_misplaced_pods(look: Look) -> Answer:
    """The condition Misplaced tells which pods run elsewhere; it turns False when none does any more."""
    workload, pods = look.workload, look.context.misplaced
    standing = workload.conditions.get(ConditionType.MISPLACED)
    # Nothing to tell, or nothing to tell any more: a Workload that is leaving has no wrong place.
    if not workload.has_quota_reservation or workload.is_evicted or not (pods or standing):
        return None
    edit = look.edit
    if not pods:
        message = "All pods run in the domains that the workload was given"
        # Once: the condition says False already on the next look.
        edit.set_condition(ConditionType.MISPLACED, False, reason="InPlace", message=message)
        return (workload_status(workload, edit.to_bytes(), Purpose.REPORT_PODS),) if edit.is_changed else None
    told = [f"pod {pod.name} runs on node {pod.node}" for pod in sorted(pods, key=lambda pod: pod.name)]
    rest = f", and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    message = f"{', '.join(told[:_MOST_NAMED])}{rest}: outside of the domains that the workload was given"
    edit.set_condition(ConditionType.MISPLACED, True, reason="PodsElsewhere", message=message)
    if not edit.is_changed:
        return None
    before = standing.message if standing is not None and standing.status else ""
    # Those in the standing message have been told of. One that was cut from it is told
    # again, which beats silence.
    events = [look.event(EventType.WARNING, "PodMisplaced", one) for one in told if one not in before]
    return (workload_status(workload, edit.to_bytes(), Purpose.REPORT_PODS, *events),)
