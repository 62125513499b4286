"""A single pod that names the Workload which another program creates for it, before or after the pod.

The Workload of a group has the name of the group, whichever program creates it: groups need no rule here.
Source: Kueue, pkg/controller/jobframework/reconciler.go (EnsurePrebuiltWorkloadOwnership, ...InSync).
"""

from __future__ import annotations

from admission.decisions.api_writes import Action, Purpose, Write
from admission.reconcile.pod.view import PodView
from admission.reconcile.pod.writes import finish, release_finalizer, stop_active, warning
from admission.reconcile.workload_writes import workload_patch
from api import keys
from api.jobs.pod_template import has_same_containers
from api.jobs.pod_workload import owner_references
from api.reasons import FinishedReason

_NOT_ADMITTED = "Not admitted by cluster queue"


def answer_prebuilt(view: PodView) -> tuple[Action, ...] | None:
    """Adopt the Workload that the pod names, wait for it, or report that it is not the pod's."""
    pod = view.first
    if view.group or not pod.prebuilt_workload:
        return None
    if view.held is None:
        # () ends the look, so that no other Workload is created instead.
        return None if _has_ended(view) else stop_active(view, "NoMatchingWorkload", _NOT_ADMITTED) or ()
    workload = view.workload
    if workload.owner_uid is None:
        return (_adoption(view),)
    if workload.owner_uid != pod.uid:
        note = (
            f"Pod {pod}: Workload {workload.key}, named by {keys.PREBUILT_WORKLOAD_NAME}, belongs to"
            f" {workload.owner_kind} {workload.owner_name}; name another one"
        )
        left = release_finalizer(view.members[0]) if _has_ended(view) else ()
        return (
            *(stop_active(view, "NoMatchingWorkload", note) or left),
            warning(pod, "ErrWorkloadCompose", note),
        )
    if workload.is_finished or _has_ended(view) or _is_match(view):
        return None
    stopped = stop_active(view, "NoMatchingWorkload", _NOT_ADMITTED)
    if stopped is not None:
        return stopped
    return (
        finish(view, FinishedReason.OUT_OF_SYNC, "The prebuilt workload is out of sync with its user job"),
    )


def _has_ended(view: PodView) -> bool:
    return view.is_stopped and (view.first.is_deleted or view.first.is_finished)


def _adoption(view: PodView) -> Write:
    """Return the patch that makes the pod the owner of the Workload, beside owners that control nothing."""
    assert view.held is not None
    present = view.held.body.get("metadata", {}).get("ownerReferences") or ()
    metadata = {
        "ownerReferences": [*present, *owner_references(view.members, is_group=False)],
        # Kueue's tools find the Workload of a pod by this label.
        "labels": {keys.JOB_UID: view.first.uid},
    }
    return workload_patch(view.workload, {"metadata": metadata}, Purpose.ADOPT_WORKLOAD)


def _is_match(view: PodView) -> bool:
    """Return whether the Workload describes this pod: it would run with more than was admitted otherwise.

    Tolerations are not compared: the API server adds some to each pod, and the start those of the flavors.
    """
    assert view.held is not None
    pod_set = view.held.pod_set
    if pod_set is None or pod_set.get("count", 1) != 1:
        return False
    return has_same_containers(view.members[0].body, pod_set.get("template") or {})
