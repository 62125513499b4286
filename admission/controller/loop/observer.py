"""What the control loop reports of its work. `admission.controller.metrics` logs and measures it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from admission.backfill.promise_reports import PromiseOutcome
from admission.backfill.running_estimates import MeasuredRun
from admission.controller.writer.write_order import Result
from admission.decisions.api_writes import Write
from admission.decisions.decision import Decision, Evict, SecondPassDecision
from queues.estimates.start_errors import StartOutcome


class LoopObserver(Protocol):
    """Is called by the control loop's task. It must not block."""

    def note_cycle(self, decisions: tuple[Decision, ...], seconds: float) -> None:
        """Take one cycle's decisions. `seconds` is how long the cycle took."""

    def note_promises(self, kept: Iterable[PromiseOutcome], measured: Iterable[MeasuredRun]) -> None:
        """Take the promises that Workloads have started on, and the run times that have ended."""

    def note_starts(self, outcomes: Iterable[StartOutcome]) -> None:
        """Count how wrong the first estimates of starts were."""

    def note_backfilled(self, cluster_queue: str) -> None:
        """Take note of a Workload that starts ahead of a promised one."""

    def note_repair(self, evictions: tuple[Evict, ...]) -> None:
        """Take the evictions of Workloads that another writer admitted beyond the quota."""

    def note_second_pass(self, decisions: Iterable[SecondPassDecision]) -> None:
        """Take the decisions on Workloads with failed nodes."""

    def note_pause(self, is_paused: bool, unconfirmed: int) -> None:
        """Take note of whether cycles wait for answers, and how many decisions have none."""

    def note_answer(self, write: Write, result: Result) -> None:
        """Take the result of a write."""

    def note_error(self) -> None:
        """Take note of a bug that affected one object."""
