"""The writes of a term that need no reservation: reconcilers' writes, wait reasons, evictions, reassignments.

`admission.controller.writer.leader_term` sends admissions, which take quota, and accounts for them in the
store. The writes of this module take no quota: an eviction takes effect once the object shows it, a
reassignment keeps its quota, and a wait reason is only reported. Such a write is therefore never unconfirmed
and never released in the store. If it is refused, the decision is taken back (`withdraw_later`) or the reason
is reported again (`report_later`), both after a pause. An admission that has no answer yet is not taken back
with it: its write may still be stored.

Every order for a decision carries a `rebuild`. If the object has changed since the decision, the executor
calls `rebuild` with the fresh bytes to learn whether the decision still applies. It does not apply (None) if
the object shows something that the decision did not know; the next cycle then decides from the new state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from admission.controller.runtime.failpoints import Failpoint, Step
from admission.controller.runtime.runtime import Runtime
from admission.controller.writer.acting import WaitReport
from admission.controller.writer.executor import Executor
from admission.controller.writer.write_order import (
    ObjectTarget,
    Refused,
    Result,
    Vanished,
    WriteOrder,
    Written,
)
from admission.decisions.api_writes import Purpose, Write
from admission.decisions.decision import DecisionId, Evict, Reassign, Wait
from admission.reconcile.decision_writes import evict_write, reassign_write, wait_write
from api.eviction import current_request
from api.reason_words import ReasonWords
from api.workload import Workload, WorkloadKey

# A Workload that already shows its reason is not written again for a new message of the same reason before
# REWORD_SECONDS have passed, and all such writes together keep REWORD_EVERY_SECONDS between them: what
# Workloads wait for may change with every cycle.
REWORD_SECONDS = 60.0
REWORD_EVERY_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Callbacks into the control loop, the one task that owns the state.

    `look_up` returns a Workload and its bytes as last seen. `to_workload` parses bytes (None: unreadable).
    `forget` takes an admission back in the engine, `forget_later` does so after a pause, and `call_later`
    makes a call after such a pause. `withdraw` and `withdraw_later` do so with an eviction or reassignment.
    `report_later` has the reason why a Workload waits reported again. `finished` receives every result.
    `report_error` reports a bug of this controller, from within its `except` block.
    """

    look_up: Callable[[WorkloadKey], tuple[Workload, bytes] | None]
    to_workload: Callable[[bytes], Workload | None]
    forget: Callable[[DecisionId], None]
    forget_later: Callable[[DecisionId], None]
    withdraw: Callable[[DecisionId], None]
    withdraw_later: Callable[[DecisionId], None]
    call_later: Callable[[DecisionId, Callable[[], None]], None]
    report_later: Callable[[Wait], None]
    finished: Callable[[Write, Result], None]
    report_error: Callable[[], None]


