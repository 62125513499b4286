"""Shadow mode: decisions are logged and measured, nothing is written.

What was "admitted" keeps its place in the engine for a while, so that the next decisions build on it as they
would in earnest; then it is taken back, unless the cluster's own scheduler has admitted it meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.writer.executor import ObjectTarget
from admission.decisions.api_writes import Write
from admission.decisions.decision import Decision, DecisionId, Plan, Reassign, Wait

log = Log("berth.observer")

# How long a decision that nobody carries out is believed. The observed scheduler decides within seconds;
# where it has not after a minute, it has decided otherwise.
BELIEVED_SECONDS = 60.0


class _Believed(NamedTuple):
    until: float
    decision: DecisionId


class ObserveMode:
    """Stands where a Term stands, and writes nothing."""

    def __init__(self, clock: Clock, forget: Callable[[DecisionId], None]) -> None:
        self._clock = clock
        self._forget = forget
        self._believed: deque[_Believed] = deque()

    @property
    def is_paused(self) -> bool:
        """Never: nothing has to be confirmed."""
        return False

    @property
    def unconfirmed(self) -> int:
        """How many decisions are believed."""
        return len(self._believed)

    @property
    def is_alone(self) -> bool:
        """Never: the observed scheduler admits, and what is only believed here is in nobody's way."""
        return False

    async def carry_out(self, decisions: Sequence[Decision | Reassign]) -> None:
        """Note what would be done."""
        # Believed for as long, whatever the decision: the observed scheduler has its own.
        until = self._clock.monotonic() + BELIEVED_SECONDS
        for decision in decisions:
            if not isinstance(decision, Wait | Plan):
                log.info("would-" + type(decision).__name__.lower(), workload=decision.key)
                self._believed.append(_Believed(until, decision.id))

    async def flush(self) -> None:
        """Take back what has been believed for long enough."""
        now = self._clock.monotonic()
        while self._believed and self._believed[0].until <= now:
            self._forget(self._believed.popleft().decision)

    def submit(self, write: Write, *, priority: int = 1) -> None:
        """Note what would be written."""
        log.debug(
            "would-write", purpose=write.purpose, priority=priority, object=f"{write.namespace}/{write.name}"
        )

    def tell(self, decision: Wait) -> bool:
        """Note what would be told."""
        log.debug("would-tell", workload=decision.key, reason=decision.reason)
        return True

    def is_busy(self, target: ObjectTarget) -> bool:
        """Never: nothing is written."""
        del target
        return False
