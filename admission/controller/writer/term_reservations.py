"""What one term writes to the store: reservations, what became of them, and the decision log.

A decision that takes quota is reserved before it is sent. What becomes of it is collected here and written
later, because one call for each confirmation would double the number of calls: a release before the next
cycle, which may give the quota away, confirmations and reported wait reasons within COLLECT_SECONDS. Until
then a successor finds a reservation whose quota the cluster shows, as after a crash, and confirms it itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from admission.controller.runtime.failpoints import Step
from admission.controller.runtime.runtime import Runtime
from admission.controller.writer.requests import request_of
from admission.decisions.api_writes import Write
from admission.decisions.decision import Admit, Decision, DecisionId, Evict, Plan, Reassign, Wait
from admission.reconcile.decision_texts import decision_text
from queues.reservations.reservations import (
    LoggedDecision,
    Lost,
    QuotaReservation,
    ReservationId,
    ReservationStore,
    Reserved,
)

# How long confirmations and log entries may wait for others to be written with.
COLLECT_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class TermIdentity:
    """Which process leads, and the fence of its term."""

    identity: str
    fence: int


class TermReservations:
    """The reservations and the decision log of one term.

    `flush_plan` writes promises and leases to the store. All methods that are awaited raise what the store
    raises.
    """

    def __init__(
        self,
        store: ReservationStore,
        runtime: Runtime,
        term: TermIdentity,
        *,
        flush_plan: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = runtime.clock
        self._term = term
        self._failpoint = runtime.failpoint
        self._flush_plan = flush_plan
        # The oldest first.
        self._to_confirm: dict[ReservationId, None] = {}
        self._to_release: dict[ReservationId, None] = {}
        # The number of the cycle whose decisions are carried out, and the wait reasons reported since the
        # last flush. Counted per term: in the decision log, fence and cycle together identify one cycle.
        self._cycle = 0
        self._reported: list[LoggedDecision] = []
        # When what is collected is due (monotonic seconds); None if that is nothing.
        self._flush_at: float | None = None

    @property
    def fence(self) -> int:
        """Return the fence of the term."""
        return self._term.fence

    async def reserve(
        self, admissions: Sequence[tuple[Admit, Write]], decisions: Sequence[Decision | Reassign]
    ) -> tuple[Reserved | Lost, ...]:
        """Reserve quota for the admissions of one cycle, log its decisions, and store what they promise.

        Return one answer for each admission, in order.
        """
        self._cycle += 1
        answers = await self._commit(admissions, decisions)
        # Promises and leases are stored before they are reported and before a Workload starts on one.
        await self._flush_plan()
        return answers

    async def _commit(
        self, admissions: Sequence[tuple[Admit, Write]], decisions: Sequence[Decision | Reassign]
    ) -> tuple[Reserved | Lost, ...]:
        # One id for the whole cycle: a repeated call is answered as the first one was.
        request_id = uuid.uuid4().hex
        reservations = [self._reservation(*one, request_id) for one in admissions]
        # The old reservation of a Workload that was evicted since would be in the way of its new one.
        if any(one.id in self._to_confirm or one.id in self._to_release for one in reservations):
            await self._flush_settled()
        # Waits are logged when they are reported (`note_reported`).
        entries = [self._entry(decision) for decision in decisions if not isinstance(decision, Wait)]
        if not reservations and not entries:
            return ()
        answers = await self._store.commit(
            reservations, fence=self._term.fence, request_id=request_id, log=entries
        )
        self._failpoint.reach(Step.AFTER_RESERVE)
        return answers

    def confirm(self, decision: DecisionId) -> None:
        """Note that the cluster shows the quota: the reservation is no longer needed."""
        self._to_confirm[decision.key, decision.uid] = None
        self._flush_soon()

    def release(self, decision: DecisionId) -> None:
        """Note that the quota was given back."""
        self._to_release[decision.key, decision.uid] = None
        self._flush_at = self._clock.monotonic()

    def note_reported(self, decision: Wait | Evict) -> None:
        """Note a wait reason, or an eviction that no cycle decided, for the decision log.

        A short wait is usually never reported, nor logged.
        """
        self._reported.append(self._entry(decision))
        self._flush_soon()

    async def flush(self) -> None:
        """Write promises, and if it is due what else was collected, to the store."""
        # Promises first: a confirmed Workload may have started on one.
        await self._flush_plan()
        if self._flush_at is not None and self._clock.monotonic() >= self._flush_at:
            self._flush_at = None
            await self._flush_settled()
            await self._flush_log()

    def seconds_to_flush(self) -> float | None:
        """Return in how many seconds what was collected is due; None if that is nothing."""
        return None if self._flush_at is None else self._flush_at - self._clock.monotonic()

    def _flush_soon(self) -> None:
        if self._flush_at is None:
            self._flush_at = self._clock.monotonic() + COLLECT_SECONDS

    async def _flush_settled(self) -> None:
        confirmed, self._to_confirm = self._to_confirm, {}
        released, self._to_release = self._to_release, {}
        try:
            if confirmed:
                await self._store.confirm(tuple(confirmed), fence=self._term.fence)
            if released:
                await self._store.release(tuple(released), fence=self._term.fence)
        except BaseException:
            # Put them back in front, in order; entries added during the call follow.
            self._to_confirm, self._to_release = confirmed | self._to_confirm, released | self._to_release
            self._flush_soon()
            raise

    async def _flush_log(self) -> None:
        """Log the wait reasons reported since the last call. They are dropped if the store fails."""
        reported, self._reported = self._reported, []
        if reported:
            # A commit without reservations, because the store has no separate call for the log.
            request_id = uuid.uuid4().hex
            await self._store.commit((), fence=self._term.fence, request_id=request_id, log=reported)

    def _reservation(self, decision: Admit, write: Write, request_id: str) -> QuotaReservation:
        verb, path, content_type = request_of(write)
        return QuotaReservation(
            key=decision.key,
            uid=decision.uid,
            resource_version=decision.resource_version,
            request_id=request_id,
            fence=self._term.fence,
            reserved_at=self._clock.now(),
            verb=verb,
            path=path,
            content_type=content_type,
            write=write.body,
        )

    def _entry(self, decision: Decision | Reassign) -> LoggedDecision:
        planned = decision.planned if isinstance(decision, Plan) else None
        return LoggedDecision(
            at=self._clock.now(),
            by=self._term.identity,
            fence=self._term.fence,
            key=decision.key,
            uid=decision.uid,
            what=type(decision).__name__,
            reason=decision.reason if isinstance(decision, Evict | Wait) else "",
            message=decision_text(decision),
            cycle=self._cycle,
            start_at=planned.start_at if planned is not None else None,
        )
