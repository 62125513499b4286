"""Workloads parked individually, not with their class, and when their back-offs end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heappop, heappush
from math import inf

from api.workload import Workload, WorkloadKey
from queues.pending.entries import Pending


class ParkedAlone:
    """The Workloads of one queue that are parked alone: they wait for an event, or for a back-off to end.

    The name of the queue is added to `backing_off`, which queues share, when a back-off begins.
    """

    def __init__(self, queue: str, backing_off: set[str]) -> None:
        self._queue = queue
        self._backing_off = backing_off
        self._parked: dict[WorkloadKey, Pending] = {}
        # By the end of a back-off. An entry may be stale: the Workload has left, or has a new back-off, which
        # has an entry of its own. Stale entries are dropped when they reach the top.
        self._ends: list[tuple[float, int, Pending]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._parked)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._parked

    def values(self) -> Collection[Pending]:
        """Return the Workloads, in the order in which they were parked."""
        return self._parked.values()

    @property
    def has_ends(self) -> bool:
        """Whether a back-off may be running; False only if none is."""
        return bool(self._ends)

    def next_retry_at(self) -> float | None:
        """Return the earliest end of a back-off, None where none is running."""
        while self._ends and not self._is_backing_off(self._ends[0][2], until=self._ends[0][0]):
            heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def add(self, pending: Pending) -> None:
        """Park a Workload that is in no class, until `retry_at` if that is finite."""
        pending.ticket = 0
        self._parked[pending.key] = pending
        # Without a known end the Workload waits for an event, not for the clock.
        if 0 < pending.retry_at < inf:
            self._backing_off.add(self._queue)
            self._sequence += 1
            heappush(self._ends, (pending.retry_at, self._sequence, pending))

    def discard(self, key: WorkloadKey) -> bool:
        """Remove a Workload. Return whether it was here."""
        return self._parked.pop(key, None) is not None

    def take_due(self, *, now: float) -> list[Pending]:
        """Remove and return the Workloads whose back-off has ended, the earliest end first."""
        due = []
        while self._ends and self._ends[0][0] <= now:
            at, _, pending = heappop(self._ends)
            if self._is_backing_off(pending, until=at):
                del self._parked[pending.key]
                due.append(pending)
        return due

    def take(self, *, now: float, may_enter: Callable[[Workload], bool]) -> list[Pending]:
        """Remove and return the Workloads that back off no longer and may become active."""
        # Complete before the first is removed, because removing changes what is iterated over.
        taken = [one for one in self._parked.values() if one.retry_at <= now and may_enter(one.workload)]
        for pending in taken:
            del self._parked[pending.key]
        return taken

    def _is_backing_off(self, pending: Pending, *, until: float) -> bool:
        return self._parked.get(pending.key) is pending and pending.retry_at == until
