"""One scheduling cycle: what is decided for the head of each ClusterQueue?

    1 nominate  find the best flavors, places and targets for every head, as if it were alone
    2 order     preemptors first, then by least borrowing, priority and age, or by fair share
    3 process   in that order, on top of what earlier heads took: admit, preempt others for it, or wait

A cycle takes one head of each ClusterQueue and nominates all heads on the same snapshot. Since each is
nominated alone, a later one may no longer fit when its turn comes; it is then skipped and tried again in the
next cycle. An entry is nominated a second time within the cycle in three cases. In the last two the flavors
are fixed, so that no head searches all of them twice:

    - it no longer fits, but would without the capacity that is held for other Workloads
    - an earlier entry of this cycle evicts one of its targets as well
    - its quota is free, but earlier entries took its places

The invariants: quota and places that one head was given are used up for all later heads; a target is evicted
for one preemptor only; what an evicted Workload leaves beyond its preemptor's need is not used before it has
stopped. All this is tried on the snapshot and rolled back at the end. Nothing is written here: the outcomes
say what to do (`admission.scheduler.outcomes`).

The cost is one nomination per head, which is a search for flavors and, where it needs them, for places and
targets; processing costs little more. The cycle yields after each head so that it may be paused
(`resumable_cycle`). It ends: every head is processed once, and under backfill each head that is passed over
leaves its queue before the next one is taken.

Source: Kueue, pkg/scheduler/scheduler.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from admission.backfill.backfill_cycle import Backfill
from admission.backfill.start_check import StartCheck
from admission.decisions.assignment import Mode
from admission.nomination.entry_ordering import classical_order, fair_order
from admission.nomination.hold_exceptions import HoldExceptions
from admission.nomination.nominate import CyclePolicy, Entry, Nominator
from admission.nomination.rejection import find_rejection
from admission.placement.topology.place import Place
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemptor import Preemptor
from admission.scheduler.outcomes import (
    HeadOutcome,
    admitted,
    blocked_by_calendar,
    blocked_by_promise,
    deferred,
    inadmissible,
    lost,
    preempting,
    recomputation,
    rejected,
    skipped,
    still_taken,
    waiting,
    with_kept,
)
from admission.snapshot.capacity_holds import NO_CLAIMS, HoldClaims, holds_room
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.queueing import PreemptionPolicy
from api.reasons import PendingReason
from api.workload import WorkloadKey
from queues.estimates.estimator import Estimator
from queues.pending.pending_queue import Pending, RequeueCause
from queues.quota.resources import FlavorResource, Quantities
from queues.steps import Steps

# Puts a head back into its queue with this outcome, and returns the next head of that queue, None if empty.
PassOn = Callable[[HeadOutcome], Pending | None]
# Whether a Workload (key, uid) has waited long enough for these to leave: no capacity is held
# for it any more.
IsSpent = Callable[[WorkloadKey, str, Iterable[WorkloadKey]], bool]

# The quota of which an entry has too little, and whether its places are taken.
_Lack = tuple[frozenset[FlavorResource], bool]
_NOTHING_LACKED: _Lack = frozenset(), False

_NO_LONGER_FITS = "Workload no longer fits after processing another workload"
_KEPT_FOR_OTHERS = "Workload fits only where room is kept for another workload that preempts others"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleRules:
    """What a cycle decides by, beside the snapshot.

    `now` is in Unix seconds. With `backfill`, promised starts are respected and new ones are made. Capacity
    in `claims` is kept from all heads, and so is the capacity that a head of this cycle waits for until
    others have left, unless `is_spent`. `estimator` knows the run times of earlier runs; by default there
    were none.
    """

    policy: CyclePolicy
    now: float
    backfill: Backfill | None = None
    estimator: Estimator = field(default_factory=Estimator)
    claims: HoldClaims = NO_CLAIMS
    is_spent: IsSpent | None = None


def schedule(
    snapshot: Snapshot,
    heads: Iterable[tuple[QueueState, Pending]],
    rules: CycleRules,
    *,
    pass_on: PassOn | None = None,
) -> Steps[tuple[HeadOutcome, ...]]:
    """Return the outcome for each head, in the order in which to apply them; yield after each look at a head.

    `heads` holds at most one Workload of each ClusterQueue. The snapshot is left as it was found. Under
    backfill a head found inadmissible is replaced: `pass_on` gives the next of its queue.
    """
    policy, now, backfill = rules.policy, rules.now, rules.backfill
    # Shared by the whole cycle, so that the loss of evicting a Workload is computed only once.
    losses = EvictionLosses(now=now, estimator=rules.estimator)
    preemptor = Preemptor(snapshot=snapshot, losses=losses, fair_sharing=policy.fair_sharing)
    nominator = Nominator(snapshot=snapshot, preemptor=preemptor, policy=policy)
    cycle = _Cycle(
        snapshot=snapshot, nominator=nominator, now=now, backfill=backfill, is_spent=rules.is_spent
    )
    # Held capacity is taken off before the first nomination, so that no head finds room there.
    cycle.keep(rules.claims)
    entries: list[Entry] = []
    outcomes: list[HeadOutcome] = []
    for queue, pending in heads:
        head: Pending | None = pending
        passed: set[WorkloadKey] = set()
        while head is not None:
            rejection = find_rejection(snapshot, queue, head)
            if rejection is not None:
                # It was not nominated, and so has no place in the order.
                outcomes.append(rejected(queue, head, rejection))
                yield
                break
            found = yield from nominator.nominate(queue, head)
            yield
            # Each head is passed over once: one that has flavors left to try comes back at once.
            if pass_on is None or head.key in passed or not _is_inadmissible(found, backfill):
                entries.append(found)
                break
            passed.add(head.key)
            head = pass_on(with_kept(inadmissible(found), found, losses))
    is_fair = policy.fair_sharing is not None
    # Ordering waits until all are nominated, since it depends on what each would borrow.
    in_order = fair_order(snapshot, entries) if is_fair else classical_order(entries)
    for entry in in_order:
        outcome = with_kept((yield from cycle.process(entry)), entry, losses)
        spared_until = losses.spared.get(entry.queue.name) if outcome.requeue is not None else None
        # Only a head that waits needs to know when a spared Workload may be evicted.
        outcomes.append(replace(outcome, spared_until=spared_until) if spared_until else outcome)
        yield
    # Everything was tried on the snapshot only; the outcomes are applied to the state one by one.
    snapshot.rollback()
    if backfill is not None:
        backfill.finish()
    return tuple(outcomes)


def _is_inadmissible(entry: Entry, backfill: Backfill | None) -> bool:
    """Return whether the head fits neither now nor after evictions, and backfill promises it no start.

    Kueue gives such a head its queue's turn all the same, and reserves what its queue has left for this one
    cycle. Under backfill, promises alone reserve capacity. A head without one would only cost its own queue a
    turn and other queues a cycle, and its mere presence could decide which of two queues is served first.
    """
    mode = entry.assignment.mode
    is_hopeless = mode is Mode.NO_FIT or (mode is Mode.PREEMPT and not entry.targets)
    return is_hopeless and backfill is not None and backfill.promises_nothing(entry)


@dataclass(slots=True, kw_only=True)
class _Cycle:
    """The third step: processes entries in order. Workloads it evicts are off the snapshot from then on."""

    snapshot: Snapshot
    nominator: Nominator
    now: float
    backfill: Backfill | None = None
    is_spent: IsSpent | None = None
    # Capacity that entries of this cycle wait for, reserved until those who hold it have left.
    _expected: list[tuple[QueueState, Quantities, tuple[Place, ...]]] = field(default_factory=list)
    # Capacity reserved for this cycle only, for heads that are not admitted.
    _reserved: list[tuple[QueueState, Quantities, tuple[Place, ...]]] = field(default_factory=list)
    _passed: HoldExceptions = field(init=False)

    def __post_init__(self) -> None:
        self._passed = HoldExceptions(snapshot=self.snapshot)

    def keep(self, claims: HoldClaims) -> None:
        """Hold freed capacity, or capacity being freed, for Workloads that are not tried in this cycle."""
        # The head of a hold's own ClusterQueue may pass it, so such a hold is shown per head
        # (`HoldExceptions`). On the snapshot it would keep out that head too.
        self._passed.claims = claims.passed
        # Reserved even if it does not fit yet: what is freed for it meanwhile must not go to others.
        if claims.holds_any:
            self.snapshot.evictions.apply_holds(claims.overlay, claims.leaving)

    def process(self, entry: Entry) -> Steps[HeadOutcome]:
        """Return the outcome for the entry on top of what earlier entries took."""
        if self._is_pushed_out(entry):
            # It was nominated without regard to what is held for others. With that on the snapshot, another
            # flavor or place may do.
            entry = yield from self.nominator.nominate(entry.queue, entry.pending)
            if not entry.will_fit:
                reason, requeue = PendingReason.WAITING_FOR_QUOTA, RequeueCause.NO_FIT
                return lost(entry.queue, entry.pending, reason, _KEPT_FOR_OTHERS, requeue)
        elif entry.targets and self._overlaps(entry):
            # An earlier head of this cycle evicts one of its targets too, so targets are chosen again.
            again = self._to_deferred((yield from self.nominator.nominate_again(entry)))
            outcome = yield from self._settle(again)
            return replace(outcome, recomputation=recomputation(again, outcome))
        elif self._is_out_of_place(entry):
            is_displaced = self._is_displaced(entry)
            entry = yield from self.nominator.nominate_again(entry)
            if is_displaced and not entry.will_fit:
                outcome = yield from self._settle(entry)
                return replace(outcome, is_displaced=True)
        return (yield from self._settle(entry))

    def _is_pushed_out(self, entry: Entry) -> bool:
        """Return whether only capacity held for others keeps the entry from what it was nominated for.

        From here on the snapshot shows what is held from this entry.
        """
        if not self._passed.claims:
            return False
        kept = self._passed.claims_against(entry)
        self._passed.show(kept)
        # An entry that would not fit without the holds either gets that as its reason.
        if not kept or not entry.will_fit or self._is_possible(entry):
            return False
        self._passed.show(())
        was_possible = self._is_possible(entry)
        self._passed.show(kept)
        return was_possible

    def _is_possible(self, entry: Entry) -> bool:
        return not self._overlaps(entry) and self._fits(entry)

    def _settle(self, entry: Entry) -> Steps[HeadOutcome]:
        """Return the outcome for an entry whose nomination is final."""
        mode, queue = entry.assignment.mode, entry.queue
        # The common case skips the checks of places and promises.
        if mode is Mode.FIT and not entry.assignment.places and self.backfill is None:
            return self._admit(entry)
        if mode is Mode.NO_FIT:
            if not (yield from self._plan(entry)):
                return inadmissible(entry)
            return waiting(entry, entry.assignment.no_fit_reason(), RequeueCause.HELD_BACK)
        if mode is Mode.PREEMPT and not entry.targets:
            is_any = queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY
            # A promise holds the capacity for longer than a cycle, and only from when it is needed.
            if (yield from self._plan(entry)):
                return waiting(entry, PendingReason.WAITING_FOR_QUOTA, RequeueCause.HELD_BACK)
            # Under `Any` it reclaims what others borrow when its turn comes, so nothing is reserved for it.
            if not is_any or entry.is_preemptor:
                kept = queue, self._to_reserve(entry), self._places_to_reserve(entry)
                self.snapshot.trial.reserve(*kept)
                self._reserved.append(kept)
            return inadmissible(entry)
        if mode is Mode.DEFERRED_FIT:
            awaited = self._awaited(entry)
            self._expect(entry, awaited)
            return deferred(entry, awaited)
        if self._overlaps(entry):
            return skipped(entry, "Workload has overlapping preemption targets with another workload")
        if not self._fits(entry):
            return skipped(entry, _NO_LONGER_FITS)
        verdict = self.backfill.check_start(entry) if self.backfill is not None else StartCheck(entry=entry)
        if verdict.kept_from is not None or verdict.behind is not None:
            verdict = (yield from self._with_fewer_pods(entry)) or verdict
        if verdict.kept_from is not None:
            # An entry that the calendar holds back may still be promised a start after the appointment.
            yield from self._plan(entry)
            return blocked_by_calendar(entry, verdict.kept_from)
        if verdict.behind is not None:
            # With a promise it is tried again when that is due, so its length does not matter.
            too_long = None if (yield from self._plan(entry)) else verdict.too_long
            return blocked_by_promise(entry, verdict.behind, too_long)
        return self._take(verdict)

    def _with_fewer_pods(self, entry: Entry) -> Steps[StartCheck | None]:
        """Return the check with the highest number of its pods that can start now, None if it has to wait.

        Only without evictions: no Workload is preempted for a part of what the entry gets later by its rank.
        """
        may: list[StartCheck] = []

        def may_start(smaller: Entry) -> bool:
            if self.backfill is None or smaller.assignment.mode is not Mode.FIT or not self._fits(smaller):
                return False
            verdict = self.backfill.check_start(smaller)
            if verdict.kept_from is not None or verdict.behind is not None:
                return False
            may.append(verdict)
            return True

        yield from self.nominator.nominate_fewer(entry, may_start)
        return may[-1] if may else None

    def _take(self, verdict: StartCheck) -> HeadOutcome:
        """Admit the entry as nominated, or evict its targets first."""
        entry = verdict.entry
        for target in entry.targets:
            # Off the snapshot for later entries; `_expect` holds its capacity for this one.
            self.snapshot.evictions.evict(target.queue, target.held)
        if entry.assignment.mode is Mode.PREEMPT:
            awaited = self._awaited(entry)
            self._expect(entry, awaited)
            if self.backfill is not None:
                self.backfill.plan_after_evictions(entry)
            return preempting(entry, awaited, now=self.now)
        if (lack := self._lack(entry)) != _NOTHING_LACKED:
            return self._wait_for_leaving(entry, lack)
        self.snapshot.trial.reserve(entry.queue, entry.assignment.usage, entry.assignment.places)
        if self.backfill is not None:
            self.backfill.note_admitted(verdict)
        outcome = admitted(entry, now=self.now)
        if verdict.lease is None:
            return outcome
        return replace(outcome, lease=verdict.lease, decision=replace(outcome.decision, on_lease=True))

    def _wait_for_leaving(self, entry: Entry, lack: _Lack) -> HeadOutcome:
        """Let an entry wait for what other evictions leave over; hold that where the policy says so."""
        awaited = self._awaited(entry, lack)
        if holds_room(entry.queue.policy):
            self._expect(entry, awaited)
        return still_taken(entry, awaited)

    def _plan(self, entry: Entry) -> Steps[bool]:
        """Promise a start to an entry that waits. Return whether it has a promise."""
        if self.backfill is None:
            return False
        # The check whether it may start was a long search already.
        yield
        return (yield from self.backfill.plan(entry))

    def _expect(self, entry: Entry, others: Iterable[HeldWorkload]) -> None:
        """Hold for the entry what it will have once its targets and `others` have stopped.

        Nothing is held where it has waited for them too long: later entries would be refused for capacity
        that no Workload gets.
        """
        workload, victims = entry.pending.workload, [target.held for target in entry.targets]
        if self.is_spent is not None and all(held.is_evicted for held in victims):
            awaited = [held.key for held in (*victims, *others)]
            if awaited and self.is_spent(workload.key, workload.uid, awaited):
                return
        usage, places = entry.assignment.usage, entry.assignment.places
        self._expected.append((entry.queue, usage, places))
        self.snapshot.trial.reserve(entry.queue, usage, places)

    def _all_expected(self) -> tuple[tuple[QueueState, Quantities, tuple[Place, ...]], ...]:
        """Return what is reserved on the snapshot for entries that wait for others to stop."""
        return *self._expected, *self._passed.expected()

    def _lack(self, entry: Entry) -> _Lack:
        """Return the quota of which the entry has too little, and whether its places are taken.

        This is as long as the Workloads evicted in this cycle, other than its own targets, still run. On the
        snapshot they are gone, and their capacity is reserved for their preemptors. What they leave over
        beyond that is free only once they have stopped: an entry that started on it now would run beside
        them, on capacity that they still use.
        """
        # Without evictions in this cycle, what is free on the snapshot is free.
        if not self.snapshot.evictions.gone:
            return _NOTHING_LACKED
        usage, places, node = entry.assignment.usage, entry.assignment.places, entry.queue.node
        with (
            self.snapshot.evictions.taken_back(self._all_expected(), places),
            self.snapshot.trial.without((target.queue, target.held) for target in entry.targets),
        ):
            lacking = frozenset(pair for pair, amount in usage.items() if not node.fits({pair: amount}))
            return lacking, not self.snapshot.topology_cache.usage.fits(places)

    def _awaited(self, entry: Entry, lack: _Lack | None = None) -> list[HeldWorkload]:
        """Return the Workloads leaving for others that hold what the entry lacks, in quota or on nodes.

        What its own targets leave does not count as lacking. `lack` is the result of `_lack` if known.
        """
        own = {target.held.key for target in entry.targets}
        others = [(queue, held) for queue, held in self.snapshot.evictions.leaving() if held.key not in own]
        if not others or not holds_room(entry.queue.policy):
            return []
        lacking, lacks_places = self._lack(entry) if lack is None else lack
        if not (lacking or lacks_places or entry.targets):
            # Only capacity reserved for others keeps it out, and any of these may leave some over.
            lacking, lacks_places = frozenset(entry.assignment.usage), True
        nodes = _nodes_of(entry.assignment.places) if lacks_places else set()
        # Quota belongs to one tree, nodes are shared by all.
        return [
            held
            for queue, held in others
            if (queue.tree is entry.queue.tree and any(held.usage.get(pair, 0) for pair in lacking))
            or not nodes.isdisjoint(_nodes_of(held.places))
        ]

    def _admit(self, entry: Entry) -> HeadOutcome:
        """Admit an entry that asks for quota only, if what it was nominated for still fits."""
        # It was nominated alone; earlier entries may have taken its quota since.
        if not entry.queue.node.fits(entry.assignment.usage):
            return skipped(entry, _NO_LONGER_FITS)
        if (lack := self._lack(entry)) != _NOTHING_LACKED:
            return self._wait_for_leaving(entry, lack)
        self.snapshot.trial.reserve(entry.queue, entry.assignment.usage)
        return admitted(entry, now=self.now)

    def _places_to_reserve(self, entry: Entry) -> tuple[Place, ...]:
        """Return the places to reserve for an entry without targets; none if others have reserved them.

        They were found on an empty cluster, which knows no reservations: members would find them taken.
        """
        places = entry.assignment.places
        is_reserved = self.backfill is not None and self.backfill.is_reserved(entry)
        return () if is_reserved else places

    def _overlaps(self, entry: Entry) -> bool:
        """Return whether an earlier entry of this cycle evicts one of its targets."""
        return any(self.snapshot.evictions.is_gone(target.held) for target in entry.targets)

    def _fits(self, entry: Entry) -> bool:
        """Return whether its quota and places are free once its targets, and all of this cycle, are gone."""
        return all(self._fit(entry))

    def _is_out_of_place(self, entry: Entry) -> bool:
        """Return whether its quota is free, but its places have been taken in this cycle."""
        if not entry.assignment.places:
            return False
        has_quota, has_places = self._fit(entry)
        return has_quota and not has_places

    def _is_displaced(self, entry: Entry) -> bool:
        """Return whether its places are free except for what heads of other trees reserve for this cycle.

        Heads of its own tree do not count: they are tried again with it as long as anything changes there.
        """
        others = [one for one in self._reserved if one[2] and one[0].tree is not entry.queue.tree]
        if not others:
            return False
        with self.snapshot.trial.without_usage(others):
            return self._fits(entry)

    def _fit(self, entry: Entry) -> tuple[bool, bool]:
        """Return whether its quota, and whether its places are free once its targets are gone."""
        usage, places, node = entry.assignment.usage, entry.assignment.places, entry.queue.node
        if not entry.targets:
            return node.fits(usage), self.snapshot.topology_cache.usage.fits(places)
        # Only for this check; at the end of the block the targets are back on the snapshot.
        with self.snapshot.trial.without((target.queue, target.held) for target in entry.targets):
            return node.fits(usage), self.snapshot.topology_cache.usage.fits(places)

    def _to_deferred(self, entry: Entry) -> Entry:
        """Defer an entry that fits only once the targets of another entry, one of them its own, are gone."""
        if entry.assignment.mode is Mode.FIT:
            return replace(entry, assignment=replace(entry.assignment, mode=Mode.DEFERRED_FIT))
        return entry

    def _to_reserve(self, entry: Entry) -> dict[FlavorResource, int]:
        """Return the quota that a head reserves for this cycle although it cannot be admitted.

        It needs evictions that it may not do. Without this, later heads of other queues would take whatever
        comes free, for ever. It reserves up to its nominal quota, or up to its borrowing limit if it borrows.
        Source: Kueue, scheduler.go, quotaResourcesToReserve.
        """
        queue, reserved = entry.queue, {}
        for pair, amount in entry.assignment.usage.items():
            cell = queue.node.cell(pair)
            # Quota still used by Workloads that are being evicted is not free to reserve.
            used = cell.usage + self.snapshot.evictions.usage(queue, pair)
            if entry.assignment.borrowing == 0:
                # Reserving more than its nominal quota leaves would keep other queues from theirs.
                amount = max(0, min(amount, cell.nominal - used))
            elif cell.borrowing_limit is not None:
                amount = min(amount, cell.nominal + cell.borrowing_limit - used)
            reserved[pair] = amount
        return reserved


def _nodes_of(places: Iterable[Place]) -> set[tuple[str, ...]]:
    """Return the domains of the lowest level that these places use."""
    return {domain.values for place in places for domain in place.assignment.domains}
