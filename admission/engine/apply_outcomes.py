"""Applying outcomes: carries the outcome of one head into the state that the next decision is made on.

An admission is assumed, an eviction is marked on its target, and a head that waits goes back to its queue,
parked or to be tried again, with the reason to report. Nothing is written here; the decisions to be carried
out are collected in the order in which they were made.
"""

from __future__ import annotations

from math import inf

from admission.cache.cache import Cache
from admission.cache.workload_store import WorkloadStore
from admission.decisions.decision import Admit, Decision
from admission.nomination.head_outcome import HeadOutcome
from admission.scheduler.cycle_statistics import CycleStatistics
from admission.snapshot.capacity_holds import holds_room
from admission.snapshot.hold_totals import HeldRoom
from api.reasons import PreemptionReason
from queues.estimates.estimator import eviction_seconds
from queues.pending.pending_queue import RequeueCause
from queues.profile.holds import Hold


class OutcomeApplier:
    """Applies outcomes to the state of an engine."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore, tally: CycleStatistics) -> None:
        self._cache = cache
        self._workload_store = workload_store
        self._tally = tally

    def apply(self, outcome: HeadOutcome, decisions: list[Decision], *, now: float) -> bool:
        """Apply an outcome to the state, and append the decisions to carry out.

        Return whether another cycle of the tree may decide differently.

        Also records evictions, what the Workload joined, kept capacity, and the reason to report. A Wait is
        appended only if it differs from what was last reported. `now` is in Unix seconds.
        """
        queue, pending, decision = outcome.queue, outcome.pending, outcome.decision
        if isinstance(decision, Admit):
            self._admit(outcome, decision)
            decisions.append(decision)
            return True
        # Time alone will change this and no event reports it, so the queue is woken then.
        if outcome.spared_until is not None and outcome.spared_until < inf:
            self._workload_store.trees.wake_at(queue.name, outcome.spared_until)
        self._note_evictions(outcome, now=now)
        # Recorded even if empty, since what it joined before no longer counts.
        self._workload_store.pending.join(pending.key, outcome.joins)
        is_kept = self._keep_room(outcome, now)
        decisions += outcome.evictions
        pending.scan = outcome.scan
        if outcome.seconds is not None:
            pending.seconds = outcome.seconds
        if is_kept:
            queue.pending.precedence.prefer_holder(pending.workload)
        reported = (decision.reason, decision.message)
        cause = self._reason(outcome, is_kept)
        is_parked = queue.pending.requeue(pending, cause, now=now, reported=reported)
        if not outcome.lacks_only_quota:
            self._workload_store.trees.note_waits_for_places(queue.tree)
        if is_parked:
            self._workload_store.touched.cluster_queues.add(queue.name)
            self._workload_store.pending.explain_again(queue.name)
        record = self._workload_store.index.records[pending.key]
        self._workload_store.pending.unreported.pop(pending.key, None)
        # Nothing is written for a Workload that waits on for the reason reported last.
        if record.last_wait != reported:
            record.last_wait = reported
            decisions.append(decision)
        rules = queue.policy.backfill_rules
        if rules is not None and queue.pending.held_back >= rules.max_tested:
            # Enough heads have been held back; the others wait until something comes free.
            return bool(outcome.evictions)
        return (
            is_parked
            or bool(outcome.evictions)
            or (outcome.scan is not None and outcome.scan.has_flavors_left)
        )

    def _admit(self, outcome: HeadOutcome, decision: Admit) -> None:
        """Let the head hold what it was admitted with; nothing is held for it any more."""
        queue, pending = outcome.queue, outcome.pending
        self._tally.admits += 1
        room = self._cache.holds.kept.get(pending.key)
        if room is not None and (
            room.places != outcome.places or self._cache.holds.is_awaiting(pending.key, self._cache.held)
        ):
            # It has found room elsewhere. The Workloads that still leave for it may stay, unless others need
            # that, and what was held is free for Workloads of any tree.
            self._workload_store.trees.wake(queue.name)
            self._workload_store.admitted.note_left(room.places)
        self._cache.holds.drop(pending.key)
        self._workload_store.pending.join(pending.key, ())
        queue.pending.note_admitted(pending.key)
        if outcome.lease is not None:
            self._cache.schedule_plan.leases.put(outcome.lease)
        self._workload_store.admitted.assume(pending, decision.admission, outcome.usage)

    def _note_evictions(self, outcome: HeadOutcome, *, now: float) -> None:
        """Mark the Workloads that are evicted for the head."""
        for eviction in outcome.evictions:
            self._tally.evicts += 1
            held = self._cache.held[eviction.key]
            held.is_evicting, held.leaves_by = True, eviction.save_by
            self._cache.schedule_plan.hold(held)
            if eviction.preemption_reason is PreemptionReason.CONSOLIDATION:
                self._cache.moves.note(eviction.key, policy=outcome.queue.policy.name, at=now)

    def _reason(self, outcome: HeadOutcome, is_kept: bool) -> RequeueCause:
        """Return the cause for which the Workload is requeued, unless its queue need not wait for it.

        In Kueue a queue tries no other head from an eviction until its preemptor has started. So there is one
        eviction at a time, and all Workloads behind wait for as long as a checkpoint takes. Where the freed
        capacity is held (`admission.snapshot.capacity_holds`), the preemptor loses nothing if others go on.
        Under StrictFIFO no Workload passes the head all the same (`queues.pending.requeuing`).
        """
        reason = outcome.requeue
        assert reason is not None, "a head that is not admitted is requeued for a cause"
        if not is_kept and not holds_room(outcome.queue.policy):
            return reason
        if reason not in (RequeueCause.PENDING_PREEMPTION, RequeueCause.STILL_TAKEN):
            return reason
        return RequeueCause.ROOM_KEPT if is_kept else RequeueCause.NO_FIT

    def _keep_room(self, outcome: HeadOutcome, now: float) -> bool:
        """Hold for the head what evictions will free, those decided for it or earlier ones for others.

        Return whether capacity is held for it now. It may be no more than what other preemptors leave over:
        without a hold for the first Workload that needs no more than that, all others like it would be sent
        to wait for the same remainder.
        """
        rules, awaited = outcome.queue.policy.preemption, outcome.awaits
        if rules is None or not holds_room(outcome.queue.policy) or not awaited:
            return outcome.pending.key in self._cache.holds.kept
        leaving = [held for key in awaited if (held := self._cache.held.get(key)) is not None]
        ends = (
            (now if held.leaves_by is None else held.leaves_by) + eviction_seconds(held.workload)
            for held in leaving
        )
        assert outcome.admission is not None, "a head that awaits evictions has an admission to start with"
        workload = outcome.pending.workload
        hold = Hold(
            key=workload.key,
            uid=workload.uid,
            cluster_queue=outcome.queue.name,
            priority=workload.priority,
            admission=outcome.admission,
            victims=tuple(sorted(awaited)),
            until=max(ends, default=now) + rules.hold_seconds,
        )
        room = HeldRoom(hold=hold, usage=outcome.usage, places=outcome.places)
        return self._cache.holds.put(room, is_fresh=bool(outcome.evictions))
