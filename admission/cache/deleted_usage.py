"""What deleted Workloads used: the usage of objects that are gone, summed by day.

Workloads go with their Jobs (`ttlSecondsAfterFinished`) and by retention, so within a day the objects say
little of a week. Each Workload is added once, when its object goes, with its usage of each day of UTC. Sums
cannot tell whether a Workload is in them, so the leader's sums are the ones that count: a replica that begins
to lead replaces its own by the stored ones (`adopt`). What its predecessor had not stored yet, a few seconds,
may be missing; nothing is counted twice. To keep each Workload instead would take a hundred times the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queues.reservations.usage_rows import UsageKey, UsageRow
from queues.tracked import Tracked

# A quarter, and a week to look back at it.
MOST_DAYS = 100
# Some 10 MB of memory and as much of the store. The oldest days go first, and of a day what used least.
MOST_ROWS = 20_000
# How many more go then, so that it is not done again for the next Workload.
_SPARE_ROWS = 2_000


class DeletedUsage:
    """The sums of deleted Workloads. One task owns it."""

    def __init__(self) -> None:
        self.rows: Tracked[UsageKey, UsageRow] = Tracked()
        self._first_day = 0

    def add(self, used: Mapping[UsageKey, UsageRow], *, today: int) -> None:
        """Add what a Workload used whose object was deleted just now."""
        for key, row in used.items():
            self.rows[key] = self.rows.get(key, UsageRow()).plus(row)
        if today - MOST_DAYS > self._first_day:
            self._first_day = today - MOST_DAYS
            self._forget(key for key in self.rows if key.day < self._first_day)
        if len(self.rows) > MOST_ROWS:
            by_worth = sorted(self.rows, key=lambda key: (key.day, self.rows[key].used, key))
            self._forget(by_worth[: len(self.rows) - MOST_ROWS + _SPARE_ROWS])

    def adopt(self, stored: Mapping[UsageKey, UsageRow], *, is_whole: bool) -> None:
        """Take in stored sums; `is_whole`: they replace what was summed here for the same key."""
        for key, row in stored.items():
            if is_whole or key not in self.rows:
                self.rows[key] = row

    def _forget(self, keys: Iterable[UsageKey]) -> None:
        for key in tuple(keys):
            del self.rows[key]
