"""Who holds quota of one ClusterQueue, in Kueue's order of eviction: least priority, then the last to start.

Every search for victims goes through it, cycle after cycle, while a few of hundreds come and go: so it is
kept instead of sorted anew.
Source: Kueue, pkg/scheduler/preemption/common, CandidatesOrdering.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from api.workload import WorkloadKey

# Priority, when it got its quota with the sign turned, uid: as `Need.rank` has it where no loss counts.
_Entry = tuple[int, float, str, WorkloadKey]


@dataclass(slots=True)
class CandidateOrderIndex:
    """The Workloads by their keys, each where it belonged when it was last put."""

    _entries: list[_Entry] = field(default_factory=list)
    _entry_of: dict[WorkloadKey, _Entry] = field(default_factory=dict)

    def put(self, key: WorkloadKey, *, priority: int, reserved_at: float, uid: str) -> None:
        """Put a Workload where it belongs, wherever it stood before."""
        self.drop(key)
        entry = self._entry_of[key] = (priority, -reserved_at, uid, key)
        insort(self._entries, entry)

    def drop(self, key: WorkloadKey) -> None:
        """Leave a Workload out, if it is there."""
        entry = self._entry_of.pop(key, None)
        if entry is not None:
            del self._entries[bisect_left(self._entries, entry)]

    @property
    def lowest(self) -> float:
        """The lowest priority of anybody, infinity where there is nobody."""
        return self._entries[0][0] if self._entries else inf

    def up_to(self, priority: float) -> Iterable[WorkloadKey]:
        """Return those of at most this priority, in order."""
        end = bisect_right(self._entries, priority, key=_priority)
        return [entry[3] for entry in self._entries[:end]]


def _priority(entry: _Entry) -> int:
    return entry[0]
