"""A preemption that is held back for long is taken back, so that others may give way.

Whoever is told to go counts as leaving, and searches for room take it before anybody else. A replica whose
PodDisruptionBudget has tightened since would be waited for until that lets it go, be it for ever, whoever
else could go in its place. Counted as running again it is no candidate while its budget keeps it, and one
like any other as soon as the budget lets it go.

Where it was the API server that refused (an admission webhook, say), nobody can tell when it will not. So it
is no candidate for some minutes, by the condition that stays, and tried like any other then.

Only preemptions: a queue that is drained, say, wants all of its Workloads gone and nobody in their place.
"""

from __future__ import annotations

from admission.decisions.api_writes import EventType, Purpose
from admission.preemption.replicas import refused_at
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import workload_status
from api.reasons import ConditionType
from api.workload import Workload

# How long an eviction waits for its budgets: a pod that restarts elsewhere, or a step of a roll-out, is ready
# again by then. A loop of evictions by a search that counts otherwise than the server would turn no faster.
HELD_BACK_SECONDS = 60.0

# How long nobody asks again for whom the server has refused to evict: each time costs somebody a minute.
SPARED_SECONDS = 600.0


def taken_back_at(workload: Workload) -> float | None:
    """Return when the eviction is taken back unless the pods are let go before; None: never."""
    evicted, allowed = workload.preemption, workload.conditions.get(ConditionType.DISRUPTION_ALLOWED)
    if evicted is None or workload.admission is None or allowed is None or allowed.status:
        return None
    # A refused group is allowed to go once more before each new try, so its word is always young. One that
    # stands from an earlier eviction says nothing of this one.
    since = evicted.at if refused_at(workload) is not None else max(evicted.at, allowed.at)
    return since + HELD_BACK_SECONDS


def spared_until(workload: Workload) -> float | None:
    """Return until when a Workload that runs on is no candidate, since its eviction was refused."""
    at = refused_at(workload)
    return None if at is None or workload.is_evicted else at + SPARED_SECONDS


def answer_held_back(look: Look) -> Answer:
    """A Workload whose pods have been kept for long runs on as if it had not been told to go."""
    if not look.is_due(taken_back_at(look.workload)):
        return None
    why = look.workload.conditions[ConditionType.DISRUPTION_ALLOWED].message
    edit = look.edit
    for type_ in (ConditionType.EVICTED, ConditionType.PREEMPTED):
        edit.reset_condition(type_, reason="EvictionHeldBack")
    if refused_at(look.workload) is None:
        edit.remove_condition(ConditionType.DISRUPTION_ALLOWED)
    event = look.event(EventType.NORMAL, "EvictionCancelled", f"Runs on: {why}")
    return (workload_status(look.workload, edit.to_bytes(), Purpose.CANCEL_EVICTION, event),)


def answer_refusal_over(look: Look) -> Answer:
    """Who was spared since its eviction had been refused is a candidate again."""
    if not look.is_due(spared_until(look.workload)):
        return None
    edit = look.edit
    edit.remove_condition(ConditionType.DISRUPTION_ALLOWED)
    return (workload_status(look.workload, edit.to_bytes(), Purpose.ALLOW_EVICTION),)
