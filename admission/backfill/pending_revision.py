"""The pending revision: what has happened since promises were last revised that may move them.

    causes    for a move to a later start
    freed     for one to an earlier start: capacity that counted as taken when promises were made

While both are empty no promise needs another look, which is what keeps the schedule plan cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from queues.profile.freed_capacity import FreedCapacity
from queues.profile.planned_start import MoveCause


@dataclass(slots=True)
class PendingRevision:
    """Why promises have to be revised. `admission.backfill.revise_promises` takes it and moves them."""

    causes: set[MoveCause] = field(default_factory=set)
    freed: FreedCapacity = field(default_factory=FreedCapacity)

    def is_due(self, *, now: float) -> bool:
        """Return whether anything has happened that may move promises, later or earlier."""
        return bool(self.causes) or self.freed.until >= now

    def take(self) -> tuple[set[MoveCause], FreedCapacity]:
        """Return the causes and the freed capacity recorded so far, and clear both records.

        The caller gives both back if it cannot finish the revision.
        """
        causes, self.causes = self.causes, set()
        return causes, self.freed.take()
