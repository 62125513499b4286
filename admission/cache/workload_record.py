"""Workload records: the object of a Workload, its requests, and where it waits.

A Workload arrives with every change of its status, as a rule with unchanged pod sets. Its requests and
shape are then kept.
"""

from __future__ import annotations

import msgspec

from admission.cache.cache import Cache
from admission.calendar.advance_reservations import joining_problem, reservation_of
from admission.nomination.nominate_heads import namespace_mismatch
from api.devices.claims import device_amounts, with_devices
from api.jobs.resource_requests import (
    PodSetRequests,
    RequestError,
    ResourceSettings,
    pod_set_requests,
    request_problem,
)
from api.keys import (
    ADMISSION_GATED_BY,
    CONCURRENT_ADMISSION_PARENT,
    MANAGED_BY,
    MULTIKUEUE_CONTROLLER,
)
from api.queueing import LocalQueue
from api.reason_words import words_for
from api.reasons import ConditionType, InactiveReason, PendingReason
from api.selectors import matches_selector
from api.workload import PodSetAssignment, Workload
from queues.pending.ordering import RequeuingTimestamp, queued_at
from queues.pending.pending_queue import Pending, retry_at
from queues.pending.shape import has_same_keys, shape_of

LocalQueueKey = tuple[str, str]
Problem = tuple[PendingReason, str]


class WorkloadRecord(msgspec.Struct, eq=False, kw_only=True):
    """One Workload. `queued_in` is the ClusterQueue where it waits, `last_wait` the reason last reported.

    `request_error` is set if its requests cannot be read, `request_problem` if Kubernetes
    would refuse its pods, `unmet` while Jobs that it depends on have not succeeded.
    """

    workload: Workload
    local_queue: LocalQueueKey
    requests: tuple[PodSetRequests, ...] = ()
    shape: bytes = b""
    request_error: str | None = None
    request_problem: str | None = None
    unmet: str | None = None
    queued_in: str | None = None
    last_wait: Problem | None = None

    @property
    def may_queue(self) -> bool:
        """Whether the object itself allows it to wait in a queue, whatever the state of the queues."""
        workload = self.workload
        return (
            workload.active
            and self.request_error is None
            and self.unmet is None
            and workload.deleted_at is None
            and not workload.is_finished
            and not (workload.annotations and workload.annotations.get(ADMISSION_GATED_BY))
            and unsupported(workload) is None
            and not workload.is_true(ConditionType.WAITING_FOR_REPLACEMENT_PODS)
            and not workload.is_on_hold
        )

    @property
    def charged(self) -> tuple[PodSetAssignment, ...]:
        """What its admission charges, less the pods that have finished or are no longer requested.

        Source: Kueue, pkg/workload/workload.go, totalRequestsFromAdmission.
        """
        admission = self.workload.admission
        if admission is None:
            return ()
        counts = {requests.name: requests.count for requests in self.requests}
        # As a rule nothing has been given back, and no copy is needed.
        if all(counts.get(one.name, one.count) >= one.count for one in admission.pod_sets):
            return admission.pod_sets
        return tuple(_scaled(one, counts.get(one.name, one.count)) for one in admission.pod_sets)

    def take(self, workload: Workload, cache: Cache, settings: ResourceSettings) -> None:
        """Take in the object as it is now; compute its requests again only if they may have changed."""
        before, self.workload = self.workload, workload
        if self.last_wait is not None and self._is_overwritten(before):
            self.last_wait = None
        # Identity is tested first: if the decoder kept equal pod sets, no comparison is needed.
        has_same_pods = workload.pod_sets is before.pod_sets or workload.pod_sets == before.pod_sets
        is_same = has_same_pods and workload.reclaimable == before.reclaimable
        # While it held quota its requests were not computed again, whatever has changed meanwhile.
        is_free = before.has_quota_reservation and not workload.has_quota_reservation
        if is_free or not is_same or not has_same_keys(workload.annotations, before.annotations):
            self.compute(cache, settings)

    def _is_overwritten(self, before: Workload) -> bool:
        """Return whether another writer has replaced the reported reason; it is then reported again."""
        reported = self.workload.conditions.get(ConditionType.QUOTA_RESERVED)
        if reported is None or reported == before.conditions.get(ConditionType.QUOTA_RESERVED):
            return False
        # The other writer's condition hides the reason reported last.
        reason, message = self.last_wait if self.last_wait is not None else (None, "")
        is_ours = reason is not None and reported.reason in words_for(reason)
        return reported.status or not is_ours or reported.message != message

    def compute(self, cache: Cache, settings: ResourceSettings) -> None:
        """Compute requests and shape from the object and the limits of its namespace."""
        workload = self.workload
        limits = cache.specs.limits.get(workload.key.namespace, ())
        reclaimable = workload.reclaimable if settings.counts_reclaimable else {}
        # The reported reason depended on the requests, so it is reported again.
        self.last_wait = None
        self.request_error = self.request_problem = None
        try:
            devices = device_amounts(workload, cache.specs.devices, settings.devices)
            requests = tuple(
                pod_set_requests(
                    pod_set,
                    reclaimable=reclaimable.get(pod_set.name, 0),
                    limits=limits,
                    runtime_classes=cache.specs.runtime_classes,
                    settings=settings,
                    job=workload.annotations,
                )
                for pod_set in workload.pod_sets
            )
            self.requests = with_devices(requests, devices)
            problems = (request_problem(pod_set, limits) for pod_set in workload.pod_sets)
            self.request_problem = next((problem for problem in problems if problem is not None), None)
        except RequestError as error:
            # No requests at all rather than some of them; `may_queue` keeps it out of every queue.
            self.requests, self.request_error = (), str(error)
        else:
            self.shape = shape_of(workload, self.requests)

    def to_pending(self, timestamp: RequeuingTimestamp, *, level: int = 0, is_apart: bool = True) -> Pending:
        """Return the entry for this Workload in its queue."""
        workload = self.workload
        return Pending(
            workload=workload,
            requests=self.requests,
            shape=self.shape,
            queued_at=queued_at(workload, timestamp),
            level=level,
            is_apart=is_apart,
            retry_at=retry_at(workload),
            problem=self.request_problem,
        )