class Dispatch:
    """Builds the orders that need no reservation and submits them to the executor."""

    def __init__(
        self,
        executor: Executor,
        runtime: Runtime,
        *,
        hooks: Hooks,
        note_reported: Callable[[Wait | Evict], None],
        words: ReasonWords,
        awaits_pods: bool = False,
    ) -> None:
        """`note_reported` is called with each Wait whose reason is about to be written, in `words`.

        It is called as well with each eviction of a reconciler once it is written. `awaits_pods`:
        waitForPodsReady is on.
        """
        self._executor = executor
        self._note_reported = note_reported
        self._words = words
        self._awaits_pods = awaits_pods
        self._clock = runtime.clock
        self._hooks = hooks
        self._failpoint = runtime.failpoint
        self._next_reword_at = 0.0

    def submit(self, write: Write) -> None:
        """Send a write that a reconciler asked for. After a conflict the reconciler runs again."""

        def answered(result: Result) -> None:
            if isinstance(result, Written) and write.eviction is not None:
                self._note_reported(write.eviction)
            self._hooks.finished(write, result)

        self._executor.submit(
            WriteOrder(
                write=write,
                on_result=answered,
                look_up=look_up_of(write, self._hooks),
                before=at_failpoint(self._failpoint, _BEFORE.get(write.purpose)),
                after=at_failpoint(self._failpoint, _AFTER.get(write.purpose)),
            )
        )

    def is_busy(self, target: ObjectTarget) -> bool:
        """Return whether a write on the object is queued or in flight."""
        return self._executor.is_busy(target)

    @property
    def is_behind(self) -> bool:
        """Return whether writes that carry out decisions have no answer yet."""
        return self._executor.is_behind

    def report_wait(self, decision: Wait) -> WaitReport:
        """Write why a Workload waits, unless it shows that already."""
        seen = self._hooks.look_up(decision.key)
        if seen is None or seen[0].uid != decision.uid:
            return WaitReport.NOT_NEEDED
        if not self._is_worth_reporting(decision, seen[0]):
            return WaitReport.PUT_OFF
        write = self._wait_write(decision, seen[1])
        if write is None:
            return WaitReport.NOT_NEEDED
        self._submit_wait(decision, write)
        return WaitReport.WRITTEN

    def _wait_write(self, decision: Wait, raw: bytes) -> Write | None:
        word = self._words.of_cycle(decision.reason)
        now = self._clock.now()
        return wait_write(decision, raw, now=now, word=word, awaits_pods=self._awaits_pods)

    def _submit_wait(self, decision: Wait, write: Write) -> None:
        self._note_reported(decision)

        def rebuild(raw: bytes) -> Write | None:
            workload = self._hooks.to_workload(raw)
            if workload is None or not is_pending(workload, decision.uid):
                return None
            # The write is guarded by the version that was just read.
            return self._wait_write(decision, raw)

        def answered(result: Result) -> None:
            if isinstance(result, Refused):
                self._hooks.report_later(decision)
            self._hooks.finished(write, result)

        look_up = look_up_of(write, self._hooks)
        self._executor.submit(WriteOrder(write=write, on_result=answered, rebuild=rebuild, look_up=look_up))

    def _is_worth_reporting(self, decision: Wait, workload: Workload) -> bool:
        """Return whether to write: a new reason at once, a new message of the same reason after a pause."""
        shown = workload.conditions.get("QuotaReserved")
        if shown is None or shown.status or shown.reason != decision.reason:
            return True
        if shown.message == decision.message:
            return True
        now = self._clock.monotonic()
        # Put it off if it was reported within the last minute or if the executor is busy.
        if self._clock.now() - shown.at <= REWORD_SECONDS or self._executor.backlog:
            return False
        if now < self._next_reword_at:
            return False
        self._next_reword_at = now + REWORD_EVERY_SECONDS
        return True

    def submit_eviction(self, decision: Evict) -> None:
        """Send an eviction, or the request to save first; `withdraw` it where there is none to send."""
        seen = self._hooks.look_up(decision.key)
        if seen is None or seen[0].uid != decision.uid:
            self._hooks.withdraw(decision.id)
            return
        write = evict_write(decision, seen[1], now=self._clock.now())

        def rebuild(raw: bytes) -> Write | None:
            workload = self._hooks.to_workload(raw)
            if workload is None or workload.uid != decision.uid:
                return None
            # There is nothing left to evict it from.
            if workload.is_finished or workload.is_evicted or not workload.has_quota_reservation:
                return None
            if decision.save_by is not None and current_request(workload) is not None:
                # The Workload has been asked already, and its time runs from that request.
                return None
            # Rebuild the write from the fresh object: its status may contain other checks and gates by now.
            return evict_write(decision, raw, now=self._clock.now())

        def answered(result: Result) -> None:
            # After Moot or Vanished nothing is taken back here: the object itself shows whether it holds
            # quota, and `finished` or the watch brings it.
            if isinstance(result, Refused):
                self._hooks.withdraw_later(decision.id)
            self._hooks.finished(write, result)

        self._executor.submit(
            WriteOrder(
                write=write,
                on_result=answered,
                rebuild=rebuild,
                look_up=look_up_of(write, self._hooks),
                after=at_failpoint(self._failpoint, _AFTER.get(write.purpose)),
            )
        )

    def submit_reassignment(self, decision: Reassign) -> None:
        """Send the nodes found in place of lost ones; `withdraw` them where the Workload has changed."""
        seen = self._hooks.look_up(decision.key)
        if seen is None or seen[0].uid != decision.uid:
            self._hooks.withdraw(decision.id)
            return
        write = reassign_write(decision, seen[1], now=self._clock.now())
        decided_on = seen[0].admission

        def rebuild(raw: bytes) -> Write | None:
            workload = self._hooks.to_workload(raw)
            # An eviction in the meantime gives up the assigned nodes too.
            if workload is None or workload.uid != decision.uid or workload.is_finished:
                return None
            # The new admission was made without knowing these nodes, and the reassignment without knowing it.
            if workload.is_evicted or workload.admission != decided_on:
                return None
            return reassign_write(decision, raw, now=self._clock.now())

        def answered(result: Result) -> None:
            if isinstance(result, Refused | Vanished):
                self._hooks.withdraw_later(decision.id)
            elif not isinstance(result, Written):
                self._hooks.withdraw(decision.id)
            self._hooks.finished(write, result)

        self._executor.submit(
            WriteOrder(
                write=write,
                on_result=answered,
                rebuild=rebuild,
                look_up=look_up_of(write, self._hooks),
            )
        )


_BEFORE = {Purpose.START_JOB: Step.BEFORE_START}
_AFTER = {
    Purpose.CREATE_WORKLOAD: Step.AFTER_CREATE,
    Purpose.START_JOB: Step.AFTER_START,
    Purpose.EVICT: Step.AFTER_EVICT,
    Purpose.REQUEST_EVICTION: Step.AFTER_REQUEST,
    Purpose.REQUEST_CHECKPOINT: Step.AFTER_ASK,
    Purpose.CANCEL_EVICTION: Step.AFTER_CANCEL,
    Purpose.STOP_JOB: Step.AFTER_STOP,
    Purpose.RELEASE: Step.AFTER_RELEASE,
}


def is_pending(workload: Workload, uid: str) -> bool:
    """Return whether this is still the same Workload, by `uid`, and it waits for quota."""
    return (
        workload.uid == uid
        and workload.active
        and not workload.is_finished
        and not workload.has_quota_reservation
    )


def look_up_of(write: Write, hooks: Hooks) -> Callable[[], tuple[str, bytes] | None] | None:
    """Return what looks up version and bytes of the written Workload as last seen; None for other kinds."""
    if write.kind != "Workload":
        return None
    key = WorkloadKey(write.namespace, write.name)

    def look_up() -> tuple[str, bytes] | None:
        seen = hooks.look_up(key)
        return None if seen is None else (seen[0].resource_version, seen[1])

    return look_up


def at_failpoint(failpoint: Failpoint, step: Step | None) -> Callable[[], None] | None:
    """Return what reaches the failpoint at the step; None without a step, as most orders have none."""
    return None if step is None else lambda: failpoint.reach(step)
