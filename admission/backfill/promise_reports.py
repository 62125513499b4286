"""The reports of promises: what became of each since it was last reported, and what was reported then.

    made or moved    reported with its planned start
    withdrawn        reported without one
    kept             not reported, since the admission shows it; counted for metrics

A promise that has changed several times since is reported once, as it is now.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from api.workload import WorkloadKey
from queues.profile.planned_start import PlannedStart

# How many kept promises are remembered until metrics read them. Offline they are never read.
_MOST_REMEMBERED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseOutcome:
    """A promise that has been kept: its Workload started at `at` (Unix seconds)."""

    planned: PlannedStart
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseReport:
    """The promise to a Workload, None where it was withdrawn, and the one that was reported before.

    Both promises are those of the same key, but the earlier one may be of an object that was deleted since.
    """

    key: WorkloadKey
    planned: PlannedStart | None
    former: PlannedStart | None


class PromiseReports:
    """What is to be reported about promises, and what has been."""

    def __init__(self) -> None:
        # Promises made, moved or withdrawn (None) since they were last reported.
        self.changed: dict[WorkloadKey, PlannedStart | None] = {}
        self._reported: dict[WorkloadKey, PlannedStart] = {}
        self._kept: deque[PromiseOutcome] = deque(maxlen=_MOST_REMEMBERED)

    def note(self, key: WorkloadKey, planned: PlannedStart | None) -> None:
        """Record that a promise was made or moved; None: that it was withdrawn."""
        self.changed[key] = planned

    def note_kept(self, planned: PlannedStart, *, at: float) -> None:
        """Record that the promised Workload started at `at` (Unix seconds)."""
        self._kept.append(PromiseOutcome(planned=planned, at=at))
        self.changed.pop(planned.key, None)
        self._reported.pop(planned.key, None)

    def note_reported(self, planned: PlannedStart) -> None:
        """Record that another leader has reported this promise.

        Without it a new leader would report every promise again, as an event that tells nothing.
        """
        self.changed.pop(planned.key, None)
        self._reported[planned.key] = planned

    def clear(self) -> None:
        """Forget what is to be reported and what was. Kept promises stay, to be counted."""
        self.changed.clear()
        self._reported.clear()

    def take(self) -> list[PromiseReport]:
        """Return what is to be reported, each Workload once, and count it as reported.

        In the order of their first change.
        """
        changed, self.changed = self.changed, {}
        reports = [
            # What was reported last is what users know.
            PromiseReport(key=key, planned=planned, former=self._reported.get(key))
            for key, planned in changed.items()
        ]
        for key, planned in changed.items():
            if planned is None:
                self._reported.pop(key, None)
            else:
                self._reported[key] = planned
        return reports

    def take_kept(self) -> tuple[PromiseOutcome, ...]:
        """Return the promises kept since the last call. Each is returned once, so that it is counted once."""
        kept = tuple(self._kept)
        self._kept.clear()
        return kept
