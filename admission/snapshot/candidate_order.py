"""The Workloads that hold quota of one ClusterQueue, in Kueue's order of eviction.

The lowest priority comes first, then the latest start. Every search for victims reads this order, cycle after
cycle, while only a few of hundreds of Workloads come and go. So it is maintained incrementally instead of
sorted for every search.
Source: Kueue, pkg/scheduler/preemption/common, CandidatesOrdering.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from api.workload import WorkloadKey

# Priority, negated time of the quota reservation, uid: `PreemptionRequest.rank` where no loss counts.
_Entry = tuple[int, float, str, WorkloadKey]


@dataclass(slots=True)
class CandidateOrderIndex:
    """The Workloads by key, each at the position given by its last `put`."""

    _entries: list[_Entry] = field(default_factory=list)
    _entry_of: dict[WorkloadKey, _Entry] = field(default_factory=dict)

    def put(self, key: WorkloadKey, *, priority: int, reserved_at: float, uid: str) -> None:
        """Insert a Workload at its position, or move it there if it is already in the order.

        `reserved_at` is in Unix seconds. O(log n) to find the position, and the move of a list below it.
        """
        self.drop(key)
        entry = self._entry_of[key] = (priority, -reserved_at, uid, key)
        insort(self._entries, entry)

    def drop(self, key: WorkloadKey) -> None:
        """Remove a Workload, if it is in the order."""
        entry = self._entry_of.pop(key, None)
        if entry is not None:
            del self._entries[bisect_left(self._entries, entry)]

    @property
    def lowest(self) -> float:
        """The lowest priority of all members, infinity where there are none."""
        return self._entries[0][0] if self._entries else inf

    def up_to(self, priority: float) -> Iterable[WorkloadKey]:
        """Return the Workloads of at most this priority, in order.

        O(log n), and the copy of the part that is returned.
        """
        end = bisect_right(self._entries, priority, key=_priority)
        return [entry[3] for entry in self._entries[:end]]


def _priority(entry: _Entry) -> int:
    return entry[0]
