"""Eviction of serving units: all pods of a group are evicted, or none. A unit that must stay reports why.

The API server evicts pod by pod. A group that has lost one pod serves no requests, but holds the quota of
all. So no pod is evicted before every budget allows the eviction of all the pods that it covers:

    Evicted ─┬▶ a budget is short ─▶ DisruptionAllowed=False: reported; the group keeps serving, with
             │        ▲ │            pods that are created meanwhile   ▲
             │        │ ▼                                              └ all refused
             └▶ they allow all ─▶ DisruptionAllowed=True ─▶ all evicted ─┬▶ all are gone ─▶ released
                                                                         └▶ those that are left are deleted

Budgets are counted by their status. Dry runs of the evictions would not do: each is answered as if
it were the only one, so three may pass where two are allowed. Between the count and the evictions a
budget may still become tighter, and an admission webhook may refuse what every budget allows. If the
server refuses all evictions, nothing has happened: its message is reported, and the group keeps
serving until the next attempt, after a pause that grows with each refusal. A preemption that is held
back for long is taken back (`admission.reconcile.workload.held_back`).

Once one pod is gone, the others are deleted, against their budget. The budget would protect them for
good: the pod that would have to become ready waits at its gate until the whole group is admitted again.
The alternative, to take the eviction back even then, was rejected: it costs the restart of that pod (of
all pods, if the LeaderWorkerSet restarts its groups as a whole, which is its default), and the
preemptor has to search again.

DisruptionAllowed=True is on the Workload before the first pod is evicted, so a new leader knows that it has
to finish the eviction. A single pod is held back and reported in the same way, but it never needs the True.
Source: Kubernetes, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from admission.decisions.api_writes import Event, Purpose, Write, workload_ref
from admission.reconcile.pod.view import PodView
from admission.reconcile.workload_writes import workload_status
from api.disruption_budget import DisruptionBudget
from api.jobs.pod import Pod
from api.object_events import EventType
from api.reasons import ConditionType, DisruptionReason
from api.status_edit import StatusEdit

_TYPE = ConditionType.DISRUPTION_ALLOWED


def staying(view: PodView) -> tuple[Pod, ...]:
    """Return the pods that use quota and are not terminating."""
    return tuple(one.pod for one in view.members if one.pod.is_active and not one.pod.is_deleted)


def is_broken(view: PodView) -> bool:
    """Return whether an evicted group has lost some of its pods: the others then have to follow."""
    if not _is_bound(view) or not _is_under_way(view):
        return False
    since = view.workload.conditions[_TYPE].at
    pods = [member.pod for member in view.kept]
    # A pod that was gated before then has replaced one that was lost for another reason.
    has_lost = any(pod.is_deleted or (pod.is_gated and pod.created_at >= since) for pod in pods)
    return has_lost or len(pods) < view.expected


def held_back(view: PodView) -> str | None:
    """Return why the unit must not be evicted now; None if it may be.

    The reason is a budget, or a refusal by the server until the next attempt is due.
    """
    if not _is_bound(view) or is_broken(view):
        return None
    return _kept_by_budgets(view) or view.facts.refusal


def eviction_report(view: PodView) -> Write | None:
    """Return the write that reports whether the unit may be evicted; None if its Workload shows it already.

    True is reported only for a group: a single pod is evicted or not, and leaves nothing to be finished.
    """
    if not staying(view):
        return _take_back(view)
    if not _is_bound(view) or is_broken(view):
        return None
    why, present = held_back(view), view.workload.conditions.get(_TYPE)
    if why is None and (not view.group or _is_under_way(view)):
        return None
    edit = StatusEdit(view.raw, now=view.now)
    if why is None:
        # Set again: a True from an earlier eviction would keep its time, and would count as outdated.
        edit.remove_condition(_TYPE)
        message = "Every PodDisruptionBudget allows all pods of the group to go; they are evicted together"
        edit.set_condition(_TYPE, True, reason=DisruptionReason.SUFFICIENT_PODS, message=message)
    else:
        is_short = _kept_by_budgets(view) is not None
        reason = DisruptionReason.INSUFFICIENT_PODS if is_short else DisruptionReason.EVICTION_REFUSED
        edit.set_condition(_TYPE, False, reason=reason, message=why)
    if not edit.is_changed:
        return None
    # The numbers change while it waits, but the Event is sent only once.
    is_news = why is not None and (present is None or present.status)
    events = (_warning(view, why),) if is_news and why is not None else ()
    return workload_status(edit, Purpose.ALLOW_EVICTION, *events)


def _take_back(view: PodView) -> Write | None:
    """Return the write that removes the report that a budget protects pods, which are now terminating.

    Its time would run on while they terminate, and the eviction would be taken back meanwhile.
    """
    present = view.workload.conditions.get(_TYPE) if view.held is not None else None
    if view.is_stopped or present is None or present.status:
        return None
    edit = StatusEdit(view.raw, now=view.now)
    edit.remove_condition(_TYPE)
    return workload_status(edit, Purpose.ALLOW_EVICTION)


def _is_bound(view: PodView) -> bool:
    return view.facts.by_eviction and view.held is not None


def _is_under_way(view: PodView) -> bool:
    allowed, evicted = view.workload.conditions.get(_TYPE), view.workload.eviction
    if allowed is None or not allowed.status:
        return False
    # An older one belongs to an earlier eviction, which ended in an unusual way.
    return evicted is None or allowed.at >= evicted.at


def _kept_by_budgets(view: PodView) -> str | None:
    pods = staying(view)
    return _shared(view, pods) or _shortage(view, pods)


def _shared(view: PodView, pods: Sequence[Pod]) -> str | None:
    for pod in pods:
        names = [one.name for one in view.facts.budgets if one.covers(pod.namespace, pod.labels)]
        # The server ignores budgets for a pod that has not run yet.
        if len(names) > 1 and pod.phase != "Pending":
            return (
                f"Pod {pod} falls under {len(names)} PodDisruptionBudgets ({', '.join(sorted(names))}),"
                " and the API server evicts no pod that falls under more than one: let each pod have one"
            )
    return None


def _shortage(view: PodView, pods: Sequence[Pod]) -> str | None:
    for budget in sorted(view.facts.budgets, key=lambda one: one.name):
        covered = sum(_takes(budget, pod) for pod in pods)
        if covered <= budget.allowed:
            continue
        word = "" if budget.keeps_unready else "ready "
        name = f"PodDisruptionBudget {budget.namespace}/{budget.name}"
        if not view.group:
            return f"{name} allows no eviction now: the replica keeps serving until it does, or is deleted"
        return (
            f"{name} allows {budget.allowed} of the group's {covered} {word}pods to be evicted, and they are"
            " evicted together or not at all: they keep serving until it allows all, or they are deleted"
        )
    return None


def _takes(budget: DisruptionBudget, pod: Pod) -> bool:
    """Return whether the budget has to allow the pod's eviction. A pod that has not run yet needs none."""
    is_counted = pod.is_ready or (budget.keeps_unready and pod.phase != "Pending")
    return is_counted and budget.covers(pod.namespace, pod.labels)


def _warning(view: PodView, note: str) -> Event:
    key = view.workload.key
    ref = workload_ref(key.namespace, key.name, view.workload.uid)
    return Event(regarding=ref, type=EventType.WARNING, reason="EvictionHeldBack", note=note, action="Evict")
