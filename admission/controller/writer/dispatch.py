"""The orders of a term that need no reservation: what reconcilers ask, waits, evictions, reassignments.

`admission.controller.writer.leader_term` sends admissions, which take quota, and keeps account with the
store. What stands here takes none: an eviction is heard of when the object shows it, a reassignment keeps its
quota, a reason is only told. So an order of this kind is never unconfirmed and never given back to the store;
refused, it is taken back (`forget_later`) or said again (`tell_later`), both after a pause.

Every order on a decision carries its `rebuild`: where the object has changed since, the executor asks with
the fresh bytes whether the decision still stands. It does not (None) once the object says something that the
decision did not know, for then whoever reads that decides anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.failpoints import Failpoint, Step
from admission.controller.writer.executor import Executor, ObjectTarget, Refused, Result, WriteOrder, Written
from admission.decisions.api_writes import Purpose, Write
from admission.decisions.decision import DecisionId, Evict, Reassign, Wait
from admission.reconcile.workload_writes import write_of
from api.eviction import standing_request
from api.workload import Workload, WorkloadKey

# A Workload that merely waits on is not written again for a new wording of the same reason sooner than this,
# and all of them together not more often than this: what they wait for may change with every cycle.
REWORD_SECONDS = 60.0
REWORD_EVERY_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What the term needs of the one task that owns the state.

    `look_up` returns a Workload and its bytes as last seen; `to_workload` reads bytes (None: unreadable);
    `forget` tells the engine that a decision did not come about, `forget_later` the same after a pause, and
    `call_later` makes a call after such a pause; `tell_later` has a Workload told again why it waits;
    `finished` reports every result, `stumbled` a fault of our own, from within its `except`.
    """

    look_up: Callable[[WorkloadKey], tuple[Workload, bytes] | None]
    to_workload: Callable[[bytes], Workload | None]
    forget: Callable[[DecisionId], None]
    forget_later: Callable[[DecisionId], None]
    call_later: Callable[[DecisionId, Callable[[], None]], None]
    tell_later: Callable[[Wait], None]
    finished: Callable[[Write, Result], None]
    stumbled: Callable[[], None]


