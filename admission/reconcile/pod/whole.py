"""Serving groups leave whole: all of their pods go, or none does. Who may not go says so.

The API server evicts pod by pod, and what is left of a group whose first pod has gone serves nobody, while it
holds the quota of all. So nothing is touched before every budget lets go of all the pods that it covers:

    Evicted ─┬▶ the budgets lack ─▶ DisruptionAllowed=False: told, and the group serves on, also with pods
             │        ▲ │           that are made anew meanwhile   ▲
             │        │ ▼                                          └ all refused
             └▶ they let all go ─▶ DisruptionAllowed=True ─▶ all evicted ─┬▶ they have gone ─▶ released
                                                                          └▶ who is left is deleted

Budgets are counted by their status. Dry runs of the evictions could not tell: each is answered as if it were
the only one, so that three pass where two may go. Between the count and the evictions a budget may still
tighten, and an admission webhook may refuse what every budget allows. Where the server refuses them all,
nothing has happened: its words are told, and the group serves on until it is tried again, after a rest that
grows with each refusal. A preemption that is held back for long is taken back
(`admission.reconcile.workload.held_back`).

Where one pod has gone the others follow, deleted, against the budget's word: it would keep them for good,
because the pod that would have to be ready again waits at the gate until the whole group is admitted anew.
Taking the eviction back even then was the alternative; it costs the restart of that pod (of all, where a
LeaderWorkerSet restarts its groups as a whole, as it does by default), and whoever the quota was for starts
its search again.

The word True is on the Workload before the first pod goes, so a new leader knows what it is to finish. A
replica that is one pod is kept and told in the same way, and needs no such word.
Source: Kubernetes, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from admission.decisions.api_writes import Event, EventType, Purpose, Write, workload_ref
from admission.reconcile.pod.view import PodView
from admission.reconcile.workload_writes import workload_status
from api.disruption_budget import DisruptionBudget
from api.jobs.pod import Pod
from api.reasons import ConditionType, DisruptionReason
from api.status_bodies import StatusEdit

_TYPE = ConditionType.DISRUPTION_ALLOWED


def staying(view: PodView) -> tuple[Pod, ...]:
    """Return the pods that take of the quota and are not on their way out."""
    return tuple(one.pod for one in view.members if one.pod.is_active and not one.pod.is_deleted)


def is_broken(view: PodView) -> bool:
    """Return whether some pods of a group that may go have gone: whoever is left is to follow."""
    if not _is_bound(view) or not _is_under_way(view):
        return False
    since = view.workload.conditions[_TYPE].at
    pods = [member.pod for member in view.kept]
    # Whoever is at the gate since before has taken the place of one that went for another reason.
    has_lost = any(pod.is_deleted or (pod.is_gated and pod.created_at >= since) for pod in pods)
    return has_lost or len(pods) < view.expected


def held_back(view: PodView) -> str | None:
    """Return what keeps the unit from being evicted, in words: a budget, or the server's refusal, until it is
    tried again. None where nothing does.
    """
    if not _is_bound(view) or is_broken(view):
        return None
    return _kept_by_budgets(view) or view.facts.refusal


def tell(view: PodView) -> Write | None:
    """Return the write that says whether the unit may go, None where its Workload says so already.

    That it may is said of groups alone: a pod by itself goes or stays, and there is nothing to be finished.
    """
    if not staying(view):
        return _take_back(view)
    if not _is_bound(view) or is_broken(view):
        return None
    why, standing = held_back(view), view.workload.conditions.get(_TYPE)
    if why is None and (not view.group or _is_under_way(view)):
        return None
    edit = StatusEdit(view.raw, now=view.now)
    if why is None:
        # Anew: a True of an earlier eviction would keep its time, by which it is known as such.
        edit.remove_condition(_TYPE)
        message = "Every PodDisruptionBudget lets all pods of the group go, which are evicted together"
        edit.set_condition(_TYPE, True, reason=DisruptionReason.SUFFICIENT_PODS, message=message)
    else:
        is_short = _kept_by_budgets(view) is not None
        reason = DisruptionReason.INSUFFICIENT_PODS if is_short else DisruptionReason.EVICTION_REFUSED
        edit.set_condition(_TYPE, False, reason=reason, message=why)
    if not edit.is_changed:
        return None
    # Numbers change while it waits; that it waits is news once.
    is_news = why is not None and (standing is None or standing.status)
    events = (_warning(view, why),) if is_news and why is not None else ()
    return workload_status(view.workload, edit.to_bytes(), Purpose.ALLOW_EVICTION, *events)


def _take_back(view: PodView) -> Write | None:
    """Return the write that takes the word back that a budget keeps pods which are on their way out.

    Its time would run on while they end, and the eviction be taken back under them.
    """
    standing = view.workload.conditions.get(_TYPE) if view.held is not None else None
    if view.is_stopped or standing is None or standing.status:
        return None
    edit = StatusEdit(view.raw, now=view.now)
    edit.remove_condition(_TYPE)
    return workload_status(view.workload, edit.to_bytes(), Purpose.ALLOW_EVICTION)


def _is_bound(view: PodView) -> bool:
    return view.facts.by_eviction and view.held is not None


def _is_under_way(view: PodView) -> bool:
    allowed, evicted = view.workload.conditions.get(_TYPE), view.workload.eviction
    if allowed is None or not allowed.status:
        return False
    # What is older was said of an earlier eviction, whose end took another way than usual.
    return evicted is None or allowed.at >= evicted.at


def _kept_by_budgets(view: PodView) -> str | None:
    pods = staying(view)
    return _shared(view, pods) or _shortage(view, pods)


def _shared(view: PodView, pods: Sequence[Pod]) -> str | None:
    for pod in pods:
        names = [one.name for one in view.facts.budgets if one.covers(pod.namespace, pod.labels)]
        # The server passes over budgets for who has not run yet.
        if len(names) > 1 and pod.phase != "Pending":
            return (
                f"Pod {pod} falls under {len(names)} PodDisruptionBudgets ({', '.join(sorted(names))}),"
                " and the API server evicts nobody who falls under more than one: let each pod have one"
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
            return f"{name} lets no pod go now: the replica serves on until it does, or is deleted"
        return (
            f"{name} lets {budget.allowed} of the group's {covered} {word}pods go, which leave together or"
            " not at all: they serve on until it lets all of them go, or they are deleted"
        )
    return None


def _takes(budget: DisruptionBudget, pod: Pod) -> bool:
    """Return whether the budget has to let go of the pod; who has not run yet goes anyway."""
    is_counted = pod.is_ready or (budget.keeps_unready and pod.phase != "Pending")
    return is_counted and budget.covers(pod.namespace, pod.labels)


def _warning(view: PodView, note: str) -> Event:
    key = view.workload.key
    ref = workload_ref(key.namespace, key.name, view.workload.uid)
    return Event(regarding=ref, type=EventType.WARNING, reason="EvictionHeldBack", note=note, action="Evict")