def make_record(workload: Workload, cache: Cache, settings: ResourceSettings) -> WorkloadRecord:
    """Return the record of a Workload seen for the first time."""
    record = WorkloadRecord(workload=workload, local_queue=(workload.key.namespace, workload.queue_name))
    record.compute(cache, settings)
    return record


def _scaled(assignment: PodSetAssignment, count: int) -> PodSetAssignment:
    if count >= assignment.count:
        return assignment
    # Only whole pods count; the integer amounts of a pod set are multiples of its count.
    usage = {name: amount // assignment.count * count for name, amount in assignment.usage.items()}
    return PodSetAssignment(name=assignment.name, count=count, flavors=assignment.flavors, usage=usage)


def queue_problem(
    cache: Cache, workload: Workload, record: WorkloadRecord | None, *, in_older_words: bool = False
) -> Problem | None:
    """Return why the Workload cannot be tried at all, as reason and message; None if it only has to wait.

    `record` is what is known of it, None if nothing is.
    `in_older_words`: word for word as Kueue without its gate UnadmittedWorkloadsObservability. It then leaves
    to a cycle to report that the queue does not select the Workload's namespace.
    """
    # In the order in which a user would look for the cause: the object, its queue, the ClusterQueue.
    return (
        _own_problem(cache, workload, record)
        or (_older_words if in_older_words else _queue_problem)(cache, workload)
        or reservation_problem(cache, workload)
        or _unmet_dependencies(record)
    )


def reservation_problem(cache: Cache, workload: Workload) -> Problem | None:
    """Return why the reservation that the Workload names keeps it from starting; None if nothing does."""
    if reservation_of(workload) is None:
        return None
    local_queue = cache.specs.local_queues.get((workload.key.namespace, workload.queue_name))
    queue = cache.queues.get(local_queue.cluster_queue) if local_queue is not None else None
    if queue is None:
        return None
    return joining_problem(workload, queue.policy, cache.reservations, now=cache.schedule_plan.now)


def unsupported(workload: Workload) -> str | None:
    """Return what the Workload needs that Berth does not support, and what to do; None if nothing.

    If admitted all the same, it would hold quota for pods that are not started here, or hold it twice.
    """
    if workload.annotations and workload.annotations.get(MANAGED_BY) == MULTIKUEUE_CONTROLLER:
        return (
            f"The job's spec.managedBy is {MULTIKUEUE_CONTROLLER}: it is to run in another cluster, and"
            " dispatch to other clusters is not served; create it without spec.managedBy to run it here"
        )
    parent = workload.labels.get(CONCURRENT_ADMISSION_PARENT) if workload.labels else None
    if parent is not None:
        return (
            f"The workload is a variant of {parent} for concurrent admission, which is not served:"
            f" {parent} queues itself; delete the variant"
        )
    return None


def _unmet_dependencies(record: WorkloadRecord | None) -> Problem | None:
    if record is None or record.unmet is None:
        return None
    return PendingReason.WAITING_FOR_DEPENDENCIES, record.unmet


def _own_problem(cache: Cache, workload: Workload, record: WorkloadRecord | None) -> Problem | None:
    request_error = record.request_error if record is not None else None
    # If the object cannot be read, nothing else that it says counts.
    unreadable = cache.specs.unreadable.get((Workload, workload.key)) or request_error
    if unreadable is not None:
        return PendingReason.MISCONFIGURED, unreadable
    if not workload.active:
        return PendingReason.DEACTIVATED, "The workload is deactivated"
    if workload.is_on_hold:
        return PendingReason.ON_HOLD, workload.conditions[ConditionType.QUOTA_RESERVED].message
    missing = unsupported(workload)
    if missing is not None:
        return PendingReason.MISCONFIGURED, missing
    gates = workload.annotations.get(ADMISSION_GATED_BY)
    if gates:
        return PendingReason.ADMISSION_GATED, f"Admission is gated by: {gates}"
    return None


def _queue_problem(cache: Cache, workload: Workload) -> Problem | None:
    return (
        _local_queue_problem(cache, workload)
        or _cluster_queue_problem(cache, workload)
        or _namespace_problem(cache, workload)
    )


def _older_words(cache: Cache, workload: Workload) -> Problem | None:
    name = workload.queue_name
    local_queue = cache.specs.local_queues.get((workload.key.namespace, name))
    if local_queue is None:
        return PendingReason.MISCONFIGURED, f"LocalQueue {name} doesn't exist"
    if local_queue.is_stopped:
        return PendingReason.SUSPENDED, f"LocalQueue {name} is inactive"
    queue = cache.queues.get(local_queue.cluster_queue)
    if queue is None:
        return PendingReason.MISCONFIGURED, f"ClusterQueue {local_queue.cluster_queue} doesn't exist"
    if queue.inactive:
        return PendingReason.SUSPENDED, f"ClusterQueue {queue.name} is inactive"
    return None


def _local_queue_problem(cache: Cache, workload: Workload) -> Problem | None:
    key = (workload.key.namespace, workload.queue_name)
    name = workload.queue_name
    if not name:
        return PendingReason.MISCONFIGURED, "No LocalQueue is named; set spec.queueName"
    unreadable = cache.specs.unreadable.get((LocalQueue, key))
    if unreadable is not None:
        return PendingReason.MISCONFIGURED, f"LocalQueue {name} cannot be read: {unreadable}"
    spec = cache.specs.local_queues.get(key)
    if spec is None:
        return PendingReason.MISCONFIGURED, f"LocalQueue {name} doesn't exist"
    if spec.is_stopped:
        return PendingReason.SUSPENDED, f"LocalQueue {name} is inactive"
    return None


def _cluster_queue_problem(cache: Cache, workload: Workload) -> Problem | None:
    local_queue = cache.specs.local_queues[(workload.key.namespace, workload.queue_name)]
    queue = cache.queues.get(local_queue.cluster_queue)
    if queue is None:
        return PendingReason.MISCONFIGURED, f"ClusterQueue {local_queue.cluster_queue} doesn't exist"
    if queue.inactive:
        # The first reason only; the queue's own status lists all. A stop is intended and needs no more words.
        problem = queue.inactive[0]
        why = "" if problem.reason is InactiveReason.STOPPED else f": {problem.sentence}"
        return PendingReason.SUSPENDED, f"ClusterQueue {queue.name} is inactive{why}"
    return None


def _namespace_problem(cache: Cache, workload: Workload) -> Problem | None:
    local_queue = cache.specs.local_queues[(workload.key.namespace, workload.queue_name)]
    queue = cache.queues[local_queue.cluster_queue]
    labels = cache.specs.namespaces.get(workload.key.namespace)
    if matches_selector(queue.spec.namespace_selector, labels):
        return None
    return PendingReason.MISCONFIGURED, namespace_mismatch(workload, queue.name)
