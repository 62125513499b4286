"""Jobs of a trace that join a reservation, including those that cannot use it.

In production, a Workload that names a reservation which is over, refused or for another LocalQueue waits
until a user corrects it. A trace is not corrected, so here such a Job runs like any other and is counted. A
misspelled name then appears in the report and does not stop the simulation.
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
    """Which Job joins which reservation of the calendar. All names come from one file, so they are unique."""

    engine: Engine
    reservations: Sequence[CapacityReservation]
    # By reservation, why the first of its Jobs could not use it, and how many could not.
    _reasons: dict[str, str] = field(default_factory=dict)
    _missed: Counter[str] = field(default_factory=Counter)

    def ends_at(self, course: JobCourse) -> float | None:
        """Return when the Job's reservation ends, or None if the calendar has none with that name."""
        known = self._find(course)
        return known.end_at if known is not None else None

    def corrected(self, course: JobCourse, workload: Workload) -> Workload | None:
        """Return the pending Workload without its reservation if it can no longer use that, else None."""
        if RESERVATION not in workload.annotations or workload.has_quota_reservation:
            return None
        problem = self.engine.workloads.queue_problem(workload)
        if problem is None or problem[0] is not PendingReason.MISCONFIGURED:
            known = self._find(course)
            if known is not None and course.reserved_from is None:
                course.reserved_from = max(course.job.submitted_at, known.start_at)
            return None
        # A Job that used the reservation before it was evicted does not count as missed.
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
