"""One term of leadership: decisions are reserved in the store, sent to the cluster, and seen through.

A term begins when the lease is won and ends with it; a new one starts from nothing (see `recover`). What it
holds between a decision and its confirmation:

    cycle ─▶ reserve (one store call) ─▶ order ─▶ answer ─▶ confirm (with the next store call)
                │ Lost                            │ moot, vanished, refused
                └────────────▶ forget ◀───────────┘  release (with the next store call)

What was lost or refused is forgotten after a pause: tried again at once, it would end the same.

A refused admission of which an earlier sending may still arrive keeps its quota until the Workload has been
fenced off (`admission.controller.writer.fencing`); where even that is refused it is tried again and again,
and the Workload keeps the quota meanwhile: better one place too few than one too many.

A fault of our own over one decision costs that Workload its turn: it is taken back, logged and counted, and
the other decisions of the cycle are carried out.

Decided and not yet answered Workloads are *unconfirmed*: the cycle pauses while there are too many of them or
the oldest has waited too long, so that what we believe never runs far ahead of what the cluster has taken.

Here stands what takes quota and accounts for it; orders that need no reservation are sent by
`admission.controller.writer.dispatch`.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.failpoints import Failpoint, Step
from admission.controller.runtime.logs import Log
from admission.controller.writer.dispatch import Dispatch, Hooks, is_pending
from admission.controller.writer.executor import (
    Executor,
    Moot,
    Refused,
    Result,
    Vanished,
    WriteOrder,
    Written,
)
from admission.controller.writer.fencing import fence_write, is_fenced_off, refenced
from admission.controller.writer.requests import request_of
from admission.decisions.api_writes import Write
from admission.decisions.decision import Admit, Decision, DecisionId, Evict, Plan, Reassign, Wait
from admission.reconcile.workload_writes import plan_text, reassign_text, write_of
from api.reasons import ConditionType
from api.workload import Workload
from queues.reservations.reservations import (
    LoggedDecision,
    Lost,
    QuotaReservation,
    ReservationId,
    ReservationStore,
    Reserved,
)

log = Log("berth.term")


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSettings:
    """`max_unconfirmed` decisions may be open, the oldest for `max_unconfirmed_seconds`."""

    identity: str
    fence: int
    max_unconfirmed: int = 256
    max_unconfirmed_seconds: float = 10.0
    awaits_pods: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """An admission with its write, and the Workload that it was decided on."""

    decision: Admit
    write: Write
    decided_on: Workload


class LeaderTerm(Dispatch):
    """Carries out decisions under one fence."""

    def __init__(
        self,
        executor: Executor,
        store: ReservationStore,
        clock: Clock,
        *,
        settings: TermSettings,
        hooks: Hooks,
        failpoint: Failpoint,
        flush_plan: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(executor, clock, hooks=hooks, failpoint=failpoint)
        self.settings = settings
        self._store = store
        self._flush_plan = flush_plan
        # When each was sent, the oldest first.
        # An OrderedDict for its first key: the oldest is looked at before every cycle.
        self._unconfirmed: OrderedDict[ReservationId, float] = OrderedDict()
        # Gathered for the next store call: a store call of its own for each confirmation
        # would double their number.
        self._to_confirm: list[ReservationId] = []
        self._to_release: list[ReservationId] = []
        self._has_ended = False
        # The round of decisions that is carried out, and what was told since the last for the decision log.
        self._cycle = 0
        self._told: list[LoggedDecision] = []

    # --- deciding ---------------------------------------------------------------------------------

    @property
    def unconfirmed(self) -> int:
        """How many decisions have not been answered yet."""
        return len(self._unconfirmed)

    @property
    def is_paused(self) -> bool:
        """Whether the cycle has to wait for answers."""
        # Both bounds: many that are quick, and one that hangs, mean alike that the cluster does not keep up.
        if len(self._unconfirmed) >= self.settings.max_unconfirmed:
            return True
        oldest = next(iter(self._unconfirmed.values()), None)
        return oldest is not None and self._clock.monotonic() - oldest > self.settings.max_unconfirmed_seconds

    @property
    def is_alone(self) -> bool:
        """Whether nobody else is to admit: who leads does so alone."""
        return True

    async def carry_out(self, decisions: Sequence[Decision | Reassign]) -> None:
        """Reserve and send the admissions of one cycle, send evictions and reassignments.

        Raises what the store raises. A reassignment keeps its quota, so it needs no reservation.

        Waits are not sent here: see `tell`.
        """
        # Numbered per term; in the log fence and cycle together name one round.
        self._cycle += 1
        try:
            prepared = [one for one in map(self._prepare, decisions) if one is not None]
            answers = await self._reserve(prepared, decisions)
            # Promises and leases are stored before anybody is told of them, or starts on one.
            await self._flush_plan()
        # BaseException, as a cancelled commit may have taken effect or not: in this process
        # nothing may stay assumed.
        except BaseException:
            for decision in decisions:
                if not isinstance(decision, Wait | Plan):
                    self._hooks.forget(decision.id)
            raise
        # Looked at after the await: the term may have ended while the store was asked.
        if self._has_ended:
            # The lease was lost while the store was asked: the next leader judges what was reserved.
            return
        for one, answer in zip(prepared, answers, strict=True):
            self._guarded(one.decision, partial(self._take_answer, one, answer))
        # After the admissions: victims keep their quota until they have stopped, so there is no
        # hurry among the two.
        for decision in decisions:
            if isinstance(decision, Evict):
                self._guarded(decision, partial(self._submit_eviction, decision))
            elif isinstance(decision, Reassign):
                self._guarded(decision, partial(self._submit_reassignment, decision))

    def _guarded(self, decision: Admit | Evict | Reassign, call: Callable[[], None]) -> None:
        """Carry out one decision. A fault of our own costs that Workload its turn, not the others."""
        try:
            call()
        except Exception:
            self._hooks.stumbled()
            if isinstance(decision, Admit):
                # What stays reserved would be lost to itself at each later try.
                self._give_back(decision.id, self._hooks.forget_later)
            else:
                self._hooks.forget_later(decision.id)

    def _take_answer(self, prepared: _Prepared, answer: Reserved | Lost) -> None:
        decision = prepared.decision
        if isinstance(answer, Lost):
            # Tried again at once it would be lost again: what holds it has yet to be given back.
            log.warning("reservation-lost", workload=decision.key, why=answer.message)
            self._hooks.forget_later(decision.id)
        else:
            self._submit_admission(prepared)

    async def flush(self) -> None:
        """Tell the store what has been confirmed and what was given back. Raises what the store raises."""
        # Promises first: who is confirmed may have started on one.
        await self._flush_plan()
        await self._flush_log()
        confirmed, self._to_confirm = self._to_confirm, []
        released, self._to_release = self._to_release, []
        try:
            if confirmed:
                await self._store.confirm(confirmed, fence=self.settings.fence)
            if released:
                await self._store.release(released, fence=self.settings.fence)
        except BaseException:
            # Back to the front, in order; what was added meanwhile stays behind.
            self._to_confirm[:0], self._to_release[:0] = confirmed, released
            raise

    async def _flush_log(self) -> None:
        """Log what was told. A log entry is expendable: one that meets a fault is not kept."""
        told, self._told = self._told, []
        if told:
            # A commit without reservations: the log has no call of its own.
            await self._store.commit((), fence=self.settings.fence, request_id=uuid.uuid4().hex, log=told)

    def _submit_wait(self, decision: Wait, write: Write) -> None:
        # Logged when it is told, not when it is decided: most who wait for a moment are never told so.
        self._told.append(self._entry(decision))
        super()._submit_wait(decision, write)

    def end(self) -> None:
        """Send nothing more. What was decided and not answered is taken back when the next term begins."""
        self._has_ended = True

    # --- admissions -------------------------------------------------------------------------------

    def _prepare(self, decision: Decision | Reassign) -> _Prepared | None:
        """Return an admission made ready; None for other decisions, and where it cannot be written."""
        if not isinstance(decision, Admit):
            return None
        try:
            # Rendering may meet an object that nobody foresaw; it costs this Workload its turn.
            prepared = self._written(decision)
        except Exception:
            self._hooks.stumbled()
            self._hooks.forget_later(decision.id)
            return None
        if prepared is None:
            # The Workload is gone or another by now: there is nothing to wait for, so it is
            # taken back at once.
            self._hooks.forget(decision.id)
        return prepared

    def _written(self, decision: Admit) -> _Prepared | None:
        seen = self._hooks.look_up(decision.key)
        if seen is None or seen[0].uid != decision.uid:
            return None
        write = self._admission_write(decision, seen[1])
        return None if write is None else _Prepared(decision=decision, write=write, decided_on=seen[0])

    def _admission_write(self, decision: Admit, raw: bytes) -> Write | None:
        return write_of(decision, raw, now=self._clock.now(), awaits_pods=self.settings.awaits_pods)

    async def _reserve(
        self, prepared: Sequence[_Prepared], decisions: Sequence[Decision | Reassign]
    ) -> tuple[Reserved | Lost, ...]:
        """Return one answer an admission."""
        # One id for the whole cycle; a repeated call is answered as the first was.
        request_id = uuid.uuid4().hex
        reservations = [self._reservation(one, request_id) for one in prepared]
        # Waits are logged when they are told (`_submit_wait`).
        entries = [self._entry(decision) for decision in decisions if not isinstance(decision, Wait)]
        if not reservations and not entries:
            return ()
        answers = await self._store.commit(
            reservations, fence=self.settings.fence, request_id=request_id, log=entries
        )
        self._failpoint.reach(Step.AFTER_RESERVE)
        return answers

    def _reservation(self, prepared: _Prepared, request_id: str) -> QuotaReservation:
        decision, write = prepared.decision, prepared.write
        verb, path, content_type = request_of(write)
        return QuotaReservation(
            key=decision.key,
            uid=decision.uid,
            resource_version=decision.resource_version,
            request_id=request_id,
            fence=self.settings.fence,
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
            by=self.settings.identity,
            fence=self.settings.fence,
            key=decision.key,
            uid=decision.uid,
            what=type(decision).__name__,
            reason=decision.reason if isinstance(decision, Evict | Wait) else "",
            message=_decision_text(decision),
            cycle=self._cycle,
            start_at=planned.start_at if planned is not None else None,
        )

    def _submit_admission(self, prepared: _Prepared) -> None:
        decision, write = prepared.decision, prepared.write
        # From here on it counts as unconfirmed, whatever becomes of the write.
        self._unconfirmed[decision.key, decision.uid] = self._clock.monotonic()

        def rebuild(raw: bytes) -> Write | None:
            workload = self._hooks.to_workload(raw)
            # The object has changed. Only onto the very spec that was decided on may the
            # admission be put again.
            if workload is None or not _is_as_decided(workload, prepared.decided_on):
                return None
            return self._admission_write(
                structs.replace(decision, resource_version=workload.resource_version), raw
            )

        self.executor.submit(
            WriteOrder(
                write=write,
                on_result=lambda result: self._admission_answered(decision, write, result),
                rebuild=rebuild,
                # Admissions before everything else that waits to be sent.
                priority=0,
                before=self._reaching(Step.BEFORE_PATCH),
                after=self._reaching(Step.AFTER_PATCH),
            )
        )

    def _admission_answered(self, decision: Admit, write: Write, result: Result) -> None:
        self._unconfirmed.pop((decision.key, decision.uid), None)
        match result:
            case Written():
                self._to_confirm.append((decision.key, decision.uid))
            case Moot(raw=raw) if self._shows_quota(decision.id, raw):
                # It may be our own, seen back: its answer had got lost.
                self._to_confirm.append((decision.key, decision.uid))
            # Refused, and perhaps stored all the same a moment later: the quota stays until
            # that is ruled out.
            case Refused(may_land_on=version) if version:
                self.fence_off(decision.id, version)
            case _:
                # A refusal would repeat itself at once, so it is forgotten after a pause; one that
                # was overtaken is not.
                forget = self._hooks.forget_later if isinstance(result, Refused) else self._hooks.forget
                self._give_back(decision.id, forget)
        if not isinstance(result, Written):
            log.warning("admission-not-written", workload=decision.key, result=_result_text(result))
        self._hooks.finished(write, result)

    def _shows_quota(self, decision: DecisionId, raw: bytes) -> bool:
        workload = self._hooks.to_workload(raw)
        return workload is not None and workload.uid == decision.uid and workload.has_quota_reservation

    def _give_back(self, decision: DecisionId, forget: Callable[[DecisionId], None]) -> None:
        self._to_release.append((decision.key, decision.uid))
        forget(decision)

    # --- what may still arrive --------------------------------------------------------------------

    def fence_off(self, decision: DecisionId, may_land_on: str, raw: bytes | None = None) -> None:
        """Give the quota of a decision back once its write, sent for this version, can no longer be stored.

        `raw` is the Workload where it is known better than to `look_up`.
        """
        seen = self._hooks.look_up(decision.key)
        # The watch may be ahead of the answer that we were handed, or behind: the caller knows.
        raw = raw if raw is not None or seen is None else seen[1]
        fence = self.settings.fence
        write = fence_write(decision, fence=fence, raw=raw)
        self.executor.submit(
            WriteOrder(
                write=write,
                on_result=lambda result: self._fence_answered(decision, may_land_on, write, result),
                rebuild=lambda fresh: refenced(write, fence=fence, raw=fresh),
            )
            # No rebuild of another's write: only the annotation is changed, whatever else the
            # object is by now.
        )

    def _fence_answered(self, decision: DecisionId, may_land_on: str, write: Write, result: Result) -> None:
        # The write that may be on its way is known by the version that it was sent for.
        stray = decision._replace(resource_version=may_land_on)
        match result:
            # It did arrive, before it could be fenced off.
            case Written(raw=raw) if self._shows_quota(decision, raw):
                self._to_confirm.append((decision.key, decision.uid))
            # The server stored no new version (the annotation said so already): once
            # more, with another value.
            case Written(raw=raw) if not is_fenced_off(stray, raw):
                self.fence_off(decision, may_land_on, raw)
            # Even this write is refused. The quota stays where it is; a place too few is better
            # than one given twice.
            case Refused(error=error):
                log.error("reservation-kept", workload=decision.key, error=error)
                self._hooks.call_later(decision, partial(self.fence_off, decision, may_land_on))
            case _:
                self._give_back(decision, self._hooks.forget_later)
        self._hooks.finished(write, result)


def _is_as_decided(workload: Workload, decided_on: Workload) -> bool:
    """Whether only what does not matter changed since: the admission was decided on this very spec.

    Nor may it have been evicted since: the engine takes such a Workload for a new one in the queue, and may
    have given its quota to another.
    """
    return (
        # Still pending, the same life, the same spec; other annotations and statuses do not matter.
        is_pending(workload, decided_on.uid)
        and workload.deleted_at is None
        and workload.generation == decided_on.generation
        and workload.conditions.get(ConditionType.EVICTED) == decided_on.conditions.get(ConditionType.EVICTED)
    )


def _decision_text(decision: Decision | Reassign) -> str:
    match decision:
        case Evict() | Wait():
            return decision.message
        case Reassign():
            return reassign_text(decision)
        case Plan():
            return plan_text(decision)
    flavors = sorted(
        {flavor for pod_set in decision.admission.pod_sets for flavor in pod_set.flavors.values()}
    )
    return f"in ClusterQueue {decision.admission.cluster_queue} on {', '.join(flavors) or 'no flavor'}"


def _result_text(result: Result) -> str:
    match result:
        case Refused(error=error):
            return str(error)
        case Vanished():
            return "the Workload is gone"
        case _:
            return "the Workload has changed"
