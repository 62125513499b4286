"""Cancels a preemption that is held back for long, so that other Workloads may be preempted instead.

An evicted Workload counts as leaving, and searches for room count on it before any other. A replica whose
PodDisruptionBudget has become tighter since would be waited for until the budget allows its eviction, perhaps
forever, although others could be evicted in its place. Counted as running again, it is no candidate while its
budget protects it, and one like any other as soon as the budget allows its eviction.

If the API server refused the eviction (because of an admission webhook, say), it is unknown when it will
accept it. The Workload is then no candidate for some minutes, by the condition that stays on it, and a
candidate like any other after that.

This applies only to preemptions: a queue that is drained, for example, is to lose all of its Workloads, and
none takes their place.
"""

from __future__ import annotations

from admission.decisions.api_writes import Purpose
from admission.preemption.replicas import refused_at
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import workload_status
from api.object_events import EventType
from api.reasons import ConditionType
from api.workload import Workload

# How long an eviction waits for its budgets: by then a pod that restarts elsewhere, or a step of a rollout,
# is ready again. If a search counts differently from the server, evictions repeat no faster than this.
HELD_BACK_SECONDS = 60.0

# How long a Workload is no candidate after the server refused its eviction: each attempt delays a
# preemptor by a minute.
SPARED_SECONDS = 600.0


def taken_back_at(workload: Workload) -> float | None:
    """Return when the eviction is cancelled unless the pods may go before; None: never."""
    evicted, allowed = workload.preemption, workload.conditions.get(ConditionType.DISRUPTION_ALLOWED)
    if evicted is None or workload.admission is None or allowed is None or allowed.status:
        return None
    # A refused group gets a new DisruptionAllowed before each attempt, so that condition is always recent.
    # One that is left from an earlier eviction says nothing about this one.
    since = evicted.at if refused_at(workload) is not None else max(evicted.at, allowed.at)
    return since + HELD_BACK_SECONDS


def spared_until(workload: Workload) -> float | None:
    """Return until when a running Workload is no candidate, because the server refused its eviction."""
    at = refused_at(workload)
    return None if at is None or workload.is_evicted else at + SPARED_SECONDS


def answer_held_back(look: Look) -> Answer:
    """Cancel an eviction whose pods have been held back for long. The Workload keeps running."""
    if not look.is_due(taken_back_at(look.workload)):
        return None
    why = look.workload.conditions[ConditionType.DISRUPTION_ALLOWED].message
    edit = look.edit
    for type_ in (ConditionType.EVICTED, ConditionType.PREEMPTED):
        edit.reset_condition(type_, reason="EvictionHeldBack")
    if refused_at(look.workload) is None:
        edit.remove_condition(ConditionType.DISRUPTION_ALLOWED)
    event = look.event(EventType.NORMAL, "EvictionCancelled", f"Not evicted: {why}")
    return (workload_status(edit, Purpose.CANCEL_EVICTION, event),)


def answer_refusal_over(look: Look) -> Answer:
    """Make a Workload a candidate again, some time after the server refused its eviction."""
    if not look.is_due(spared_until(look.workload)):
        return None
    edit = look.edit
    edit.remove_condition(ConditionType.DISRUPTION_ALLOWED)
    return (workload_status(edit, Purpose.ALLOW_EVICTION),)
