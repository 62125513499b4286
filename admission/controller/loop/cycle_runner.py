"""One scheduling cycle at a time, in steps that make way for other tasks, and what it tells the observers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.loop.cycle_pace import CyclePace
from admission.controller.loop.observer import LoopObserver
from admission.controller.loop.pending_messages import PendingMessages
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.yield_budget import YieldBudget
from admission.decisions.decision import Admit, Decision, Plan, Wait
from api.kube.report_budget import WriteLoad


class CycleRunner:
    """Runs cycles of the engine, and knows when the next may begin."""

    def __init__(
        self,
        cluster_state: ClusterState,
        observer: LoopObserver,
        pending_messages: PendingMessages,
        clock: Clock,
        load: WriteLoad,
    ) -> None:
        self._engine = cluster_state.engine
        self._marks = cluster_state.marks
        self._observer = observer
        self._pending_messages = pending_messages
        self._clock = clock
        self._load = load
        self.pace = CyclePace(clock)

    async def run(self, *, is_current: Callable[[], bool]) -> tuple[Decision, ...] | None:
        """Run one cycle and return what it decided. What it admits is assumed.

        `is_current` says whether the term is still the present one. None where it is not: the call that began
        or ended a term takes back all decisions. A bug in the cycle passes through; what it had decided is
        taken back then.
        """
        began, pace = self._clock.monotonic(), YieldBudget(self._clock)
        # The inbox is not taken in here: each change would restart the check of the promises.
        while is_current() and self._engine.settle(now=self._clock.now()):
            await pace.yield_if_due()
        if not is_current():
            return None
        cycle = self._engine.begin_cycle(now=self._clock.now())
        try:
            # The inbox is not taken in meanwhile: a change of the state would end the cycle undecided.
            while cycle.step():
                # The pause takes back the trial changes of the snapshot, so that readers see the
                # state as it is.
                if pace.is_over:
                    cycle.pause()
                    await pace.yield_if_due()
            if not is_current():
                return None
            decisions = tuple(cycle.decisions)
            self._observer.note_cycle(decisions, self._clock.monotonic() - began)
            self._note_time(decisions)
            self._pending_messages.collect(decisions)
            self.pace.note_cycle(self._engine.comparable_queues())
            self._load.decided += sum(not isinstance(decision, Wait | Plan) for decision in decisions)
        except Exception:
            # The decisions are known only here: what they assume in the engine would stay assumed forever.
            for decision in cycle.decisions:
                if not isinstance(decision, Wait | Plan):
                    id_ = decision.id
                    now, version = self._clock.now(), id_.resource_version
                    self._engine.forget(id_.key, id_.uid, now=now, decided_on=version)
            raise
        return decisions

    def _note_time(self, decisions: Iterable[Decision]) -> None:
        promises = self._engine.promises
        self._observer.note_promises(promises.take_kept(), promises.take_measured())
        self._observer.note_starts(promises.take_start_outcomes())
        for decision in decisions:
            if isinstance(decision, Admit) and promises.is_backfilled(decision.key):
                # The engine knows, not the decision: the planner gives the lease after the decision.
                self._observer.note_backfilled(decision.admission.cluster_queue)
            elif isinstance(decision, Plan):
                # Annotations show a promise, and the reconciler keeps them up to date.
                self._marks.workload(decision.key)
