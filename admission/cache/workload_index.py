"""The index of Workloads: all that are known by key, and those that have not finished by LocalQueue."""

from __future__ import annotations

from collections.abc import Mapping

from admission.cache.touched_statuses import TouchedStatuses
from admission.cache.workload_record import LocalQueueKey, WorkloadRecord
from admission.calendar.advance_reservations import reservation_of
from api.devices.claims import asks_for_devices
from api.workload import WorkloadKey


class WorkloadIndex:
    """The records of all Workloads known, whatever their state."""

    def __init__(self, touched: TouchedStatuses) -> None:
        self.records: dict[WorkloadKey, WorkloadRecord] = {}
        # The same by uid: an eviction request names its preemptor by it.
        self.by_uid: dict[str, WorkloadRecord] = {}
        # Workloads that name an advance reservation; whether they may queue depends on it.
        self.joining: dict[WorkloadKey, WorkloadRecord] = {}
        # Workloads whose pods ask for devices by claim; what they request depends on templates and drivers.
        self.claimants: dict[WorkloadKey, WorkloadRecord] = {}
        self._by_local_queue: dict[LocalQueueKey, dict[WorkloadKey, WorkloadRecord]] = {}
        self._touched = touched

    def members(self, local_queue: LocalQueueKey) -> Mapping[WorkloadKey, WorkloadRecord]:
        """Return the Workloads that name this LocalQueue and have not finished."""
        return self._by_local_queue.get(local_queue, {})

    def enter(self, record: WorkloadRecord) -> None:
        """Enter an unfinished Workload under its LocalQueue, which it may have changed.

        Entering an unchanged Workload again has no effect but to touch the status of its LocalQueue.
        """
        key, present = record.workload.key, (record.workload.key.namespace, record.workload.queue_name)
        # A user has moved it to another LocalQueue.
        if record.local_queue != present:
            self._by_local_queue.get(record.local_queue, {}).pop(key, None)
            self._touched.local_queues.add(record.local_queue)
            record.local_queue = present
        self._by_local_queue.setdefault(present, {})[key] = record
        # Indexed apart, so that the start of a reservation concerns these few and not all pending Workloads.
        if reservation_of(record.workload) is not None:
            self.joining[key] = record
        else:
            self.joining.pop(key, None)
        self._touched.local_queues.add(present)

    def note_claims(self, record: WorkloadRecord) -> None:
        """Record whether its pods ask for devices by claim.

        Also before it has a place: a template may come between the Workload and its place.
        """
        if asks_for_devices(record.workload):
            self.claimants[record.workload.key] = record
        else:
            self.claimants.pop(record.workload.key, None)

    def end(self, record: WorkloadRecord) -> None:
        """Take a Workload that has finished or is gone out of its LocalQueue; its record stays."""
        key = record.workload.key
        self.joining.pop(key, None)
        self.claimants.pop(key, None)
        if self._by_local_queue.get(record.local_queue, {}).pop(key, None) is not None:
            self._touched.local_queues.add(record.local_queue)
