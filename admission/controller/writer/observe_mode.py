"""Observe mode: decisions are logged and measured, nothing is written.

A Workload that was "admitted" keeps its quota in the engine for a while, so that the next decisions build on
it as they would for a leader. Then the decision is taken back, unless the cluster's own scheduler has
admitted the Workload meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.writer.acting import WaitReport
from admission.controller.writer.write_order import ObjectTarget
from admission.decisions.api_writes import Write
from admission.decisions.decision import Decision, DecisionId, Plan, Reassign, Wait

log = Log("berth.observer")

# How long a decision is kept, given that nothing carries it out. The observed scheduler decides within
# seconds; if it has not admitted the Workload after a minute, it has decided otherwise.
ASSUMED_SECONDS = 60.0


class _Assumed(NamedTuple):
    until: float
    decision: DecisionId


class WriteLog:
    """Takes the place of a Dispatch and logs what would be written."""

    def submit(self, write: Write) -> None:
        """Log what would be written."""
        log.debug("would-write", purpose=write.purpose, object=f"{write.namespace}/{write.name}")

    @property
    def is_behind(self) -> bool:
        """Return False: nothing is written."""
        return False

    def report_wait(self, decision: Wait) -> WaitReport:
        """Log the reason that would be reported. It uses no budget, because nothing is written."""
        log.debug("would-report", workload=decision.key, reason=decision.reason)
        return WaitReport.NOT_NEEDED

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return False: nothing is written."""
        del target
        return False


class ObserveMode:
    """Takes the place of a LeaderTerm and writes nothing. `forget` takes a decision back in the engine."""

    def __init__(self, clock: Clock, forget: Callable[[DecisionId], None]) -> None:
        self.writer = WriteLog()
        self._clock = clock
        self._forget = forget
        self._assumed: deque[_Assumed] = deque()

    @property
    def is_paused(self) -> bool:
        """Return False: nothing has to be confirmed."""
        return False

    @property
    def unconfirmed(self) -> int:
        """Return how many decisions are kept in the engine at the moment."""
        return len(self._assumed)

    @property
    def is_alone(self) -> bool:
        """Return False: the observed scheduler admits, and the decisions made here take nothing from it."""
        return False

    async def carry_out(self, decisions: Sequence[Decision | Reassign]) -> None:
        """Log each decision, and keep it in the engine for `ASSUMED_SECONDS`."""
        # One duration for all kinds of decision, as the observed scheduler makes its own.
        until = self._clock.monotonic() + ASSUMED_SECONDS
        for decision in decisions:
            if not isinstance(decision, Wait | Plan):
                log.info("would-" + type(decision).__name__.lower(), workload=decision.key)
                self._assumed.append(_Assumed(until, decision.id))

    async def flush(self) -> None:
        """Take back the decisions that have been kept for `ASSUMED_SECONDS`."""
        now = self._clock.monotonic()
        while self._assumed and self._assumed[0].until <= now:
            self._forget(self._assumed.popleft().decision)

    def seconds_to_flush(self) -> float | None:
        """Return in how many seconds the next decision is taken back; None if there is none."""
        return self._assumed[0].until - self._clock.monotonic() if self._assumed else None
