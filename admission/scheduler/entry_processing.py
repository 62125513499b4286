"""The last phase of a cycle: one entry after another is admitted, has others preempted for it, or waits.

Each entry was nominated as if it were alone, so its nomination may not hold when its turn comes. It is
nominated a second time in three cases. In the last two the flavors are fixed, so that no head searches all of
them twice:

    - it no longer fits, but would without the capacity that is held for other Workloads
    - an earlier entry of this cycle evicts one of its targets as well
    - its quota is free, but earlier entries took its places

What each entry finds and takes is kept by `admission.scheduler.cycle_capacity`.
Source: Kueue, pkg/scheduler/scheduler.go, processEntry.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from admission.backfill.backfill_cycle import Backfill
from admission.backfill.start_check import StartCheck
from admission.decisions.assignment import Mode
from admission.nomination.head_outcome import HeadOutcome, inadmissible, waiting
from admission.nomination.nominate import Entry, Nominator, leaving_slice
from admission.nomination.nominate_heads import slice_leaving
from admission.scheduler.cycle_capacity import NOTHING_LACKED, CycleCapacity
from admission.scheduler.outcomes import (
    admitted,
    awaiting_pods,
    awaiting_promise,
    blocked_by_calendar,
    blocked_by_promise,
    deferred,
    gated,
    kept_for_others,
    left_to_owners,
    preempting,
    recomputation,
    skipped,
    still_taken,
)
from admission.scheduler.readiness_gate import ReadinessGate
from admission.snapshot.capacity_holds import holds_room
from api.queueing import PreemptionPolicy
from queues.pending.pending_queue import RequeueCause
from queues.steps import Steps

_NO_LONGER_FITS = "Workload no longer fits after processing another workload"
_OVERLAPS = "Workload has overlapping preemption targets with another workload"


@dataclass(slots=True, kw_only=True)
class EntryProcessor:
    """Processes the entries of one cycle in order. `now` is in Unix seconds; `backfill` None: it is off."""

    capacity: CycleCapacity
    nominator: Nominator
    now: float
    backfill: Backfill | None
    readiness: ReadinessGate | None = None

    def process(self, entry: Entry) -> Steps[HeadOutcome]:
        """Return the outcome for the entry on top of what earlier entries took."""
        leaving = leaving_slice(self.nominator.snapshot, entry.queue, entry.pending.workload)
        if leaving is not None:
            # An earlier entry of this cycle evicts the slice that this one replaces.
            return skipped(entry, slice_leaving(leaving.key))
        if self.capacity.is_for_owners(entry):
            return left_to_owners(entry)
        if self.capacity.is_pushed_out(entry):
            # It was nominated without regard to what is held for others. With that on the snapshot, another
            # flavor or place may do.
            again = yield from self.nominator.nominate(entry.queue, entry.pending)
            return (yield from self._settle(again)) if again.will_fit else kept_for_others(again)
        if entry.targets and self.capacity.overlaps(entry):
            # An earlier head of this cycle evicts one of its targets too, so targets are chosen again.
            again = yield from self.nominator.nominate_again(entry)
            if again.assignment.mode is Mode.FIT:
                # It fits only once the targets of the other entry, one of them its own, are gone.
                again = replace(again, assignment=replace(again.assignment, mode=Mode.DEFERRED_FIT))
            outcome = yield from self._settle(again)
            return replace(outcome, recomputation=recomputation(again, outcome))
        if entry.assignment.places and self.capacity.is_out_of_place(entry):
            is_displaced = self.capacity.is_displaced(entry)
            again = yield from self.nominator.nominate_again(entry)
            outcome = yield from self._settle(again)
            return replace(outcome, is_displaced=is_displaced and not again.will_fit)
        return (yield from self._settle(entry))

    def _settle(self, entry: Entry) -> Steps[HeadOutcome]:
        """Return the outcome for an entry whose nomination is final."""
        mode = entry.assignment.mode
        if mode is Mode.DEFERRED_FIT:
            awaited = self.capacity.awaited(entry)
            self.capacity.expect(entry, awaited)
            return deferred(entry, awaited)
        if mode is Mode.NO_FIT or (mode is Mode.PREEMPT and not entry.targets):
            return (yield from self._turn_away(entry))
        if entry.targets and self.nominator.policy.heeds_gates and entry.pending.workload.closed_gates:
            return gated(entry)
        if entry.targets and self.capacity.overlaps(entry):
            return skipped(entry, _OVERLAPS)
        if not self.capacity.fits(entry):
            return skipped(entry, _NO_LONGER_FITS)
        if self.backfill is None:
            return self._take(StartCheck(entry=entry))
        if entry.targets:
            near = self.backfill.promise_to_await(entry, self.nominator.preemptor.losses)
            if near is not None:
                return awaiting_promise(entry, near)
        with self.capacity.without_replaced(entry):
            verdict = self.backfill.check_start(entry)
        if verdict.kept_from is not None or verdict.behind is not None:
            verdict = (yield from self._with_fewer_pods(entry, self.backfill)) or verdict
        if verdict.kept_from is not None:
            # An entry that the calendar holds back may still be promised a start after the appointment.
            yield from self._plan(entry)
            return blocked_by_calendar(entry, verdict.kept_from)
        if verdict.behind is not None:
            # With a promise it is tried again when that is due, so its length does not matter.
            too_long = None if (yield from self._plan(entry)) else verdict.too_long
            return blocked_by_promise(entry, verdict.behind, too_long)
        return self._take(verdict)

    def _turn_away(self, entry: Entry) -> Steps[HeadOutcome]:
        """Return the outcome for an entry that fits neither now nor after evictions it may ask for."""
        # A promise holds the capacity for longer than a cycle, and only from when it is needed.
        if (yield from self._plan(entry)):
            return waiting(entry, RequeueCause.HELD_BACK)
        # Under `Any` it reclaims what others borrow when its turn comes, so nothing is reserved for it.
        is_any = entry.queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY
        if entry.assignment.mode is Mode.PREEMPT and (not is_any or entry.is_preemptor):
            # Its places were found on an empty cluster, which knows no reservations. In a domain that is
            # reserved for others, their members would find them taken.
            is_reserved = self.backfill is not None and self.backfill.is_reserved(entry)
            self.capacity.reserve_for_cycle(entry, () if is_reserved else entry.assignment.places)
        # Under backfill it may be promised a start, which depends on the places at that time.
        lacks_only_quota = entry.lacks_only_quota and self.backfill is None
        return replace(inadmissible(entry), lacks_only_quota=lacks_only_quota)

    def _with_fewer_pods(self, entry: Entry, backfill: Backfill) -> Steps[StartCheck | None]:
        """Return the check with the highest number of its pods that can start now, None if it has to wait.

        Only without evictions: no Workload is preempted for a part of what the entry gets later by its rank.
        """
        may: list[StartCheck] = []

        def may_start(smaller: Entry) -> bool:
            if smaller.assignment.mode is not Mode.FIT or not self.capacity.fits(smaller):
                return False
            verdict = backfill.check_start(smaller)
            if verdict.kept_from is not None or verdict.behind is not None:
                return False
            may.append(verdict)
            return True

        yield from self.nominator.nominate_fewer(entry, may_start)
        return may[-1] if may else None

    def _plan(self, entry: Entry) -> Steps[bool]:
        """Promise a start to an entry that waits. Return whether it has a promise."""
        if self.backfill is None:
            return False
        # The check whether it may start was a long search already.
        yield
        with self.capacity.without_replaced(entry):
            return (yield from self.backfill.plan(entry))

    def _take(self, verdict: StartCheck) -> HeadOutcome:
        """Admit the entry as nominated, or evict its targets first."""
        entry = verdict.entry
        if self.readiness is not None and self.readiness.holds_back(entry):
            return awaiting_pods(entry)
        for target in entry.targets:
            self.capacity.evict(target)
        if entry.assignment.mode is Mode.PREEMPT:
            awaited = self.capacity.awaited(entry)
            self.capacity.expect(entry, awaited)
            if self.backfill is not None:
                self.backfill.plan_after_evictions(entry)
            return preempting(entry, awaited, now=self.now)
        if (lack := self.capacity.lack(entry)) != NOTHING_LACKED:
            # It waits for what other evictions leave over. That is held for it where the policy says so.
            awaited = self.capacity.awaited(entry, lack)
            if holds_room(entry.queue.policy):
                self.capacity.expect(entry, awaited)
            return still_taken(entry, awaited)
        self.capacity.start(entry)
        if self.readiness is not None:
            self.readiness.note_admitted()
        if self.backfill is not None:
            self.backfill.note_admitted(verdict)
        outcome = admitted(entry, now=self.now)
        if verdict.lease is None:
            return outcome
        return replace(outcome, lease=verdict.lease, decision=replace(outcome.decision, on_lease=True))
