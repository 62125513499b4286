"""The brain: the one task that owns what is known, and decides.

    informers, answers ─▶ inbox ─▶ take in ─▶ reconcile what changed ─▶ cycle after cycle ─▶ statuses
                                     engine, mirrors                      Term carries out

Everything else (informers, executor, HTTP handlers) only puts a call into the inbox or reads frozen views.
The brain never awaits the API server; between two decisions it awaits the store alone, and it gives the event
loop back every few milliseconds. It takes in events whether it leads or not, so that a follower is warm; it
acts only while it has a `term`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from admission.actions import Action, Event, Purpose, Write
from admission.controller.agenda import Agenda, Backoffs
from admission.controller.clock import Clock
from admission.controller.executor import Moot, Refused, Result, Target, Vanished, Written
from admission.controller.journal import Journal
from admission.controller.knowledge import Knowledge, ObjectKey
from admission.controller.logs import Log
from admission.controller.statuses import StatusBoard
from admission.decision import Admit, Decision, DecisionId, Plan, Reassign, Unreplaced, Wait
from admission.forecast import Forecast
from admission.jobs import reconcile_job
from admission.lifecycle import reconcile_workload
from api.workload import WorkloadKey
from queues.reservations import ReservationError, StoreRefused, StoreUnreachable

Answer = TypeVar("Answer")

log = Log("berth.brain")

# The event loop is given back after this long at the latest; lease renewal and watches share it.
SLICE_SECONDS = 0.01
# A Workload that gets its quota within this time is never told why it waited.
TELL_AFTER_SECONDS = 1.0
# How long a new wording of a reason that was told waits before the next try to write it.
REWORD_AFTER_SECONDS = 60.0
# How often the age of what is not confirmed is looked at.
WATCH_SECONDS = 1.0
# So many are told at once why they wait though nobody tried them; the next as many after another turn.
EXPLAINED_AT_ONCE = 50
# After so long without a pause the cycle lets all else have its turn: what is told, statuses, deadlines.
TURN_SECONDS = 0.25
# How often expected starts are worked out, and how many of them are told each time: five a second.
FORECAST_SECONDS = 30.0
TOLD_A_FORECAST = 150
# How long the cycle rests after the store did not serve.
STORE_PAUSE_SECONDS = 0.25


class Acting(Protocol):
    """What carries decisions out: a Term, or an observer that only notes them."""

    @property
    def is_paused(self) -> bool:
        """Whether the cycle has to wait."""

    @property
    def unconfirmed(self) -> int:
        """How many decisions have not been answered yet."""

    @property
    def is_alone(self) -> bool:
        """Whether nobody else is to admit: what others admit beyond the quota is evicted."""

    async def carry_out(self, decisions: Sequence[Decision | Reassign]) -> None:
        """Reserve and send."""

    async def flush(self) -> None:
        """Bring the store up to date."""

    def submit(self, write: Write, *, priority: int = 1) -> None:
        """Send a reconciler's write."""

    def tell(self, decision: Wait) -> bool:
        """Say why a Workload waits. Returns False where that is not worth a write just now."""

    def is_busy(self, target: Target) -> bool:
        """Whether a write on the object is on its way."""


