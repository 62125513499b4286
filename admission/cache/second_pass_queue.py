"""The second pass queue: admitted Workloads that have lost nodes, or still wait for their first places.

What the pass decides for them is in `admission.engine.second_pass`.
Source: Kueue, pkg/cache/queue/second_pass_queue.go.
"""

from __future__ import annotations

from api.workload import WorkloadKey


class SecondPassQueue:
    """The Workloads that the second pass has to place, and those that it found no room for."""

    def __init__(self) -> None:
        self._due: dict[WorkloadKey, None] = {}
        # Not tried again until something changes.
        self._without_room: dict[WorkloadKey, None] = {}

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: WorkloadKey) -> None:
        """Have the Workload tried in the next pass."""
        self._due[key] = None

    def take_due(self) -> tuple[WorkloadKey, ...]:
        """Return the Workloads to try now, those added first coming first; each is returned once.

        A Workload for which no place is found has to be parked by the caller, or it is not tried again.
        """
        due = tuple(self._due)
        self._due.clear()
        return due

    def park(self, key: WorkloadKey) -> None:
        """Record that there was no room for the Workload; it is tried again after `retry`."""
        self._without_room[key] = None

    def retry(self) -> None:
        """Have the Workloads without room tried again, since there may be room now."""
        self._due.update(self._without_room)
        self._without_room.clear()

    def unpark(self, key: WorkloadKey) -> None:
        """Record that the last failure of the Workload no longer counts, since its faults have changed."""
        self._without_room.pop(key, None)

    def drop(self, key: WorkloadKey) -> None:
        """Forget a Workload that no longer holds quota."""
        self._due.pop(key, None)
        self._without_room.pop(key, None)
