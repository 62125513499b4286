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
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.loop.forecasting import Forecasting
from admission.controller.loop.pending_messages import REWORD_AFTER_SECONDS, PendingMessages
from admission.controller.loop.reconcile_queue import Reconciler
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.metrics.decision_recorder import DecisionRecorder
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.runtime.timers import Timers
from admission.controller.runtime.yield_budget import YieldBudget
from admission.controller.writer.acting import Acting
from admission.controller.writer.executor import ObjectTarget, Result
from admission.decisions.api_writes import Write
from admission.decisions.decision import Admit, Decision, DecisionId, Plan, Unreplaced, Wait
from queues.reservations.reservations import ReservationError, StoreRefused, StoreUnreachable

Answer = TypeVar("Answer")
Key = TypeVar("Key")

log = Log("berth.brain")

# How often the age of what is not confirmed is looked at.
WATCH_SECONDS = 1.0
# So many are told at once why they wait though nobody tried them; the next as many after another turn.
EXPLAINED_AT_ONCE = 50
# After so long without a pause the cycle lets all else have its turn: what is told, statuses, deadlines.
TURN_SECONDS = 0.25
# How long the cycle rests after the store did not serve.
STORE_PAUSE_SECONDS = 0.25


class ControlLoop:
    """Takes in, reconciles, decides."""

    def __init__(
        self,
        cluster_state: ClusterState,
        board: StatusWriter,
        decision_recorder: DecisionRecorder,
        clock: Clock,
    ) -> None:
        self.cluster_state = cluster_state
        self.is_synced = False
        self._board = board
        self._decision_recorder = decision_recorder
        self._clock = clock
        # Calls and not values: who posts knows what is to be done, and the brain when.
        self._inbox: deque[Callable[[], object]] = deque()
        self._wake = asyncio.Event()
        self._term: Acting | None = None
        self._failed: asyncio.Future[None] | None = None
        self._reconciler = Reconciler(cluster_state, board, decision_recorder, clock)
        self._pending_messages = PendingMessages(clock)
        self._forecasting = Forecasting(cluster_state, clock)
        # Calls about refused decisions, and when they are made (monotonic).
        self._later: Timers[DecisionId] = Timers()
        self._calls: dict[DecisionId, Callable[[], None]] = {}
        self._store_pause_until = 0.0

    # --- what others call -------------------------------------------------------------------------

    def post(self, call: Callable[[], object]) -> None:
        """Let the brain make this call; from any task of this loop."""
        self._inbox.append(call)
        self._wake.set()

    def begin(self, term: Acting) -> asyncio.Future[None]:
        """Act from now on; the future fails with the store's error when the term cannot go on."""
        # Before anything is marked: what is marked from here on is for this term.
        self._term = term
        self._failed = asyncio.get_running_loop().create_future()
        # What was about to be told was found out under another term.
        self._pending_messages.clear()
        self._reconciler.begin()
        self._later.clear()
        self._calls.clear()
        # What the cluster shows at the beginning of a term, earlier leaders have weighed.
        self.cluster_state.engine.weigh_all(now=self._clock.now())
        self.cluster_state.ground.forget_promises()
        self.cluster_state.mark_all()
        self._board.mark_all()
        self._wake.set()
        return self._failed

    def fail(self, error: Exception) -> None:
        """End the present term with this error; nothing happens where there is none."""
        # Only the first error of a term counts; later ones are its consequences.
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
        self._term = None

    def end(self) -> None:
        """Act no longer."""
        self._term = None
        # No longer awaited by anybody; a late fail() must not reach the next term's future.
        self._failed = None
        # Who does not lead shows the cluster as it is. Not at once: the term may be asking the store still.
        self.forget_all()

    def forget_all(self) -> None:
        """Take back whatever was decided and the cluster does not show: nobody carries it out any more."""
        self.post(lambda: self.cluster_state.engine.forget_all(now=self._clock.now()))

    async def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return what a call gives that the brain makes in its turn, after all that was posted before."""
        # The answer is given in the brain's turn, so that whoever asks sees a consistent state
        # and changes nothing himself.
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
        # The pause grows per Workload and is shared with its other writes: one that is refused
        # rests as a whole.
        rest = self._reconciler.fail(ObjectTarget("Workload", decision.key.namespace, decision.key.name))
        self._later.put(decision, self._clock.monotonic() + rest)
        # The latest call counts: of two about one decision the earlier one is outdated.
        self._calls[decision] = call
        self._wake.set()

    def _forget(self, decision: DecisionId) -> None:
        key, uid, version = decision
        self.cluster_state.engine.forget(key, uid, now=self._clock.now(), decided_on=version)

    def stumbled(self) -> None:
        """Log and count a fault of our own that cost one object its turn; called from its `except`."""
        log.exception("brain-stumbled")
        self._decision_recorder.note_stumble()

    def tell_later(self, decision: Wait) -> None:
        """Say again why a Workload waits, after a growing pause: the write was refused."""
        target = ObjectTarget("Workload", decision.key.namespace, decision.key.name)
        self._pending_messages.tell_in(decision, self._reconciler.fail(target))
        self._wake.set()

    def finished(self, write: Write, result: Result) -> None:
        """Take note of a write's result; called by the executor's tasks."""
        self.post(lambda: self._reconciler.take_result(write, result))

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is on its way, or was refused a moment ago."""
        # Observers too: a status that rests after a refusal is left alone whoever acts.
        return self._term is not None and self._reconciler.is_left_alone(self._term, target)

    # --- the task ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            # Cleared before looking, so that whatever is posted from here on wakes the next round.
            self._wake.clear()
            # First of all: decisions are made on everything that is known.
            await self._take_in()
            # Also a follower takes in, so that it is warm when it leads; it acts only once all
            # first lists have come.
            if self._term is not None and self.is_synced:
                await self._act_guarded(self._term)
            await self._rest()

    async def _take_in(self) -> None:
        pace = YieldBudget(self._clock)
        while self._inbox:
            self._guarded(self._inbox.popleft())
            await pace.breathe()
        # Only what has synced: while lists come in, each next object would have it done again.
        while self.is_synced and self.cluster_state.engine.catch_up(now=self._clock.now()):
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
            # Nothing is wrong with this leader: it waits and tries again, as `require_store` asks.
            self._store_pause_until = self._clock.monotonic() + STORE_PAUSE_SECONDS
        except ReservationError as error:
            # A call of a term that has ended meanwhile says nothing about the present one.
            if self._term is term:
                self.fail(error)
        except Exception:
            self.stumbled()
            # A fault that stands would otherwise turn the loop as fast as it can.
            await asyncio.sleep(STORE_PAUSE_SECONDS)
            # What was left undone is not announced again.
            self._wake.set()

    async def _act(self, term: Acting) -> None:
        # In this order: what is due, what reconcilers need, what the store must hear, repairs, then
        # new decisions. Statuses last, since they change with each of those.
        self._note_due()
        self.cluster_state.engine.sample_usage(now=self._clock.now())
        await self._reconcile(term)
        await term.flush()
        await self._repair(term)
        await self._second_pass(term)
        await self._decide(term)
        await self._tell_waits(term)
        self._tell_faults(term)
        if self._term is term:
            self._reconciler.keep_what_is_in_use(term)
        await self._write_statuses(term)

    async def _rest(self) -> None:
        """Sleep until something happens or the next timer is due."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_to_next()):
                await self._wake.wait()

    def _seconds_to_next(self) -> float | None:
        term = self._term
        # Who does not act has nothing to wait for but the inbox.
        if term is None or not self.is_synced:
            return None
        now, monotonic = self._clock.now(), self._clock.monotonic()
        waits = [
            *self._reconciler.seconds_to_next(),
            _seconds_until(self.cluster_state.engine.next_sample_at(), now),
            _seconds_until(self._later.next_at(), monotonic),
            self._board.seconds_to_next(monotonic),
            self._pending_messages.seconds_to_next(),
            self._forecasting.seconds_to_next(),
            WATCH_SECONDS if term.unconfirmed else None,
            *self._waits_to_decide(term, now),
        ]
        soonest = min((wait for wait in waits if wait is not None), default=None)
        # Never zero: a deadline in the past is met by the next round, and a loop without sleep
        # would starve the others.
        return None if soonest is None else max(0.001, soonest)

    def _waits_to_decide(self, term: Acting, now: float) -> tuple[float | None, ...]:
        # While the cycle is held up, back-offs that end change nothing.
        if self._is_held_up(term):
            return (STORE_PAUSE_SECONDS,)
        engine = self.cluster_state.engine
        # Who only observes repairs nothing.
        repair_at = engine.next_repair_at() if term.is_alone else None
        return _seconds_until(engine.next_wake_at(), now), _seconds_until(repair_at, now)

    # --- reconciling ------------------------------------------------------------------------------

    async def _reconcile(self, term: Acting) -> None:
        cluster_state, reconciler = self.cluster_state, self._reconciler
        await self._look_at_marked(term, cluster_state.marks.take_workload, reconciler.look_at_workload)
        await self._look_at_marked(term, cluster_state.marks.take_job, reconciler.look_at_job)
        await self._look_at_marked(term, cluster_state.pods.take_dirty, reconciler.look_at_pods)

    async def _look_at_marked(
        self, term: Acting, take: Callable[[], Key | None], look: Callable[[Acting, Key], None]
    ) -> None:
        pace = YieldBudget(self._clock)
        # A mark is taken by the term that can act on it alone: a new one marks everything, once.
        while self._term is term and (key := take()) is not None:
            self._guarded(partial(look, term, key))
            # Between two looks whatever has come in is taken in, so that later looks do not see old objects.
            if await pace.breathe():
                await self._take_in()

    def _note_due(self) -> None:
        """Take note of deadlines that have come, rests that are over, and decisions to be taken back."""
        self._reconciler.note_due()
        for decision in self._later.take_due(self._clock.monotonic()):
            self._guarded(self._calls.pop(decision))

    # --- deciding ---------------------------------------------------------------------------------

    async def _second_pass(self, term: Acting) -> None:
        """Find other nodes for Workloads that have lost some."""
        if not self._may_decide(term):
            return
        # Before the cycle: places of lost nodes must not be given to somebody else meanwhile.
        decisions = self.cluster_state.engine.second_pass(now=self._clock.now())
        if decisions:
            self._decision_recorder.note_second_pass(decisions)
            await term.carry_out([one for one in decisions if not isinstance(one, Unreplaced)])

    async def _repair(self, term: Acting) -> None:
        """Evict what another writer has admitted beyond the quota."""
        if not (term.is_alone and self._may_decide(term)):
            return
        evictions = self.cluster_state.engine.repair(now=self._clock.now())
        if evictions:
            self._decision_recorder.note_repair(evictions)
            await term.carry_out(evictions)

    async def _decide(self, term: Acting) -> None:
        engine, pace = self.cluster_state.engine, YieldBudget(self._clock)
        turn_ends_at = self._clock.monotonic() + TURN_SECONDS
        while self._may_decide(term) and engine.has_heads(now=self._clock.now()):
            if self._clock.monotonic() > turn_ends_at:
                # What is left over is done in the next round, which comes at once.
                self._wake.set()
                break
            await self._decide_once(term)
            # The store and the loop have had their turn; what came in meanwhile may change the next cycle.
            await pace.breathe()
            await self._take_in()
            await self._reconcile(term)
            if self._term is term:
                # A Workload that comes back finds its old reservation gone.
                await term.flush()
        # While nothing may be decided, nobody has found out who else needs their quota.
        if self._may_decide(term) and self.cluster_state.pending_evictions.settle():
            self._wake.set()
        self._decision_recorder.note_pause(term.is_paused, term.unconfirmed)
        self._explain(term)
        # Expected starts are worked out in quiet moments, slice by slice.
        if self._is_quiet(term) and self._forecasting.go_on():
            self._wake.set()

    def _is_quiet(self, term: Acting) -> bool:
        return self._term is term and not self.cluster_state.engine.has_heads(now=self._clock.now())

    def _explain(self, term: Acting) -> None:
        """In a quiet moment, note why those wait whom no cycle has tried."""
        # Only when nothing is under way: what is told now would be out of date with the next answer.
        if term.unconfirmed or not self._is_quiet(term):
            return
        waits = self.cluster_state.engine.explain(EXPLAINED_AT_ONCE)
        self._pending_messages.collect(waits)
        # As many as that may mean that there are more.
        if len(waits) == EXPLAINED_AT_ONCE:
            self._wake.set()

    async def _decide_once(self, term: Acting) -> None:
        began, pace, engine = self._clock.monotonic(), YieldBudget(self._clock), self.cluster_state.engine
        # Here, too, changes wait in the inbox: each would have the look at the promises begin anew.
        while self._term is term and engine.settle(now=self._clock.now()):
            await pace.breathe()
        if self._term is not term:
            return
        cycle = engine.begin_cycle(now=self._clock.now())
        try:
            # The inbox stays closed meanwhile: a change of what is known would end the cycle undecided.
            while cycle.step():
                # The snapshot's trials are taken back for the pause, so that readers see the state as it is.
                if pace.is_over:
                    cycle.pause()
                    await pace.breathe()
            if self._term is not term:
                # Whatever was decided is taken back by who began or ended the term.
                return
            decisions = tuple(cycle.decisions)
            self._decision_recorder.note_cycle(decisions, self._clock.monotonic() - began)
            self._note_time(decisions)
            self._pending_messages.collect(decisions)
        except Exception:
            # Nobody else knows of them: what is assumed now would be assumed for ever.
            for decision in cycle.decisions:
                if not isinstance(decision, Wait | Plan):
                    self._forget(decision.id)
            raise
        await term.carry_out(decisions)

    def _note_time(self, decisions: Iterable[Decision]) -> None:
        engine = self.cluster_state.engine
        self._decision_recorder.note_time(engine.take_kept(), engine.take_measured())
        for decision in decisions:
            if isinstance(decision, Admit) and engine.is_backfilled(decision.key):
                # Asked of the engine and not of the decision: a lease is given by the
                # planner after the decision.
                self._decision_recorder.note_backfilled(decision.admission.cluster_queue)
            elif isinstance(decision, Plan):
                # What is promised is told by annotations, which the reconciler keeps in step.
                self.cluster_state.marks.workload(decision.key)

    def _may_decide(self, term: Acting) -> bool:
        return self._term is term and not self._is_held_up(term)

    def _is_held_up(self, term: Acting) -> bool:
        return term.is_paused or self._clock.monotonic() < self._store_pause_until

    async def _tell_waits(self, term: Acting) -> None:
        """Say why they wait to those that have waited a moment; who was admitted meanwhile need not know."""
        pace = YieldBudget(self._clock)
        for decision in self._pending_messages.take_due():
            if self._term is not term:
                return
            # It got its quota while its reason waited to be told.
            if self.cluster_state.engine.is_holding(decision.key):
                continue
            if not term.tell(decision):
                # Not worth a write just now: it is told later, with the words that hold then.
                self._pending_messages.tell_in(decision, REWORD_AFTER_SECONDS)
            await pace.breathe()

    def _tell_faults(self, term: Acting) -> None:
        """Tell the owners of objects that break a rule."""
        # One owner at a time, since each telling may end the term.
        while self._term is term and (
            actions := self.cluster_state.inspection.take_untold(now=self._clock.now())
        ):
            self._reconciler.do(term, actions)

    async def _write_statuses(self, term: Acting) -> None:
        pace = YieldBudget(self._clock)
        if self._term is not term:
            return
        for write in self._board.due(now=self._clock.now(), monotonic=self._clock.monotonic()):
            if write is not None:
                # Behind decisions and reconcilers: a status may be late.
                term.submit(write, priority=3)
            await pace.breathe()
            if self._term is not term:
                return


def _seconds_until(at: float | None, now: float) -> float | None:
    return None if at is None else at - now
