"""An admission that another leader decided, charged as the Workload's own spec says.

It was found in the store, where another program may have written it. Only the choice counts: flavors, pods
and domains. The amounts are computed here from the pod sets, as a cycle computes them, so that no stored
value can make a Workload appear smaller than it is.
"""

from __future__ import annotations

from dataclasses import replace

from admission.cache.workload_record import WorkloadRecord
from admission.snapshot.queue_state import QueueState
from api.jobs.resource_requests import PODS
from api.workload import Admission


def charged_by_spec(admission: Admission, record: WorkloadRecord, queue: QueueState | None) -> Admission:
    """Return the admission with the amounts that the pod sets of the Workload request for its counts.

    A resource without a flavor is not charged, nor is a pod set that the Workload does not have.
    """
    has_pods = queue is not None and PODS in queue.groups
    requests = {one.name: one.per_pod for one in record.requests}
    pod_sets = []
    for one in admission.pod_sets:
        total = {name: amount * one.count for name, amount in requests.get(one.name, {}).items()}
        # `pods` is not a resource of the pod template. It counts only where a quota covers it.
        if has_pods:
            total[PODS] = one.count
        usage = {resource: total.get(resource, 0) for resource in one.flavors}
        pod_sets.append(replace(one, usage=usage))
    return Admission(cluster_queue=admission.cluster_queue, pod_sets=tuple(pod_sets))


def is_complete(admission: Admission, record: WorkloadRecord, queue: QueueState) -> bool:
    """Return whether a cycle could have decided this admission: for all pod sets, with flavors of the queue.

    Every requested resource that the ClusterQueue covers has one of its flavors. Whether there is room
    is not checked.
    """
    pod_sets = {one.name: one for one in record.workload.pod_sets}
    assigned = {one.name: one for one in admission.pod_sets}
    # Of two assignments of one pod set only one would be checked here, and both would be charged.
    if len(assigned) < len(admission.pod_sets) or assigned.keys() != pod_sets.keys():
        return False
    for requests in record.requests:
        one, least = assigned[requests.name], pod_sets[requests.name].min_count
        # Partial admission may start fewer pods.
        if not min(least or requests.count, requests.count) <= one.count <= requests.count:
            return False
        resources = {*requests.per_pod, PODS} & queue.groups.keys()
        if one.flavors.keys() != resources:
            return False
        if any(one.flavors[resource] not in queue.groups[resource].flavors for resource in resources):
            return False
    return True
