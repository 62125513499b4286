"""A preemption that a budget holds back for long is taken back, so that others may give way.

Whoever is told to go counts as leaving, and searches for room take it before anybody else. A replica whose
PodDisruptionBudget has tightened since would be waited for until that lets it go, be it for ever, whoever
else could go in its place. Counted as running again it is no candidate while its budget keeps it, and one
like any other as soon as the budget lets it go.

Only preemptions: a queue that is drained, say, wants all of its Workloads gone and nobody in their place.
"""

from __future__ import annotations

from admission.actions import EventType, Purpose
from admission.lifecycle.look import Answer, Look
from admission.writes import workload_status
from api.reasons import ConditionType
from api.workload import Workload

# How long an eviction waits for its budgets: a pod that restarts elsewhere, or a step of a roll-out, is ready
# again by then. A loop of evictions by a search that counts otherwise than the server would turn no faster.
HELD_BACK_SECONDS = 60.0


def taken_back_at(workload: Workload) -> float | None:
    """Return when the eviction is taken back unless its budgets let the pods go before; None: never."""
    allowed = workload.conditions.get(ConditionType.DISRUPTION_ALLOWED)
    if workload.preemption is None or workload.admission is None or allowed is None or allowed.status:
        return None
    return allowed.at + HELD_BACK_SECONDS


def answer_held_back(look: Look) -> Answer:
    """A Workload that its budgets have kept for long runs on as if it had not been told to go."""
    if not look.is_due(taken_back_at(look.workload)):
        return None
    why = look.workload.conditions[ConditionType.DISRUPTION_ALLOWED].message
    edit = look.edit
    for type_ in (ConditionType.EVICTED, ConditionType.PREEMPTED):
        edit.reset_condition(type_, reason="EvictionHeldBack")
    edit.remove_condition(ConditionType.DISRUPTION_ALLOWED)
    event = look.event(EventType.NORMAL, "EvictionCancelled", f"Runs on: {why}")
    return (workload_status(look.workload, edit.to_bytes(), Purpose.CANCEL_EVICTION, event),)
