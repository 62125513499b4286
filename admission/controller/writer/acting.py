"""The interface of the control loop to what acts on its decisions: a LeaderTerm, or ObserveMode."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, auto
from typing import Protocol

from admission.controller.writer.write_order import ObjectTarget
from admission.decisions.api_writes import Write
from admission.decisions.decision import Decision, Reassign, Wait


class WaitReport(StrEnum):
    """What became of a reason that was to be reported: it is written, need not be, or is put off for now."""

    WRITTEN = auto()
    NOT_NEEDED = auto()
    PUT_OFF = auto()


class DecisionWriter(Protocol):
    """Sends writes that need no reservation, or only logs them."""

    def submit(self, write: Write) -> None:
        """Send a write that a reconciler asked for."""

    @property
    def is_behind(self) -> bool:
        """Return whether writes that carry out decisions have no answer yet."""

    def report_wait(self, decision: Wait) -> WaitReport:
        """Report why a Workload waits."""

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is queued or in flight."""


class Acting(Protocol):
    """Carries out decisions: a LeaderTerm, or an ObserveMode, which writes nothing."""

    @property
    def writer(self) -> DecisionWriter:
        """Return what sends all other writes."""

    @property
    def is_paused(self) -> bool:
        """Return whether the cycle has to wait."""

    @property
    def unconfirmed(self) -> int:
        """Return how many decisions have not been answered yet."""

    @property
    def is_alone(self) -> bool:
        """Return whether no other controller may admit: then what others over-admit is evicted."""

    async def carry_out(self, decisions: Sequence[Decision | Reassign]) -> None:
        """Reserve quota for the decisions of one cycle and send their writes."""

    async def flush(self) -> None:
        """Write to the store what it has not received yet and is due."""

    def seconds_to_flush(self) -> float | None:
        """Return in how many seconds `flush` has something to write; None if nothing waits."""
