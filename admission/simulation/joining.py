"""Jobs of a trace that join a reservation, and what becomes of those whom theirs is of no use to.

In production a Workload that names a reservation which is over, refused or another's waits until somebody
corrects it. Nobody corrects a trace, so here its Job runs like any other, and is counted: a misspelled name
shows in the report and does not stop the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from admission.engine.engine import Engine
from admission.simulation.course import JobCourse
from api.keys import RESERVATION
from api.policy import CapacityReservation
from api.reasons import PendingReason
from api.workload import Workload


@dataclass(slots=True, eq=False)
class Joining:
    """Who joins which of the calendar's reservations. Names are those of one file, so they are unique."""

    engine: Engine
    reservations: Sequence[CapacityReservation]
    # Why the first Job of a reservation could not use it, and how many could not.
    _reasons: dict[str, str] = field(default_factory=dict)
    _missed: Counter[str] = field(default_factory=Counter)

    def ends_at(self, course: JobCourse) -> float | None:
        """Return when the Job's reservation is over, None where the calendar has none of that name."""
        known = self._find(course)
        return known.end_at if known is not None else None

    def corrected(self, course: JobCourse, workload: Workload) -> Workload | None:
        """Return the waiting Workload without its wish, where that can no longer come true; else None."""
        if RESERVATION not in workload.annotations or workload.has_quota_reservation:
            return None
        problem = self.engine.queue_problem(workload)
        if problem is None or problem[0] is not PendingReason.MISCONFIGURED:
            known = self._find(course)
            if known is not None and course.reserved_from is None:
                course.reserved_from = max(course.job.submitted_at, known.start_at)
            return None
        # One that has used it before and was evicted has had what it asked for.
        if course.first_start_at is None:
            course.reserved_from = None
            self._reasons.setdefault(course.job.reservation, problem[1])
            self._missed[course.job.reservation] += 1
        left = {key: value for key, value in workload.annotations.items() if key != RESERVATION}
        return replace(workload, annotations=left)

    def problems(self) -> Iterator[str]:
        """Yield a sentence for each reservation that Jobs could not use."""
        for name, number in sorted(self._missed.items()):
            jobs = "1 Job" if number == 1 else f"{number:,} Jobs"
            yield f"{jobs} could not use a reservation and ran like any other: {self._reasons[name]}"

    def _find(self, course: JobCourse) -> CapacityReservation | None:
        name = course.job.reservation
        return next((one for one in self.reservations if one.name == name), None)