class Dispatch:
    """The sending side of a term."""

    def __init__(self, executor: Executor, clock: Clock, *, hooks: Hooks, failpoint: Failpoint) -> None:
        self.executor = executor
        self._clock = clock
        self._hooks = hooks
        self._failpoint = failpoint
        self._next_reword_at = 0.0

    def submit(self, write: Write, *, priority: int = 1) -> None:
        """Send a write that a reconciler asked for; a conflict hands the object back to be looked at anew."""
        self.executor.submit(
            WriteOrder(
                write=write,
                on_result=lambda result: self._hooks.finished(write, result),
                priority=priority,
                before=self._reaching(_BEFORE.get(write.purpose)),
                after=self._reaching(_AFTER.get(write.purpose)),
            )
        )

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is on its way."""
        return self.executor.is_busy(target)

    def tell(self, decision: Wait) -> bool:
        """Write why a Workload waits, unless it says so already. Returns False where that has to wait."""
        seen = self._hooks.look_up(decision.key)
        if seen is None or seen[0].uid != decision.uid:
            return True
        if not self._is_worth_telling(decision, seen[0]):
            return False
        write = write_of(decision, seen[1], now=self._clock.now())
        if write is not None:
            self._submit_wait(decision, write)
        return True

    def _submit_wait(self, decision: Wait, write: Write) -> None:
        def rebuild(raw: bytes) -> Write | None:
            workload = self._hooks.to_workload(raw)
            if workload is None or not is_pending(workload, decision.uid):
                return None
            # The version is the one that was just read: the write is guarded by it.
            fresh = structs.replace(decision, resource_version=workload.resource_version)
            return write_of(fresh, raw, now=self._clock.now())

        def answered(result: Result) -> None:
            if isinstance(result, Refused):
                self._hooks.tell_later(decision)
            self._hooks.finished(write, result)

        self.executor.submit(WriteOrder(write=write, on_result=answered, rebuild=rebuild, priority=2))

    def _is_worth_telling(self, decision: Wait, workload: Workload) -> bool:
        """A new reason is; a new wording of the same one only after a while (one write, not one a cycle)."""
        told = workload.conditions.get("QuotaReserved")
        if told is None or told.status or told.reason != decision.reason:
            return True
        if told.message == decision.message:
            return True
        now = self._clock.monotonic()
        # Told within the last minute, or the executor has other things to do: later.
        if self._clock.now() - told.at <= REWORD_SECONDS or self.executor.backlog:
            return False
        if now < self._next_reword_at:
            return False
        self._next_reword_at = now + REWORD_EVERY_SECONDS
        return True

    def _submit_eviction(self, decision: Evict) -> None:
        seen = self._hooks.look_up(decision.key)
        write = write_of(decision, seen[1], now=self._clock.now()) if seen is not None else None
        if write is None:
            self._hooks.forget(decision.id)
            return

        def rebuild(raw: bytes) -> Write | None:
            workload = self._hooks.to_workload(raw)
            if workload is None or workload.uid != decision.uid:
                return None
            # There is nothing left to evict it from.
            if workload.is_finished or workload.is_evicted or not workload.has_quota_reservation:
                return None
            if decision.save_by is not None and standing_request(workload) is not None:
                # It has been asked already, and its time runs from then.
                return None
            # Made anew from the fresh object, because its status may have other checks and gates by now.
            fresh = replace(decision, resource_version=workload.resource_version)
            return write_of(fresh, raw, now=self._clock.now())

        def answered(result: Result) -> None:
            # Moot or vanished, the object as it is now says who holds quota; `finished` or the
            # watch takes it in.
            if isinstance(result, Refused):
                self._hooks.forget_later(decision.id)
            self._hooks.finished(write, result)

        self.executor.submit(
            WriteOrder(
                write=write,
                on_result=answered,
                rebuild=rebuild,
                priority=0,
                after=self._reaching(_AFTER.get(write.purpose)),
            )
        )

    def _submit_reassignment(self, decision: Reassign) -> None:
        seen = self._hooks.look_up(decision.key)
        write = write_of(decision, seen[1], now=self._clock.now()) if seen is not None else None
        if seen is None or write is None or seen[0].uid != decision.uid:
            self._hooks.forget(decision.id)
            return
        decided_on = seen[0].admission

        def rebuild(raw: bytes) -> Write | None:
            workload = self._hooks.to_workload(raw)
            # An eviction that came between takes the places with it.
            if workload is None or workload.uid != decision.uid or workload.is_finished:
                return None
            # Whoever changed the admission meanwhile did not know of these nodes, nor we of that.
            if workload.is_evicted or workload.admission != decided_on:
                return None
            fresh = replace(decision, resource_version=workload.resource_version)
            return write_of(fresh, raw, now=self._clock.now())

        def answered(result: Result) -> None:
            if isinstance(result, Refused):
                self._hooks.forget_later(decision.id)
            elif not isinstance(result, Written):
                self._hooks.forget(decision.id)
            self._hooks.finished(write, result)

        self.executor.submit(
            WriteOrder(
                write=write,
                on_result=answered,
                rebuild=rebuild,
                priority=0,
            )
        )

    # Without failpoints nothing is called: this stands in every order.
    def _reaching(self, step: Step | None) -> Callable[[], None] | None:
        return None if step is None else lambda: self._failpoint.reach(step)


_BEFORE = {Purpose.START_JOB: Step.BEFORE_START}
_AFTER = {
    Purpose.CREATE_WORKLOAD: Step.AFTER_CREATE,
    Purpose.START_JOB: Step.AFTER_START,
    Purpose.EVICT: Step.AFTER_EVICT,
    Purpose.REQUEST_EVICTION: Step.AFTER_REQUEST,
    Purpose.ASK_POD: Step.AFTER_ASK,
    Purpose.CANCEL_EVICTION: Step.AFTER_CANCEL,
    Purpose.STOP_JOB: Step.AFTER_STOP,
    Purpose.RELEASE: Step.AFTER_RELEASE,
}


def is_pending(workload: Workload, uid: str) -> bool:
    """Return whether it is this very Workload still, and waits for quota."""
    return (
        workload.uid == uid
        and workload.active
        and not workload.is_finished
        and not workload.has_quota_reservation
    )
