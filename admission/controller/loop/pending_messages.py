"""Why Workloads wait, and when each reason is reported.

A reason is reported once it has held for a moment and the budget allows it. Most Workloads of a busy queue
are admitted before that, and a write on each of them would cost as much as the admissions. Workloads that a
cycle has tried come before those that only wait behind others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.timers import Timers
from admission.decisions.decision import Decision, Plan, Wait
from api.kube.report_budget import ReportBudget, WriteLoad
from api.workload import WorkloadKey

# A Workload that is admitted within this time never gets a wait reason.
REPORT_AFTER_SECONDS = 1.0
# How long a new message for a reason that was reported waits before the next attempt to write it.
REWORD_AFTER_SECONDS = 60.0

# Reasons written per second in quiet times, and how many may be written at once: a submission of some dozen
# Jobs is answered at once, and a queue of thousands within minutes.
REASONS_PER_SECOND = 20.0
BURST = 100.0


class PendingMessages:
    """The latest reason of each Workload whose reason has yet to be reported."""

    def __init__(self, clock: Clock, load: WriteLoad) -> None:
        self._clock = clock
        self._budget = ReportBudget(load, per_second=REASONS_PER_SECOND, burst=BURST)
        self._waits: dict[WorkloadKey, Wait] = {}
        # The Workloads of `_waits` that a cycle has tried. Those that are not due yet have a timer; the
        # others wait for the budget, the longest waiting first.
        self._tried: set[WorkloadKey] = set()
        self._timers: Timers[WorkloadKey] = Timers()
        self._due_tried: OrderedDict[WorkloadKey, None] = OrderedDict()
        self._due: OrderedDict[WorkloadKey, None] = OrderedDict()

    def clear(self) -> None:
        """Drop all reasons."""
        for known in (self._waits, self._tried, self._timers, self._due_tried, self._due):
            known.clear()

    def seconds_to_next(self) -> float | None:
        """Return in how many seconds `take_due` may return a reason; None if there is none."""
        if self._due_tried or self._due:
            return self._budget.seconds_to_next(self._clock.monotonic())
        at = self._timers.next_at()
        return None if at is None else at - self._clock.monotonic()

    def collect(self, decisions: Sequence[Decision], *, are_tried: bool = True) -> None:
        """Take decisions: a Wait sets the Workload's reason, an Admit or Evict removes it.

        `are_tried`: a cycle has tried these Workloads.
        """
        for decision in decisions:
            if isinstance(decision, Wait):
                self._waits[decision.key] = decision
                if are_tried:
                    self._note_tried(decision.key)
                self.report_in(decision, REPORT_AFTER_SECONDS)
            elif not isinstance(decision, Plan):
                # A Plan says when a Workload will start, not why it waits, so its reason stays.
                self._drop(decision.key)

    def report_in(self, decision: Wait, seconds: float) -> None:
        """Report the latest reason in `seconds`, or earlier if that was planned already."""
        key = decision.key
        self._waits.setdefault(key, decision)
        if key not in self._due and key not in self._due_tried:
            at, planned = self._clock.monotonic() + seconds, self._timers.at(key)
            self._timers.put(key, at if planned is None else min(at, planned))

    def take_due(self) -> Wait | None:
        """Return the next reason to report; None while none is due or the budget is used up."""
        now = self._clock.monotonic()
        for key in self._timers.take_due(now):
            (self._due_tried if key in self._tried else self._due)[key] = None
        due = self._due_tried or self._due
        if not due or self._budget.seconds_to_next(now) > 0:
            return None
        key = next(iter(due))
        decision = self._waits[key]
        self._drop(key)
        return decision

    def note_written(self) -> None:
        """Note that the reason returned last is written; one that was not needed costs nothing."""
        self._budget.take(self._clock.monotonic())

    def _note_tried(self, key: WorkloadKey) -> None:
        self._tried.add(key)
        if key in self._due:
            del self._due[key]
            self._due_tried[key] = None

    def _drop(self, key: WorkloadKey) -> None:
        for known in (self._waits, self._due_tried, self._due):
            known.pop(key, None)
        self._tried.discard(key)
        self._timers.put(key, None)