class _Pace:
    """Gives the event loop back whenever a slice of time is used up."""

    __slots__ = ("_clock", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = clock.monotonic() + SLICE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether the slice is used up."""
        return self._clock.monotonic() > self._until

    async def breathe(self) -> bool:
        """Let others have their turn if it is time. Returns whether they had it."""
        if not self.is_over:
            return False
        await asyncio.sleep(0)
        self._until = self._clock.monotonic() + SLICE_SECONDS
        return True


class Brain:
    """Takes in, reconciles, decides."""

    def __init__(self, knowledge: Knowledge, board: StatusBoard, journal: Journal, clock: Clock) -> None:
        self.knowledge = knowledge
        self.is_synced = False
        self._board = board
        self._journal = journal
        self._clock = clock
        self._inbox: deque[Callable[[], object]] = deque()
        self._wake = asyncio.Event()
        self._term: Acting | None = None
        self._failed: asyncio.Future[None] | None = None
        # Why Workloads wait that have yet to be told, and when they are.
        self._waits: dict[WorkloadKey, Wait] = {}
        self._tellings: Agenda[WorkloadKey] = Agenda()
        # Deadlines of Workloads (Unix seconds), and calls about refused decisions (monotonic).
        self._deadlines: Agenda[WorkloadKey] = Agenda()
        self._later: Agenda[DecisionId] = Agenda()
        self._calls: dict[DecisionId, Callable[[], None]] = {}
        self._backoffs: Backoffs[Target] = Backoffs()
        # Who asked for a write on another object (a pod to be let go, a Workload to be made): to be looked at
        # again where that write does not come about.
        self._askers: dict[Target, dict[Target, None]] = {}
        self._store_pause_until = 0.0
        # When expected starts are worked out next, and those that are being worked out.
        self._forecast_at = 0.0
        self._prospect: Forecast | None = None

    # --- what others call -------------------------------------------------------------------------

    def post(self, call: Callable[[], object]) -> None:
        """Let the brain make this call; from any task of this loop."""
        self._inbox.append(call)
        self._wake.set()

    def begin(self, term: Acting) -> asyncio.Future[None]:
        """Act from now on; the future fails with the store's error when the term cannot go on."""
        self._term = term
        self._failed = asyncio.get_running_loop().create_future()
        self._waits.clear()
        self._tellings.clear()
        self._backoffs.clear()
        self._askers.clear()
        self._later.clear()
        self._calls.clear()
        # What the cluster shows at the beginning of a term, earlier leaders have weighed.
        self.knowledge.engine.weigh_all(now=self._clock.now())
        self.knowledge.ground.forget_promises()
        self.knowledge.mark_all()
        self._board.mark_all()
        self._wake.set()
        return self._failed

    def fail(self, error: Exception) -> None:
        """End the present term with this error; nothing happens where there is none."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
        self._term = None

    def end(self) -> None:
        """Act no longer."""
        self._term = None
        self._failed = None
        # Who does not lead shows the cluster as it is. Not at once: the term may be asking the store still.
        self.forget_all()

    def forget_all(self) -> None:
        """Take back whatever was decided and the cluster does not show: nobody carries it out any more."""
        self.post(lambda: self.knowledge.engine.forget_all(now=self._clock.now()))

    async def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return what a call gives that the brain makes in its turn, after all that was posted before."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            try:
                answered.set_result(question())
            except asyncio.InvalidStateError:
                pass  # who asked has left
            except Exception as error:
                answered.set_exception(error)

        self.post(answer)
        return await answered

    def forget(self, decision: DecisionId) -> None:
        """Take back a decision that did not come about; from any task of this loop."""
        self.post(partial(self._forget, decision))

    def forget_later(self, decision: DecisionId) -> None:
        """Take back a decision whose write was refused, after a growing pause: the next try may end the same.

        Until then the Workload keeps its place in the quota, and nobody else is tried on it in vain.
        """
        self.call_later(decision, partial(self._forget, decision))

    def call_later(self, decision: DecisionId, call: Callable[[], None]) -> None:
        """Make a call about a decision after a growing pause, in this term."""
        now, key = self._clock.monotonic(), decision.key
        rest = self._backoffs.fail(Target("Workload", key.namespace, key.name), now)
        self._later.put(decision, now + rest)
        self._calls[decision] = call
        self._wake.set()

    def _forget(self, decision: DecisionId) -> None:
        key, uid, version = decision
        self.knowledge.engine.forget(key, uid, now=self._clock.now(), decided_on=version)

    def stumbled(self) -> None:
        """Log and count a fault of our own that cost one object its turn; called from its `except`."""
        log.exception("brain-stumbled")
        self._journal.note_stumble()

    def tell_later(self, decision: Wait) -> None:
        """Say again why a Workload waits, after a growing pause: the write was refused."""
        target = Target("Workload", decision.key.namespace, decision.key.name)
        self._tell_at(decision, self._backoffs.fail(target, self._clock.monotonic()))
        self._wake.set()

    def finished(self, write: Write, result: Result) -> None:
        """Take note of a write's result; called by the executor's tasks."""
        self.post(lambda: self._take_result(write, result))

    def is_busy(self, target: Target) -> bool:
        """Return whether a write on the object is on its way, or was refused a moment ago."""
        return self._term is not None and self._is_left_alone(self._term, target)

    # --- the task ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._wake.clear()
            await self._take_in()
            if self._term is not None and self.is_synced:
                await self._act_guarded(self._term)
            await self._rest()

    async def _take_in(self) -> None:
        pace = _Pace(self._clock)
        while self._inbox:
            self._guarded(self._inbox.popleft())
            await pace.breathe()

    def _guarded(self, call: Callable[[], object]) -> None:
        """Make a call about one object. A fault of our own costs that object its turn, not the others."""
        try:
            call()
        except Exception:
            self.stumbled()

    async def _act_guarded(self, term: Acting) -> None:
        """Act once. A store that refuses this leader ends the term; what was not foreseen is logged."""
        try:
            await self._act(term)
        except (StoreUnreachable, StoreRefused) as error:
            log.warning("store-required", error=error)
            self._store_pause_until = self._clock.monotonic() + STORE_PAUSE_SECONDS
        except ReservationError as error:
            # A call of a term that has ended meanwhile says nothing about the present one.
            if self._term is term:
                self.fail(error)
        except Exception:
            self.stumbled()
            await asyncio.sleep(STORE_PAUSE_SECONDS)
            # What was left undone is not announced again.
            self._wake.set()

    async def _act(self, term: Acting) -> None:
        self._note_due()
        self.knowledge.engine.sample_usage(now=self._clock.now())
        await self._reconcile(term)
        await term.flush()
        await self._repair(term)
        await self._second_pass(term)
        await self._decide(term)
        await self._tell_waits(term)
        self._tell_faults(term)
        self._keep_what_is_in_use(term)
        await self._write_statuses(term)

    async def _rest(self) -> None:
        """Sleep until something happens or the next timer is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_to_next()):
                await self._wake.wait()

    def _seconds_to_next(self) -> float | None:
        term = self._term
        if term is None or not self.is_synced:
            return None
        now, monotonic = self._clock.now(), self._clock.monotonic()
        waits = [
            _seconds_until(self._deadlines.next_at(), now),
            _seconds_until(self.knowledge.engine.next_sample_at(), now),
            _seconds_until(self._backoffs.next_at(), monotonic),
            _seconds_until(self._later.next_at(), monotonic),
            self._board.seconds_to_next(monotonic),
            _seconds_until(self._tellings.next_at(), monotonic),
            _seconds_until(self._forecast_at, monotonic) if self.knowledge.engine.keeps_time else None,
            WATCH_SECONDS if term.unconfirmed else None,
            *self._waits_to_decide(term, now),
        ]
        soonest = min((wait for wait in waits if wait is not None), default=None)
        return None if soonest is None else max(0.001, soonest)

    def _waits_to_decide(self, term: Acting, now: float) -> tuple[float | None, ...]:
        # While the cycle is held up, back-offs that end change nothing.
        if self._is_held_up(term):
            return (STORE_PAUSE_SECONDS,)
        engine = self.knowledge.engine
        repair_at = engine.next_repair_at() if term.is_alone else None
        return _seconds_until(engine.next_wake_at(), now), _seconds_until(repair_at, now)

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, term: Acting) -> None:
        pace = _Pace(self._clock)
        for take, look in (
            (self.knowledge.take_dirty_workload, self._reconcile_workload),
            (self.knowledge.take_dirty_job, self._reconcile_job),
        ):
            # A mark is taken by the term that can act on it alone: a new one marks everything, once.
            while self._term is term and (key := take()) is not None:
                self._guarded(partial(look, term, key))
                if await pace.breathe():
                    await self._take_in()

    def _reconcile_workload(self, term: Acting, key: ObjectKey) -> None:
        target, seen = Target("Workload", *key), self.knowledge.workloads.get(key)
        if seen is None:
            self._backoffs.forget(target)
            self._deadlines.put(WorkloadKey(*key), None)
            return
        if self._is_left_alone(term, target):
            return
        context = self.knowledge.lifecycle_context(seen.value)
        result = reconcile_workload(seen.value, seen.raw, context, now=self._clock.now())
        self._deadlines.put(seen.value.key, result.wake_at)
        self._do(term, result.actions, target)

    def _reconcile_job(self, term: Acting, key: ObjectKey) -> None:
        target, seen = Target("Job", *key), self.knowledge.jobs.get(key)
        if seen is None:
            self._backoffs.forget(target)
            return
        workloads = self.knowledge.workloads_of(seen)
        lanes = (target, *(Target("Workload", *workload.key) for workload, _ in workloads))
        if any(self._is_left_alone(term, lane) for lane in lanes):
            return
        actions = reconcile_job(
            seen.value, seen.raw, workloads, self.knowledge.job_context, now=self._clock.now()
        )
        self._do(term, actions, target)

    def _is_left_alone(self, term: Acting, target: Target) -> bool:
        """A write on its way reports back and marks the object again; a refused one waits out its pause."""
        return term.is_busy(target) or self._backoffs.is_resting(target, self._clock.monotonic())

    def _do(self, term: Acting, actions: tuple[Action, ...], asker: Target | None = None) -> None:
        for action in actions:
            if isinstance(action, Event):
                self._journal.note(action)
                continue
            target = _target(action)
            if not self._is_left_alone(term, target):
                term.submit(action)
                if action.purpose is Purpose.UNGATE_POD:
                    self.knowledge.ground.promise(action)
            # Left alone or under way, it is heard of again; one who only observes never hears of anything.
            if asker not in (None, target) and self._is_left_alone(term, target):
                self._askers.setdefault(target, {})[asker] = None

    def _note_due(self) -> None:
        """Take note of deadlines that have come, rests that are over, and decisions to be taken back."""
        for key in self._deadlines.take_due(self._clock.now()):
            self.knowledge.mark_workload(key)
        monotonic = self._clock.monotonic()
        for decision in self._later.take_due(monotonic):
            self._guarded(self._calls.pop(decision))
        for target in self._backoffs.take_due(monotonic):
            self._look_again(target)
            self._look_at_askers(target)

    # --- deciding ---------------------------------------------------------------------------------

    async def _second_pass(self, term: Acting) -> None:
        """Find other nodes for Workloads that have lost some."""
        if not self._may_decide(term):
            return
        decisions = self.knowledge.engine.second_pass(now=self._clock.now())
        if decisions:
            self._journal.note_second_pass(decisions)
            await term.carry_out([one for one in decisions if not isinstance(one, Unreplaced)])

    async def _repair(self, term: Acting) -> None:
        """Evict what another writer has admitted beyond the quota."""
        if not (term.is_alone and self._may_decide(term)):
            return
        evictions = self.knowledge.engine.repair(now=self._clock.now())
        if evictions:
            self._journal.note_repair(evictions)
            await term.carry_out(evictions)

    async def _decide(self, term: Acting) -> None:
        engine, pace = self.knowledge.engine, _Pace(self._clock)
        turn_ends_at = self._clock.monotonic() + TURN_SECONDS
        while self._may_decide(term) and engine.has_heads(now=self._clock.now()):
            if self._clock.monotonic() > turn_ends_at:
                self._wake.set()
                break
            await self._decide_once(term)
            await pace.breathe()
            await self._take_in()
            await self._reconcile(term)
            if self._term is term:
                # A Workload that comes back finds its old reservation gone.
                await term.flush()
        self._journal.note_pause(term.is_paused, term.unconfirmed)
        self._explain(term)
        self._forecast(term)

    def _forecast(self, term: Acting) -> None:
        """In a quiet moment, work out for a slice of time when who waits is expected to start."""
        engine, monotonic = self.knowledge.engine, self._clock.monotonic
        if self._term is not term or engine.has_heads(now=self._clock.now()):
            return
        if self._prospect is None or self._prospect.is_outdated:
            if monotonic() < self._forecast_at:
                return
            self._prospect = engine.begin_forecast(now=self._clock.now())
            self._forecast_at = monotonic() + FORECAST_SECONDS
        if self._prospect is None:
            return
        until = monotonic() + SLICE_SECONDS
        while self._prospect.step():
            if monotonic() > until:
                self._wake.set()
                return
        news = engine.take_forecast(self._prospect, most=TOLD_A_FORECAST, now=self._clock.now())
        self._prospect = None
        for key in news:
            self.knowledge.mark_workload(key)
        if news:
            self._wake.set()

    def _explain(self, term: Acting) -> None:
        """In a quiet moment, note why those wait whom no cycle has tried."""
        engine = self.knowledge.engine
        if self._term is not term or term.unconfirmed or engine.has_heads(now=self._clock.now()):
            return
        waits = engine.explain(EXPLAINED_AT_ONCE)
        self._collect_waits(waits)
        if len(waits) == EXPLAINED_AT_ONCE:
            self._wake.set()

    async def _decide_once(self, term: Acting) -> None:
        began = self._clock.monotonic()
        cycle, pace = self.knowledge.engine.begin_cycle(now=self._clock.now()), _Pace(self._clock)
        try:
            # The inbox stays closed meanwhile: a change of what is known would end the cycle undecided.
            while cycle.step():
                if pace.is_over:
                    cycle.pause()
                    await pace.breathe()
            if self._term is not term:
                # Whatever was decided is taken back by who began or ended the term.
                return
            decisions = tuple(cycle.decisions)
            self._journal.note_cycle(decisions, self._clock.monotonic() - began)
            self._note_time(decisions)
            self._collect_waits(decisions)
        except Exception:
            # Nobody else knows of them: what is assumed now would be assumed for ever.
            for decision in cycle.decisions:
                if not isinstance(decision, Wait | Plan):
                    self._forget(decision.id)
            raise
        await term.carry_out(decisions)

    def _note_time(self, decisions: Iterable[Decision]) -> None:
        engine = self.knowledge.engine
        self._journal.note_time(engine.take_kept(), engine.take_measured())
        for decision in decisions:
            if isinstance(decision, Admit) and engine.is_backfilled(decision.key):
                self._journal.note_backfilled(decision.admission.cluster_queue)

    def _may_decide(self, term: Acting) -> bool:
        return self._term is term and not self._is_held_up(term)

    def _is_held_up(self, term: Acting) -> bool:
        return term.is_paused or self._clock.monotonic() < self._store_pause_until

    def _collect_waits(self, decisions: tuple[Decision, ...]) -> None:
        for decision in decisions:
            if isinstance(decision, Wait):
                self._waits[decision.key] = decision
                self._tell_at(decision, TELL_AFTER_SECONDS)
            elif isinstance(decision, Plan):
                # What is promised is told by annotations, which the reconciler keeps in step.
                self.knowledge.mark_workload(decision.key)
            else:
                self._waits.pop(decision.key, None)
                self._tellings.put(decision.key, None)

    def _tell_at(self, decision: Wait, seconds: float) -> None:
        """Tell in so many seconds, or earlier where that was planned already: the latest word."""
        at, planned = self._clock.monotonic() + seconds, self._tellings.at(decision.key)
        self._waits.setdefault(decision.key, decision)
        self._tellings.put(decision.key, at if planned is None else min(at, planned))

    async def _tell_waits(self, term: Acting) -> None:
        """Say why they wait to those that have waited a moment; who was admitted meanwhile need not know."""
        pace = _Pace(self._clock)
        for key in self._tellings.take_due(self._clock.monotonic()):
            decision = self._waits.pop(key, None)
            if self._term is not term:
                return
            if decision is None or self.knowledge.engine.is_holding(key):
                continue
            if not term.tell(decision):
                self._tell_at(decision, REWORD_AFTER_SECONDS)
            await pace.breathe()

    def _tell_faults(self, term: Acting) -> None:
        """Tell the owners of objects that break a rule."""
        while self._term is term and (
            actions := self.knowledge.inspection.take_untold(now=self._clock.now())
        ):
            self._do(term, actions)

    def _keep_what_is_in_use(self, term: Acting) -> None:
        """Put finalizers on, and take them off what may go."""
        if self._term is term:
            for write in self.knowledge.keeping.take_due(partial(self._is_left_alone, term)):
                term.submit(write, priority=3)

    async def _write_statuses(self, term: Acting) -> None:
        pace = _Pace(self._clock)
        if self._term is not term:
            return
        for write in self._board.due(now=self._clock.now(), monotonic=self._clock.monotonic()):
            if write is not None:
                term.submit(write, priority=3)
            await pace.breathe()
            if self._term is not term:
                return

    # --- results ----------------------------------------------------------------------------------

    def _take_result(self, write: Write, result: Result) -> None:
        target = _target(write)
        self._journal.note_write(write, result)
        try:
            self._take_answer(target, write, result)
        finally:
            if write.purpose is Purpose.UNGATE_POD:
                # Only now: with the answer taken in, its place is seen to be taken.
                self.knowledge.ground.answered(write.uid)

    def _take_answer(self, target: Target, write: Write, result: Result) -> None:
        match result:
            case Written(raw=raw) | Moot(raw=raw):
                if raw and not self.knowledge.see_raw(write.kind, raw):
                    # We cannot read what somebody made of it, so the next write would meet the same.
                    self._backoffs.fail(target, self._clock.monotonic())
                    return
                if write.purpose is not Purpose.FENCE:
                    # A Workload whose admission was given up is fenced off with ease: that mends nothing.
                    self._backoffs.forget(target)
                if raw:
                    self._board.see_raw(write.kind, raw)
            case Refused(error=error):
                self._backoffs.fail(target, self._clock.monotonic())
                self._journal.note_refused(write, error)
                log.warning("write-refused", purpose=write.purpose, target="/".join(target), error=error)
                return
            case Vanished():
                self._backoffs.forget(target)
                log.debug("object-vanished", target="/".join(target), purpose=write.purpose)
        if write.kind in _RECONCILED or isinstance(result, Moot):
            self._look_again(target)
        if isinstance(result, Written):
            self._askers.pop(target, None)
        else:
            self._look_at_askers(target)

    def _look_again(self, target: Target) -> None:
        if target.kind in _RECONCILED:
            self.knowledge.mark(target.kind, (target.namespace, target.name))
        elif target.kind == "Pod":
            self.knowledge.ground.look_again(target.namespace, target.name)
        else:
            self._board.mark(*target)
            self.knowledge.keeping.mark(target)

    def _look_at_askers(self, target: Target) -> None:
        """What they asked for has not come about: let them see whether they still want it."""
        for asker in self._askers.pop(target, ()):
            self._look_again(asker)


# Kinds that are looked at by a reconciler; the status of others is the board's affair.
_RECONCILED = ("Job", "Workload")


def _target(write: Write) -> Target:
    return Target(write.kind, write.namespace, write.name)


def _seconds_until(at: float | None, now: float) -> float | None:
    return None if at is None else at - now
