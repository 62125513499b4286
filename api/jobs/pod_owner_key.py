"""Which pods a Workload runs: the key under which a Workload and its pods find each other.

    pods of a Job      the uid of the Job, which is the Workload's controller as well
    a pod by itself    its own uid, likewise
    a pod of a group   NAMESPACE/NAME of the group, whose name is the Workload's too

No uid has a slash in it, so the kinds do not meet. Empty stands for none: a Workload that somebody else runs,
and a pod that runs for nobody or does not run yet.
"""

from __future__ import annotations

from api import keys
from api.jobs.pod import POD_KIND, is_queued_through, to_pod
from api.objects import PodObject
from api.workload import Workload

_KINDS = frozenset({"Job", POD_KIND})


def has_crew(workload: Workload) -> bool:
    """Return whether the Workload's pods are known here; nobody else's can be told anything."""
    return workload.owner_kind in _KINDS or keys.IS_GROUP_WORKLOAD in workload.annotations


def crew_of(workload: Workload) -> str:
    """Return the key of the Workload's pods."""
    if keys.IS_GROUP_WORKLOAD in workload.annotations:
        return str(workload.key)
    return (workload.owner_uid or "") if has_crew(workload) else ""


def crew_of_pod(obj: PodObject) -> str:
    """Return the key of the pods that this one belongs to.

    Raises ValueError where it is queued itself and cannot be read.
    """
    metadata = obj.metadata
    owner = metadata.controller
    is_marked = (metadata.labels or {}).get(keys.MANAGED) == "true"
    # All pods of the cluster come by here: only those that a queue has marked are read as a whole.
    if is_marked and not is_queued_through(owner):
        pod = to_pod(obj)
        # Who stands at the gate runs nothing that could be saved, and hears of nothing.
        if pod.is_managed:
            return "" if pod.is_gated else (f"{pod.namespace}/{pod.group}" if pod.group else pod.uid)
    return owner.uid if owner is not None else ""
