"""The control loop: the one task that owns the controller's state and makes its decisions.

    informers, answers ─▶ inbox ─▶ take in ─▶ reconcile what changed ─▶ cycle after cycle ─▶ statuses
                                     engine, caches                       the term carries out

All other tasks (informers, executor, HTTP handlers) only put a call into the inbox or read frozen views. The
control loop never awaits the API server. Between two decisions it awaits only the store, and it yields the
event loop every few milliseconds. A follower takes in events like the leader, so that it can lead without
delay, but the loop acts only while it has a `term`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.loop.cycle_runner import CycleRunner
from admission.controller.loop.forecasting import Forecasting
from admission.controller.loop.observer import LoopObserver
from admission.controller.loop.pending_messages import REWORD_AFTER_SECONDS, PendingMessages
from admission.controller.loop.postponed_calls import Call, PostponedCalls
from admission.controller.loop.progress import Progress
from admission.controller.loop.reconcile_queue import Reconciler
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.events import EventReporter
from admission.controller.runtime.logs import Log
from admission.controller.runtime.yield_budget import YieldBudget
from admission.controller.writer.acting import Acting, WaitReport
from admission.controller.writer.write_order import ObjectTarget, Result
from admission.decisions.api_writes import Write
from admission.decisions.decision import DecisionId, Unreplaced, Wait
from api.kube.report_budget import WriteLoad
from queues.reservations.reservations import ReservationError, StoreRefused, StoreUnreachable

Answer = TypeVar("Answer")
Key = TypeVar("Key")

log = Log("berth.control-loop")

# How often the age of the oldest unconfirmed admission is checked.
WATCH_SECONDS = 1.0
# How many Workloads that no cycle has tried are given their wait reason at once; more follow
# in the next round.
EXPLAINED_AT_ONCE = 50
# A row of cycles ends after this long, so that wait reasons, statuses and deadlines are not held up.
TURN_SECONDS = 0.25
# A pass over all Workloads makes way for decisions after this long, and goes on in the next turn.
SWEEP_SECONDS = 0.05
# How long the cycle rests after the store failed to answer or refused a call.
STORE_PAUSE_SECONDS = 0.25


class ControlLoop:
    """Takes in events, reconciles what changed, and runs the scheduling cycles."""

    def __init__(
        self,
        cluster_state: ClusterState,
        board: StatusWriter,
        observer: LoopObserver,
        events: EventReporter,
        clock: Clock,
        load: WriteLoad,
    ) -> None:
        self.cluster_state = cluster_state
        self._engine = cluster_state.engine
        self.is_synced = False
        self.progress = Progress(clock)
        self._board = board
        self._observer = observer
        self._clock = clock
        # Calls and not values: the caller says what is to be done, and the control loop decides when.
        self._inbox: deque[Callable[[], object]] = deque()
        self._wake = asyncio.Event()
        self._term: Acting | None = None
        self._failed: asyncio.Future[None] | None = None
        self._reconciler = Reconciler(cluster_state, board, observer, events, clock)
        # What reports make way for. Kept up to date here, because all decisions are made here.
        self._load = load
        self._pending_messages = PendingMessages(clock, load)
        self._forecasting = Forecasting(cluster_state, clock)
        self._cycles = CycleRunner(cluster_state, observer, self._pending_messages, clock, load)
        # Calls about refused decisions, and when they are due (monotonic seconds).
        self._later = PostponedCalls()
        self._store_pause_until = 0.0

    # --- called by other tasks --------------------------------------------------------------------

    def post(self, call: Callable[[], object]) -> None:
        """Have the control loop make this call. May be used from any task of this event loop."""
        self._inbox.append(call)
        self._wake.set()

    def begin(self, term: Acting) -> asyncio.Future[None]:
        """Act from now on. The future fails with the store's error when the term cannot go on."""
        # The term is set before anything is marked, so that all marks from here on are for this term.
        self._term = term
        self._failed = asyncio.get_running_loop().create_future()
        # Wait reasons that are not written yet were found under another term.
        self._pending_messages.clear()
        self._reconciler.begin()
        self._later.clear()
        self._engine.overadmission.begin_term(now=self._clock.now())
        self.cluster_state.placed_pods.forget_promises()
        self.cluster_state.mark_all()
        self._board.mark_all()
        self._wake.set()
        return self._failed

    def fail(self, error: Exception) -> None:
        """End the present term with this error. Does nothing if there is no term."""
        # Only the first error of a term counts; later ones are consequences of it.
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
        self._term = None

    def end(self) -> None:
        """Stop acting."""
        self._term = None
        self._load.is_behind = False
        # No task awaits this future any more. A late fail() must not reach that of the next term.
        self._failed = None
        # A follower shows the cluster as it is. Posted, not called, because the term may
        # still await the store.
        self.forget_all()

    def forget_all(self) -> None:
        """Take back all decisions that the cluster does not show: no term carries them out any more."""
        self.post(lambda: self._engine.forget_all(now=self._clock.now()))

    async def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return the result of a call that the control loop makes after all calls posted before."""
        # The control loop makes the call, so that the caller sees a consistent state
        # and changes nothing itself.
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            try:
                answered.set_result(question())
            except asyncio.InvalidStateError:
                pass  # The caller was cancelled.
            except Exception as error:
                answered.set_exception(error)

        self.post(answer)
        return await answered

    def forget(self, decision: DecisionId) -> None:
        """Take back an admission that was not carried out. May be used from any task of this event loop."""
        self.post(partial(self._forget, decision))

    def forget_later(self, decision: DecisionId) -> None:
        """Take back an admission whose write was refused, after a growing pause: a retry may be refused too.

        Until then the Workload keeps its quota, so that no Workload gets it that may not be able to use it.
        """
        self.call_later(decision, partial(self._forget, decision))

    def withdraw(self, decision: DecisionId) -> None:
        """Take back an eviction or a reassignment that was not carried out."""
        self.post(partial(self._withdraw, decision))

    def withdraw_later(self, decision: DecisionId) -> None:
        """Take back an eviction or a reassignment whose write was refused, after a growing pause."""
        self.call_later(decision, partial(self._withdraw, decision), is_admission=False)

    def call_later(self, decision: DecisionId, call: Call, *, is_admission: bool = True) -> None:
        """Make a call about a decision after a growing pause, unless the term ends before."""
        # The pause grows per Workload and holds for all its writes.
        rest = self._reconciler.fail(ObjectTarget("Workload", decision.key.namespace, decision.key.name))
        self._later.put(decision, call, at=self._clock.monotonic() + rest, is_admission=is_admission)
        self._wake.set()

    def _forget(self, id_: DecisionId) -> None:
        self._engine.forget(id_.key, id_.uid, now=self._clock.now(), decided_on=id_.resource_version)

    def _withdraw(self, decision: DecisionId) -> None:
        self._engine.withdraw(decision.key, decision.uid, now=self._clock.now())

    def report_error(self) -> None:
        """Log and count a bug that affected one object. Call it from within the `except` block."""
        log.exception("control-loop-error")
        self._observer.note_error()

    def report_later(self, decision: Wait) -> None:
        """Report again why a Workload waits, after a growing pause: the write was refused."""
        target = ObjectTarget("Workload", decision.key.namespace, decision.key.name)
        self._pending_messages.report_in(decision, self._reconciler.fail(target))
        self._wake.set()

    def take_answer(self, write: Write, result: Result) -> None:
        """Take in the result of a write. Called by the executor's tasks."""
        self.post(lambda: self._reconciler.take_result(write, result))

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is queued or in flight, or was refused a moment ago."""
        # In observe mode too: a status that rests after a refusal is left alone.
        return self._term is not None and self._reconciler.is_postponed(self._term, target)

    # --- the task ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take in events and act until cancelled."""
        while True:
            # Cleared first, so that whatever is posted from here on starts another round.
            self._wake.clear()
            self.progress.begin()
            # Decisions are made on everything that is known, so the inbox comes first.
            await self._take_in()
            # A follower takes in events as well, but only a term acts, and only after all first lists.
            if self._term is None or not self.is_synced or await self._act_guarded(self._term):
                self.progress.finish()
            await self._rest()

    async def _take_in(self) -> None:
        pace = YieldBudget(self._clock)
        # Only the calls that are there now: more may come as fast as these are made. They have set `_wake`.
        for _ in range(len(self._inbox)):
            self._guarded(self._inbox.popleft())
            await pace.yield_if_due()
        # Only after the first lists: while they come in, each object would restart this work.
        try:
            while self.is_synced and self._engine.catch_up(now=self._clock.now()):
                await pace.yield_if_due()
        except Exception:
            self.report_error()
            # As after a failed act: the next round goes on with the Workload after the one that failed.
            await asyncio.sleep(STORE_PAUSE_SECONDS)
            self._wake.set()

    def _guarded(self, call: Callable[[], object]) -> None:
        """Make a call about one object. A bug in it affects only that object."""
        try:
            call()
        except Exception:
            self.report_error()

    async def _act_guarded(self, term: Acting) -> bool:
        """Act once. A store that refuses this leader ends the term; other errors are logged.

        Return False after an error in this code, which has left work undone.
        """
        try:
            await self._act(term)
        except (StoreUnreachable, StoreRefused) as error:
            log.warning("store-required", error=error)
            # The leader itself is fine: it waits and tries again, as `require_store` asks.
            self._store_pause_until = self._clock.monotonic() + STORE_PAUSE_SECONDS
        except ReservationError as error:
            # A call of a term that has ended meanwhile says nothing about the present one.
            if self._term is term:
                self.fail(error)
        except Exception:
            self.report_error()
            # Without a pause, a bug that repeats would make the loop spin.
            await asyncio.sleep(STORE_PAUSE_SECONDS)
            # The work that was left undone is not announced again.
            self._wake.set()
            return False
        return True

    async def _act(self, term: Acting) -> None:
        # Statuses come last, because each of the other steps changes them.
        self._note_due()
        self._engine.usage_sampling.sample(now=self._clock.now())
        # Before the marks: a look at a Workload marks the pods that it stands for.
        await self._sweep(term)
        await self._reconcile(term)
        await term.flush()
        await self._repair(term)
        await self._second_pass(term)
        await self._decide(term)
        self._load.is_behind = term.writer.is_behind
        await self._report_waits(term)
        self._report_faults(term)
        if self._term is term:
            self._reconciler.keep_what_is_in_use(term)
            self._reconciler.give_up_pods(term)
        await self._write_statuses(term)

    async def _rest(self) -> None:
        """Sleep until something happens or the next timer is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_to_next()):
                await self._wake.wait()

    def _seconds_to_next(self) -> float | None:
        term = self._term
        # A replica that does not act waits only for its inbox.
        if term is None or not self.is_synced:
            return None
        now, monotonic = self._clock.now(), self._clock.monotonic()
        waits = [
            *self._reconciler.seconds_to_next(),
            _seconds_until(self._engine.usage_sampling.next_at(), now),
            _seconds_until(self._later.next_at(), monotonic),
            self._board.seconds_to_next(monotonic),
            self._pending_messages.seconds_to_next(),
            self._forecasting.seconds_to_next(),
            WATCH_SECONDS if term.unconfirmed else None,
            term.seconds_to_flush(),
            *self._waits_to_decide(term, now),
        ]
        soonest = min((wait for wait in waits if wait is not None), default=None)
        # Never zero: the next round handles a deadline that has passed, and a loop that does not sleep would
        # starve the other tasks.
        return None if soonest is None else max(0.001, soonest)

    def _waits_to_decide(self, term: Acting, now: float) -> tuple[float | None, ...]:
        # While the cycle is held up, a back-off that ends changes nothing.
        if self._is_held_up(term):
            return (STORE_PAUSE_SECONDS,)
        # In observe mode nothing is repaired.
        repair_at = self._engine.overadmission.next_at() if term.is_alone else None
        return (
            _seconds_until(self._engine.next_wake_at(), now),
            _seconds_until(self._engine.next_second_pass_at(), now),
            _seconds_until(repair_at, now),
            _seconds_until(self._cycles.pace.put_off_until, self._clock.monotonic()),
        )

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, term: Acting) -> None:
        marks, pods, reconciler = self.cluster_state.marks, self.cluster_state.pods, self._reconciler
        await self._look_at_marked(
            term, marks.workloads_marked, marks.take_workload, reconciler.look_at_workload
        )
        await self._look_at_marked(term, marks.jobs_marked, marks.take_job, reconciler.look_at_job)
        await self._look_at_marked(term, pods.units_marked, pods.take_dirty, reconciler.look_at_pods)
        if marks.workloads_marked or marks.jobs_marked or pods.units_marked:
            self._wake.set()

    async def _look_at_marked(
        self, term: Acting, marked: int, take: Callable[[], Key | None], look: Callable[[Acting, Key], None]
    ) -> None:
        """Look at the first `marked` objects: those that were marked when the pass began.

        Others may be marked as fast as these are looked at, where other programs create objects and this one
        gets little of the processor. They are looked at in the next turn, so that this one comes to decide.
        """
        pace = YieldBudget(self._clock)
        for _ in range(marked):
            # Only the present term takes marks: a new term marks everything once.
            if self._term is not term or (key := take()) is None:
                return
            self._guarded(partial(look, term, key))
            # Events are taken in between two looks, so that later looks do not see old objects.
            if await pace.yield_if_due():
                self.progress.go_on()
                await self._take_in()

    async def _sweep(self, term: Acting) -> None:
        """Look at the next Workloads of a pass over all of them. The next turns go on with it."""
        pace, ends_at = YieldBudget(self._clock), self._clock.monotonic() + SWEEP_SECONDS
        while self._term is term and (key := self.cluster_state.marks.take_swept()) is not None:
            self._guarded(partial(self._reconciler.look_at_workload, term, key))
            if self._clock.monotonic() > ends_at:
                self._wake.set()
                return
            if await pace.yield_if_due():
                await self._take_in()

    def _note_due(self) -> None:
        """Handle what is due: deadlines, pauses that are over, and decisions to be taken back."""
        self._reconciler.note_due()
        for call in self._later.take_due(self._clock.monotonic()):
            self._guarded(call)

    # --- deciding ---------------------------------------------------------------------------------

    async def _second_pass(self, term: Acting) -> None:
        """Find other nodes for Workloads that have lost some."""
        if not self._may_decide(term):
            return
        # Before the cycle, which could otherwise give the spare nodes to another Workload.
        decisions = self._engine.second_pass(now=self._clock.now())
        if decisions:
            self._observer.note_second_pass(decisions)
            await term.carry_out([one for one in decisions if not isinstance(one, Unreplaced)])

    async def _repair(self, term: Acting) -> None:
        """Evict Workloads that another writer has admitted beyond the quota."""
        if not (term.is_alone and self._may_decide(term)):
            return
        evictions = self._engine.overadmission.evict_excess(now=self._clock.now())
        if evictions:
            self._observer.note_repair(evictions)
            await term.carry_out(evictions)

    async def _decide(self, term: Acting) -> None:
        pace = YieldBudget(self._clock)
        turn_ends_at = self._clock.monotonic() + TURN_SECONDS
        while self._may_begin_cycle(term) and self._engine.wake_heads(now=self._clock.now()):
            if self._clock.monotonic() > turn_ends_at:
                # The rest is done in the next round, which starts at once.
                self._wake.set()
                break
            decisions = await self._cycles.run(is_current=lambda: self._term is term)
            if decisions is not None:
                await term.carry_out(decisions)
            # The store and the other tasks have run; what came in meanwhile may change the next cycle.
            await pace.yield_if_due()
            await self._take_in()
            await self._reconcile(term)
            if self._term is term:
                # The reservation of a Workload that returns to the queue is released before the next cycle.
                await term.flush()
        # While no cycle may run, it is not known which other Workloads need the quota.
        has_doubtful = self._may_decide(term) and self.cluster_state.pending_evictions.settle()
        # Where the next cycle is put off, the turn that begins it looks at them first.
        # Not asked again whether a cycle may begin: one that was put off above must not be forgotten.
        if has_doubtful and self._cycles.pace.put_off_until is None:
            self._wake.set()
        self._observer.note_pause(term.is_paused, term.unconfirmed)
        self._explain(term)
        # Expected starts are computed in quiet moments, slice by slice.
        if self._is_quiet(term) and self._forecasting.go_on():
            self._wake.set()

    def _is_quiet(self, term: Acting) -> bool:
        return self._term is term and not self._engine.wake_heads(now=self._clock.now())

    def _explain(self, term: Acting) -> None:
        """In a quiet moment, collect the wait reasons of Workloads that no cycle has tried."""
        # Only while no answer is outstanding, because the next answer could make the reason outdated.
        if term.unconfirmed or not self._is_quiet(term):
            return
        waits = self._engine.explain(EXPLAINED_AT_ONCE)
        self._pending_messages.collect(waits, are_tried=False)
        # A full batch may mean that there are more.
        if len(waits) == EXPLAINED_AT_ONCE:
            self._wake.set()

    def _may_begin_cycle(self, term: Acting) -> bool:
        return self._may_decide(term) and self._cycles.pace.may_begin(is_behind=term.writer.is_behind)

    def _may_decide(self, term: Acting) -> bool:
        return self._term is term and not self._is_held_up(term)

    def _is_held_up(self, term: Acting) -> bool:
        return term.is_paused or self._clock.monotonic() < self._store_pause_until

    async def _report_waits(self, term: Acting) -> None:
        """Report the wait reasons that are due, except of Workloads that were admitted meanwhile."""
        pace = YieldBudget(self._clock)
        while self._term is term and (decision := self._pending_messages.take_due()) is not None:
            # It was admitted while its reason waited to be reported.
            if self._engine.workloads.is_holding(decision.key):
                continue
            match term.writer.report_wait(decision):
                case WaitReport.WRITTEN:
                    self._pending_messages.note_written()
                case WaitReport.PUT_OFF:
                    # Report it later, with the reason that is valid then.
                    self._pending_messages.report_in(decision, REWORD_AFTER_SECONDS)
            await pace.yield_if_due()

    def _report_faults(self, term: Acting) -> None:
        """Report objects that break a rule, on the objects themselves."""
        # One object at a time, because each report may end the term.
        while self._term is term and (
            actions := self.cluster_state.inspection.take_unreported(now=self._clock.now())
        ):
            self._reconciler.do(term, actions)

    async def _write_statuses(self, term: Acting) -> None:
        pace = YieldBudget(self._clock)
        if self._term is not term:
            return
        for write in self._board.due(now=self._clock.now(), monotonic=self._clock.monotonic()):
            if write is not None:
                # After decisions and reconcilers: a status may be late.
                term.writer.submit(write)
            await pace.yield_if_due()
            if self._term is not term:
                return


def _seconds_until(at: float | None, now: float) -> float | None:
    return None if at is None else at - now
