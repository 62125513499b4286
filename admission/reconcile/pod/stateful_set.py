"""The Workload of a StatefulSet, which exists before the pods of the set do, and after they are gone.

    set created ─▶ Workload ─▶ (queue) ─▶ admitted ─▶ pods come, and are ungated as they come
                      ▲                        │
                      │               scaled to 0, and no pod runs
                      └── scaled up ◀── on hold: QuotaReserved=False, without quota

While the set has no pods, a pod that it would create stands for them (`api.jobs.stateful_set.template_pod`).
It waits at the gate, so that no step takes it for one that runs. What the pods request in the end is known
only from them: a LimitRange, a RuntimeClass or a webhook may have added to it.
Source: Kueue, pkg/controller/jobs/statefulset (reconcileWorkload).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from admission.decisions.api_writes import Action, Event, Purpose
from admission.reconcile.pod.view import PodView
from admission.reconcile.pod.writes import warning
from admission.reconcile.workload_writes import workload_deletion, workload_status
from api.jobs.stateful_set import STATEFUL_SET_KIND
from api.object_events import ObjectRef
from api.objects.common import OwnerReference
from api.reasons import PendingReason
from api.workload_status import WorkloadStatusEdit

_SCALED_UP = "The StatefulSet was scaled up; its quota is asked for again"
_ON_HOLD = "StatefulSet scaled to zero; workload on hold"

Answer = tuple[Action, ...] | None


def answer_hold(view: PodView) -> Answer:
    """Put the Workload of a set of no pods on hold, and queue it again once the set is to have some."""
    replicas, workload = view.facts.replicas, view.workload
    if replicas is None or not workload.active:
        return None
    if replicas:
        edit = WorkloadStatusEdit(view.raw, now=view.now)
        if workload.is_on_hold:
            edit.queue_again(view.context.settings.words.released)
        elif _is_scaled_up_again(view):
            edit.put("reclaimablePods", None)
            edit.release(view.context.settings.words.released, _SCALED_UP)
        return (workload_status(edit, Purpose.RELEASE),) if edit.is_changed else None
    # Quota is kept until the last pod has ended.
    if workload.is_on_hold or not view.is_stopped:
        return None
    edit = WorkloadStatusEdit(view.raw, now=view.now)
    # What the pods gave back was of this reservation.
    edit.put("reclaimablePods", None)
    edit.release(PendingReason.ON_HOLD, _ON_HOLD)
    return (workload_status(edit, Purpose.RELEASE),)


def _is_scaled_up_again(view: PodView) -> bool:
    """Return whether a set wants more pods than it kept quota for, and none of its pods runs.

    It was scaled to 0 and up again before the first was seen to be over: its quota is in use by others.
    """
    kept = view.wanted - sum(view.workload.reclaimable.values())
    return view.workload.admission is not None and view.is_stopped and kept < view.expected


def answer_outgrown(view: PodView) -> Answer:
    """Delete a Workload that was admitted before its pods existed, if every one of them requests more.

    None of them could start. They get another Workload, which counts what they request.
    """
    if view.facts.replicas is None or view.held is None or not view.is_stopped or not view.alive:
        return None
    excess = [view.excess_of(member) for member in view.alive]
    if not all(excess):
        return None
    note = f"The pods request {excess[0]} for which StatefulSet quota was reserved: they are queued again"
    return (workload_deletion(view.workload, warning(view.first, "ScaledBeyondAdmission", note)),)


def about_set(actions: Iterable[Action], owner: OwnerReference, namespace: str) -> tuple[Action, ...]:
    """Return the actions with their Events about the set, and not about the pod that stands for its pods."""
    regarding = ObjectRef(
        kind=STATEFUL_SET_KIND,
        api_version=owner.api_version,
        namespace=namespace,
        name=owner.name,
        uid=owner.uid,
    )

    def about(event: Event) -> Event:
        return replace(event, regarding=regarding) if event.regarding.uid == owner.uid else event

    return tuple(
        about(one) if isinstance(one, Event) else replace(one, events=tuple(map(about, one.events)))
        for one in actions
    )
