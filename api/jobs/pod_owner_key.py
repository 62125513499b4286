"""The key that connects a Workload with the pods that it runs.

    pods of a Job       the uid of the Job, or a PyTorchJob, which is also the controller of the Workload
    an individual pod   its own uid, likewise
    a pod of a group    NAMESPACE/NAME of the group, which is also the name of the Workload

A uid contains no slash, so keys of different kinds never collide. The key is empty for a Workload whose pods
are managed by another controller, and for a pod that runs for no Workload or does not run yet.
"""

from __future__ import annotations

from api import keys
from api.jobs.owners.table import OWNER_KINDS
from api.jobs.pod import POD_KIND, to_pod
from api.objects.cluster import PodObject
from api.workload import Workload

_KINDS = frozenset({"Job", POD_KIND, *(row.kind for row in OWNER_KINDS if row.owns_pods)})


def has_known_pods(workload: Workload) -> bool:
    """Return whether the pods of the Workload are known; requests can be delivered to known pods only."""
    return workload.owner_kind in _KINDS or keys.IS_GROUP_WORKLOAD in workload.annotations


def pod_owner_key(workload: Workload) -> str:
    """Return the key of the Workload's pods; empty if they are not known."""
    if keys.IS_GROUP_WORKLOAD in workload.annotations:
        return str(workload.key)
    return (workload.owner_uid or "") if has_known_pods(workload) else ""


def owner_key_of_pod(obj: PodObject) -> str:
    """Return the key of the set of pods that this pod belongs to; empty if there is none or the pod is gated.

    Raises ValueError if the pod is itself queued and cannot be parsed.
    """
    metadata = obj.metadata
    owner = metadata.controller
    is_marked = (metadata.labels or {}).get(keys.MANAGED) == "true"
    # This runs for all pods of the cluster, so only pods that are marked for a
    # queue are translated completely.
    if is_marked:
        pod = to_pod(obj)
        # A gated pod runs nothing that could save a checkpoint, and receives no request.
        if pod.is_managed:
            return "" if pod.is_gated else (f"{pod.namespace}/{pod.group}" if pod.group else pod.uid)
    return owner.uid if owner is not None else ""
