"""Leases by Workload, and how long it takes to end them, each length once.

Each promise asks at every step of time when somebody would have to be told to go for it. Hundreds may run on
leases, of two or three lengths, and at nearly every step one begins or ends.
"""

from __future__ import annotations

from collections.abc import Collection

from api.workload import WorkloadKey
from queues.profile.planned_start import BackfillLease
from queues.tracked import Tracked


class Leases(Tracked[WorkloadKey, BackfillLease]):
    """The leases that run."""

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        super().__init__()
        # How many leases there are of each length.
        self._lengths: dict[float, int] = {}

    def eviction_times(self) -> Collection[float]:
        """Return how long those who run on a lease need to give way, in seconds, each length once."""
        return self._lengths.keys()

    def __setitem__(self, key: WorkloadKey, value: BackfillLease) -> None:
        self._discount(key)
        self._lengths[value.eviction_seconds] = self._lengths.get(value.eviction_seconds, 0) + 1
        super().__setitem__(key, value)

    def __delitem__(self, key: WorkloadKey) -> None:
        self._discount(key)
        super().__delitem__(key)

    def pop(self, key: WorkloadKey, default: BackfillLease | None = None) -> BackfillLease | None:  # type: ignore[override]  # as Tracked's
        """Take a lease out. Returns it, or the default."""
        self._discount(key)
        return super().pop(key, default)

    def clear(self) -> None:
        """Take all leases out."""
        self._lengths.clear()
        super().clear()

    def validate(self) -> None:
        """Raise AssertionError where the lengths are not those of the leases."""
        found = [lease.eviction_seconds for lease in self.values()]
        expected = {length: found.count(length) for length in found}
        assert self._lengths == expected, f"leases are of {expected}, but {self._lengths} is known"

    def _discount(self, key: WorkloadKey) -> None:
        known = self.get(key)
        if known is not None:
            self._lengths[known.eviction_seconds] -= 1
            if not self._lengths[known.eviction_seconds]:
                del self._lengths[known.eviction_seconds]
