"""Pods that are in a queue although they never waited for it.

`kueue importer` puts running pods into a queue: it labels them and creates an admitted Workload that each
owns. Such a pod has neither the gate nor the finalizer by which other queued pods are known, so the Workload
is what shows that its quota is in use. The Workload must name the pod by uid: what a pod says of itself,
anyone who may change the pod can write. Source: Kueue, cmd/importer.
"""

from __future__ import annotations

from collections.abc import Iterable

from api.jobs.pod import POD_KIND, Pod
from api.workload import Workload


def holds_quota(pod: Pod, workloads: Iterable[Workload]) -> bool:
    """Return whether one of these Workloads counts this single pod, and has yet to see its end."""
    return not pod.group and any(_counts(workload, pod) for workload in workloads)


def _counts(workload: Workload, pod: Pod) -> bool:
    # An owner reference has no namespace: without the comparison, a Workload could stop the pods of others.
    if workload.key.namespace != pod.namespace:
        return False
    if (workload.owner_kind, workload.owner_uid) != (POD_KIND, pod.uid):
        return False
    # A pod that runs past the end of its Workload has to be stopped.
    has_end = workload.is_finished and not pod.is_active
    return not has_end and (workload.admission is not None or workload.is_evicted)
