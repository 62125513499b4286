"""One term of leadership: decisions are reserved in the store, written to the cluster, and confirmed.

A term begins when the lease is won and ends with it. A new term starts with no state (see
`admission.controller.leadership.takeover`). This is the way of an admission from decision to confirmation:

    cycle ─▶ reserve (one store call) ─▶ order ─▶ answer ─▶ confirm (in the store: many with one call)
                │ Lost                            │ moot, vanished, refused
                └────────────▶ forget ◀───────────┘  release (before the next cycle)

An admission that was lost or refused is forgotten after a pause: an immediate retry would end the same way.

A refused admission may still be stored by an earlier attempt. It keeps its quota until the Workload has been
fenced off (`admission.controller.writer.fencing`). If that write is refused too, it is retried until it
succeeds, and the Workload keeps its quota meanwhile: quota held too long is better than quota given twice.

A bug met while handling one decision affects only that Workload: its decision is taken back, the bug is
logged and counted, and the other decisions of the cycle are carried out.

Decisions without an answer are *unconfirmed*. The cycle pauses while there are too many of them or the oldest
has waited too long, so that the engine's state never runs far ahead of the cluster's.

This module sends the admissions, which take quota. They are accounted for in the store by
`admission.controller.writer.term_reservations`. Orders that need no reservation are sent by
`admission.controller.writer.dispatch`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from admission.controller.runtime.failpoints import Step
from admission.controller.runtime.logs import Log
from admission.controller.runtime.runtime import Runtime
from admission.controller.writer.dispatch import Dispatch, Hooks, at_failpoint, is_pending, look_up_of
from admission.controller.writer.executor import Executor
from admission.controller.writer.fencing import fence_write, is_fenced_off, refenced
from admission.controller.writer.term_reservations import TermReservations
from admission.controller.writer.write_order import (
    Moot,
    Refused,
    Result,
    Vanished,
    WriteOrder,
    Written,
)
from admission.decisions.api_writes import Write
from admission.decisions.decision import Admit, Decision, DecisionId, Evict, Plan, Reassign, Wait
from admission.reconcile.decision_writes import admit_write
from api.reason_words import ReasonWords
from api.reasons import ConditionType
from api.workload import Workload
from queues.reservations.reservations import Lost, ReservationId, Reserved

log = Log("berth.term")


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSettings:
    """At most `max_unconfirmed` decisions are open, and none for longer than `max_unconfirmed_seconds`."""

    max_unconfirmed: int = 256
    max_unconfirmed_seconds: float = 10.0
    awaits_pods: bool = False
    words: ReasonWords = field(default_factory=ReasonWords)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """An admission, its write, and the Workload as the decision saw it."""

    decision: Admit
    write: Write
    decided_on: Workload


class LeaderTerm:
    """Carries out decisions under one fence."""

    def __init__(
        self,
        executor: Executor,
        reservations: TermReservations,
        runtime: Runtime,
        *,
        settings: TermSettings,
        hooks: Hooks,
    ) -> None:
        self.writer = Dispatch(
            executor,
            runtime,
            hooks=hooks,
            note_reported=reservations.note_reported,
            words=settings.words,
            awaits_pods=settings.awaits_pods,
        )
        self._executor = executor
        self._clock = runtime.clock
        self._hooks = hooks
        self._failpoint = runtime.failpoint
        self._settings = settings
        self._reservations = reservations
        # When each admission was sent, the oldest first. An OrderedDict, because `is_paused` reads the first
        # entry before every cycle.
        self._unconfirmed: OrderedDict[ReservationId, float] = OrderedDict()
        self._has_ended = False

    # --- deciding ---------------------------------------------------------------------------------

    @property
    def unconfirmed(self) -> int:
        """Return how many admissions have not been answered yet."""
        return len(self._unconfirmed)

    @property
    def is_paused(self) -> bool:
        """Return whether the cycle has to wait for answers."""
        # Many fast writes and one slow write both mean that the cluster does not keep up.
        if len(self._unconfirmed) >= self._settings.max_unconfirmed:
            return True
        oldest = next(iter(self._unconfirmed.values()), None)
        return (
            oldest is not None and self._clock.monotonic() - oldest > self._settings.max_unconfirmed_seconds
        )

    @property
    def is_alone(self) -> bool:
        """Return True: only the leader admits."""
        return True

    async def carry_out(self, decisions: Sequence[Decision | Reassign]) -> None:
        """Reserve quota for the admissions of one cycle and send them; send its evictions and reassignments.

        Raises what the store raises. A reassignment keeps its quota, so it needs no reservation. Waits are
        not sent here: see `Dispatch.report_wait`.
        """
        try:
            prepared = [one for one in map(self._prepare, decisions) if one is not None]
            admissions = [(one.decision, one.write) for one in prepared]
            answers = await self._reservations.reserve(admissions, decisions)
        # BaseException, because a cancelled commit may have taken effect: nothing may stay
        # assumed in the engine.
        except BaseException:
            for decision in decisions:
                if isinstance(decision, Admit):
                    self._hooks.forget(decision.id)
                elif not isinstance(decision, Wait | Plan):
                    self._hooks.withdraw(decision.id)
            raise
        # Checked after the await: if the lease was lost during the store call, the next
        # leader judges the reservations.
        if self._has_ended:
            return
        for one, answer in zip(prepared, answers, strict=True):
            self._guarded(one.decision, partial(self._take_answer, one, answer))
        # Evictions come after admissions and are not urgent: a victim keeps its quota until it has stopped.
        for decision in decisions:
            if isinstance(decision, Evict):
                self._guarded(decision, partial(self.writer.submit_eviction, decision))
            elif isinstance(decision, Reassign):
                self._guarded(decision, partial(self.writer.submit_reassignment, decision))

    def _guarded(self, decision: Admit | Evict | Reassign, call: Callable[[], None]) -> None:
        """Carry out one decision. A bug in doing so takes back this decision and no other."""
        try:
            call()
        except Exception:
            self._hooks.report_error()
            if isinstance(decision, Admit):
                # A reservation left in the store would make every later attempt for this
                # Workload end as Lost.
                self._give_back(decision.id, self._hooks.forget_later)
            else:
                self._hooks.withdraw_later(decision.id)

    def _take_answer(self, prepared: _Prepared, answer: Reserved | Lost) -> None:
        decision = prepared.decision
        if isinstance(answer, Lost):
            # An immediate retry would be lost again: the reservation in the way has yet to be released.
            log.warning("reservation-lost", workload=decision.key, why=answer.message)
            self._hooks.forget_later(decision.id)
        else:
            self._submit_admission(prepared)

    async def flush(self) -> None:
        """Write to the store what it has not received yet and is due. Raises its errors."""
        await self._reservations.flush()

    def seconds_to_flush(self) -> float | None:
        """Return in how many seconds `flush` has something to write; None if nothing waits."""
        return self._reservations.seconds_to_flush()

    def end(self) -> None:
        """Send no more decisions. Those without an answer are taken back when the next term begins."""
        self._has_ended = True

    # --- admissions -------------------------------------------------------------------------------

    def _prepare(self, decision: Decision | Reassign) -> _Prepared | None:
        """Return an admission ready to be sent; None for other decisions, and if it cannot be written."""
        if not isinstance(decision, Admit):
            return None
        try:
            # Rendering may fail on an unforeseen object. Only this decision is then taken back.
            prepared = self._written(decision)
        except Exception:
            self._hooks.report_error()
            self._hooks.forget_later(decision.id)
            return None
        if prepared is None:
            # The Workload is gone or was replaced: a pause is of no use, so the decision is
            # taken back at once.
            self._hooks.forget(decision.id)
        return prepared

    def _written(self, decision: Admit) -> _Prepared | None:
        seen = self._hooks.look_up(decision.key)
        if seen is None or seen[0].uid != decision.uid:
            return None
        write = self._admission_write(decision, seen[1])
        return _Prepared(decision=decision, write=write, decided_on=seen[0])

    def _admission_write(self, decision: Admit, raw: bytes) -> Write:
        return admit_write(
            decision,
            raw,
            now=self._clock.now(),
            fence=self._reservations.fence,
            awaits_pods=self._settings.awaits_pods,
        )

    def _submit_admission(self, prepared: _Prepared) -> None:
        decision, write = prepared.decision, prepared.write
        # From here on it counts as unconfirmed, whatever happens to the write.
        self._unconfirmed[decision.key, decision.uid] = self._clock.monotonic()

        def rebuild(raw: bytes) -> Write | None:
            workload = self._hooks.to_workload(raw)
            # The object has changed. The admission may be written again only onto the same spec
            # that the decision saw.
            if workload is None or not _is_as_decided(workload, prepared.decided_on):
                return None
            return self._admission_write(decision, raw)

        self._executor.submit(
            WriteOrder(
                write=write,
                on_result=lambda result: self._admission_answered(decision, write, result),
                rebuild=rebuild,
                look_up=look_up_of(write, self._hooks),
                before=at_failpoint(self._failpoint, Step.BEFORE_PATCH),
                after=at_failpoint(self._failpoint, Step.AFTER_PATCH),
            )
        )

    def _admission_answered(self, decision: Admit, write: Write, result: Result) -> None:
        self._unconfirmed.pop((decision.key, decision.uid), None)
        match result:
            case Written():
                self._reservations.confirm(decision.id)
            case Moot(raw=raw) if self._shows_quota(decision.id, raw):
                # This may be our own write, whose answer was lost.
                self._reservations.confirm(decision.id)
            # An earlier attempt may still be stored: the quota is kept until that is ruled out.
            case Refused(may_land_on=version) if version:
                self.fence_off(decision.id, version)
            case _:
                # An immediate retry would end the same way, so there is a pause: after a refusal, and while
                # the watch still shows a Workload that is gone. One that has changed needs none.
                forget = self._hooks.forget if isinstance(result, Moot) else self._hooks.forget_later
                self._give_back(decision.id, forget)
        if not isinstance(result, Written):
            log.warning("admission-not-written", workload=decision.key, result=_result_text(result))
        self._hooks.finished(write, result)

    def _shows_quota(self, decision: DecisionId, raw: bytes) -> bool:
        workload = self._hooks.to_workload(raw)
        return workload is not None and workload.uid == decision.uid and workload.has_quota_reservation

    def _give_back(self, decision: DecisionId, forget: Callable[[DecisionId], None]) -> None:
        self._reservations.release(decision)
        forget(decision)

    # --- writes that may still be stored ----------------------------------------------------------

    def fence_off(self, decision: DecisionId, may_land_on: str, raw: bytes | None = None) -> None:
        """Give back the quota of a decision once its write, sent for version `may_land_on`, cannot be stored.

        `raw` is the Workload's bytes if the caller has newer ones than `look_up`.
        """
        seen = self._hooks.look_up(decision.key)
        # The watch may be ahead of or behind an answer. The caller knows which bytes are newer.
        raw = raw if raw is not None or seen is None else seen[1]
        fence = self._reservations.fence
        # The write in flight is identified by the version that it was sent for.
        stray = decision._replace(resource_version=may_land_on)
        write = fence_write(stray, fence=fence, raw=raw)
        # Only the annotation is patched, whatever else the object contains by now.
        self._executor.submit(
            WriteOrder(
                write=write,
                on_result=lambda result: self._fence_answered(decision, may_land_on, write, result),
                rebuild=lambda fresh: refenced(write, stray, fence=fence, raw=fresh),
            )
        )

    def _fence_answered(self, decision: DecisionId, may_land_on: str, write: Write, result: Result) -> None:
        stray = decision._replace(resource_version=may_land_on)
        match result:
            # It was stored before it could be fenced off.
            case Written(raw=raw) | Moot(raw=raw) if self._shows_quota(decision, raw):
                self._reservations.confirm(decision)
            # The server stored no new version, because the annotation had this value
            # already: write another value.
            case Written(raw=raw) if not is_fenced_off(stray, raw):
                self.fence_off(decision, may_land_on, raw)
            # This write is refused too. The quota is kept: holding it too long is better
            # than giving it twice.
            case Refused(error=error):
                log.error("reservation-kept", workload=decision.key, error=error)
                self._hooks.call_later(decision, partial(self.fence_off, decision, may_land_on))
            case _:
                self._give_back(decision, self._hooks.forget_later)
        self._hooks.finished(write, result)


def _is_as_decided(workload: Workload, decided_on: Workload) -> bool:
    """Return whether the admission still applies: it was decided on this very spec.

    The Workload must not have been evicted since either: the engine queues an evicted Workload as a new one
    and may have given its quota to another.
    """
    return (
        # The Workload is pending, has the same uid and the same spec. Other annotations and
        # statuses do not matter.
        is_pending(workload, decided_on.uid)
        and workload.deleted_at is None
        and workload.generation == decided_on.generation
        and workload.conditions.get(ConditionType.EVICTED) == decided_on.conditions.get(ConditionType.EVICTED)
    )


def _result_text(result: Result) -> str:
    match result:
        case Refused(error=error):
            return str(error)
        case Vanished():
            return "the Workload is gone"
        case _:
            return "the Workload has changed"
