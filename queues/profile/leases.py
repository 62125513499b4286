"""The backfill leases by Workload, and the distinct times that their evictions take.

For each promise the schedule plan computes, at every step of time, when evictions for it must begin. Hundreds
of Workloads may run on leases with two or three distinct eviction times, and at nearly every step a lease
begins or ends. The distinct times are therefore counted with each change, not collected each time.
"""

from __future__ import annotations

from collections.abc import Collection

from api.workload import WorkloadKey
from queues.profile.planned_start import BackfillLease
from queues.tracked import Tracked


class Leases(Tracked[WorkloadKey, BackfillLease]):
    """The leases in force, by Workload.

    A mapping from the key of a Workload to its lease, which records the changed keys (`queues.tracked`), so
    that only those rows of the stored plan are written again.
    """

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        super().__init__()
        # How many leases there are of each length.
        self._lengths: dict[float, int] = {}

    def eviction_times(self) -> Collection[float]:
        """Return the distinct eviction times, in seconds, of the Workloads that run on a lease."""
        return self._lengths.keys()

    def longest_eviction(self) -> float | None:
        """Return the longest eviction time of all leases in seconds, None if there are none."""
        return max(self._lengths, default=None)

    def put(self, lease: BackfillLease) -> None:
        """Let a Workload run on this lease, which replaces the one that it had."""
        self[lease.key] = lease

    def __setitem__(self, key: WorkloadKey, value: BackfillLease) -> None:
        self._discount(key)
        self._lengths[value.eviction_seconds] = self._lengths.get(value.eviction_seconds, 0) + 1
        super().__setitem__(key, value)

    def __delitem__(self, key: WorkloadKey) -> None:
        self._discount(key)
        super().__delitem__(key)

    def pop(self, key: WorkloadKey, default: BackfillLease | None = None) -> BackfillLease | None:  # type: ignore[override]  # as Tracked's
        """Remove and return a lease; the default where there is none."""
        self._discount(key)
        return super().pop(key, default)

    def clear(self) -> None:
        """Remove all leases."""
        self._lengths.clear()
        super().clear()

    def validate(self) -> None:
        """Raise AssertionError where the counted eviction times differ from those of the leases."""
        found = [lease.eviction_seconds for lease in self.values()]
        expected = {length: found.count(length) for length in found}
        assert self._lengths == expected, f"leases are of {expected}, but {self._lengths} is known"

    def _discount(self, key: WorkloadKey) -> None:
        """Count one lease less of the eviction time that the Workload's lease has, if it has one."""
        known = self.get(key)
        if known is not None:
            self._lengths[known.eviction_seconds] -= 1
            if not self._lengths[known.eviction_seconds]:
                del self._lengths[known.eviction_seconds]
