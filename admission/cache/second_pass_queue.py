"""The second pass queue: admitted Workloads that have lost nodes, or still wait for their first places.

What the pass decides for them is in `admission.engine.second_pass`.
Source: Kueue, pkg/cache/queue/second_pass_queue.go.
"""

from __future__ import annotations

from math import inf

from api.workload import WorkloadKey

# How many seconds a failed node is listed before it is replaced. Within that time another node of the same
# Workload may fail, and it is evicted rather than mended twice. Kueue's constant.
REPLACEMENT_SECONDS = 1.0


class SecondPassQueue:
    """The Workloads that the second pass has to place, and those that it found no room for."""

    def __init__(self) -> None:
        # By Workload: from when it may be tried, in Unix seconds.
        self._due: dict[WorkloadKey, float] = {}
        # Not tried again until something changes.
        self._without_room: dict[WorkloadKey, None] = {}

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: WorkloadKey, *, at: float) -> None:
        """Have the Workload tried in the first pass from `at` on; an earlier time that it has counts."""
        self._due[key] = min(at, self._due.get(key, inf))

    def next_at(self) -> float | None:
        """Return from when the next Workload may be tried; None if there is none."""
        return min(self._due.values(), default=None)

    def take_due(self, *, now: float) -> tuple[WorkloadKey, ...]:
        """Return the Workloads to try now, those added first coming first; each is returned once.

        A Workload for which no place is found has to be parked by the caller, or it is not tried again.
        """
        due = tuple(key for key, at in self._due.items() if at <= now)
        for key in due:
            del self._due[key]
        return due

    def park(self, key: WorkloadKey) -> None:
        """Record that there was no room for the Workload; it is tried again after `retry`."""
        self._without_room[key] = None

    def retry(self) -> None:
        """Have the Workloads without room tried again, since there may be room now."""
        self._due.update(dict.fromkeys(self._without_room, -inf))
        self._without_room.clear()

    def unpark(self, key: WorkloadKey) -> None:
        """Record that the last failure of the Workload no longer counts, since its faults have changed."""
        self._without_room.pop(key, None)

    def drop(self, key: WorkloadKey) -> None:
        """Forget a Workload that no longer holds quota."""
        self._due.pop(key, None)
        self._without_room.pop(key, None)
