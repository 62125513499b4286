"""One cycle: the heads of the ClusterQueues, and what becomes of each.

    1 nominate  give every head the best flavors it could have, as if it were alone
    2 order     who others were evicted for, then least borrowing, then priority, then age
    3 process   in that order, on top of what those before it took: admit, evict others for it, or wait

A cycle takes one head of each ClusterQueue. All of them are nominated on the same picture; one that no longer
fits when its turn comes is tried again next cycle. Nothing is written here: the outcomes say what to do
(`admission.scheduler.outcomes`).
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
from admission.nomination.nominate import CyclePolicy, Entry, find_rejection, nominate, nominate_fewer
from admission.placement.topology.place import Place
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemptor import Preemptor
from admission.scheduler.outcomes import (
    HeadOutcome,
    admitted,
    after_others,
    held_back,
    in_vain,
    kept_back,
    lost,
    preempting,
    recomputation,
    skipped,
    still_taken,
    waiting,
    with_kept,
)
from admission.snapshot.capacity_holds import NO_CLAIMS, HoldClaims, holds_room
from admission.snapshot.snapshot import HeldWorkload, QueueState, Snapshot
from api.queueing import PreemptionPolicy
from api.reasons import PendingReason
from api.workload import WorkloadKey
from queues.estimates.estimator import Estimator
from queues.pending.pending_queue import Pending, RequeueCause
from queues.quota.resources import FlavorResource, Quantities
from queues.steps import Steps

# Puts a head back into its queue for this reason, and returns the next head of that queue.
PassOn = Callable[[HeadOutcome], Pending | None]
# Whether a Workload (key, uid) that waits for these to leave has had its time: nothing is kept for it.
IsSpent = Callable[[WorkloadKey, str, Iterable[WorkloadKey]], bool]

# Of which quota an entry has too little, and whether its places are taken.
_Lack = tuple[frozenset[FlavorResource], bool]
_NOTHING_LACKED: _Lack = frozenset(), False

_NO_LONGER_FITS = "Workload no longer fits after processing another workload"
_KEPT_FOR_OTHERS = "Workload fits only where room is kept for another that others give way for"


def schedule(
    snapshot: Snapshot,
    heads: Iterable[tuple[QueueState, Pending]],
    *,
    policy: CyclePolicy,
    now: float,
    backfill: Backfill | None = None,
    estimator: Estimator | None = None,
    claims: HoldClaims = NO_CLAIMS,
    pass_on: PassOn | None = None,
    is_spent: IsSpent | None = None,
) -> Steps[tuple[HeadOutcome, ...]]:
    """Return what becomes of each head, in the order to be carried out; yield after each look at one of them.

    `heads` holds at most one Workload of each ClusterQueue. The snapshot is left as it was found. With
    `backfill` promised starts are kept, and more are promised, and whoever is tried in vain is no head any
    more: `pass_on` gives the next of its queue. `claims` are kept from all heads, and so is what one of them
    waits for that others leave for, unless `is_spent`. `estimator` knows what earlier runs took; None: there
    were none.
    """
    # One for the cycle: what evicting a victim costs is worked out once, however many ask.
    losses = EvictionLosses(now=now, estimator=estimator or Estimator())
    preemptor = Preemptor(snapshot=snapshot, losses=losses, fair_sharing=policy.fair_sharing)
    cycle = _Cycle(
        snapshot=snapshot,
        policy=policy,
        preemptor=preemptor,
        now=now,
        backfill=backfill,
        is_spent=is_spent,
    )
    # Before the first head is nominated, so that none finds room there.
    cycle.keep(claims)
    entries: list[Entry] = []
    outcomes: list[HeadOutcome] = []
    for queue, pending in heads:
        head: Pending | None = pending
        passed: set[WorkloadKey] = set()
        while head is not None:
            rejection = find_rejection(snapshot, queue, head)
            if rejection is not None:
                # It needs no picture, and so no place in the order.
                outcomes.append(lost(queue, head, rejection.reason, rejection.message, rejection.requeue))
                yield
                break
            found = yield from nominate(snapshot, queue, head, preemptor=preemptor, policy=policy)
            yield
            # Once for each: one that has flavors left to try comes back at once.
            if pass_on is None or head.key in passed or not _is_in_vain(found, backfill):
                entries.append(found)
                break
            passed.add(head.key)
            head = pass_on(with_kept(in_vain(found), found, losses))
    is_fair = policy.fair_sharing is not None
    # All are nominated first: the order is by what each would borrow.
    in_order = fair_order(snapshot, entries) if is_fair else classical_order(entries)
    for entry in in_order:
        outcome = with_kept((yield from cycle.process(entry)), entry, losses)
        spared_until = losses.spared.get(entry.queue.name) if outcome.requeue is not None else None
        # Only for those who wait: who starts needs nobody's time to run out.
        outcomes.append(replace(outcome, spared_until=spared_until) if spared_until else outcome)
        yield
    # Whatever was tried; the outcomes are carried into the state one by one.
    snapshot.rollback()
    if backfill is not None:
        backfill.finish()
    return tuple(outcomes)


def _is_in_vain(entry: Entry, backfill: Backfill | None) -> bool:
    """Return whether the head neither fits nor would by evictions, and under backfill is promised nothing.

    Kueue lets it have its queue's turn all the same, and keeps what its queue has left from all others for
    this one cycle. Under backfill a promise keeps capacity, and nothing else does: who has none would set
    back its own queue by a turn and others by a cycle, and so decide by its mere presence who of two queues
    is served, or promised a start, first.
    """
    mode = entry.assignment.mode
    is_hopeless = mode is Mode.NO_FIT or (mode is Mode.PREEMPT and not entry.targets)
    return is_hopeless and backfill is not None and backfill.promises_nothing(entry)


@dataclass(slots=True, kw_only=True)
class _Cycle:
    """The third step. Whose eviction is decided is gone from the picture for those after."""

    snapshot: Snapshot
    policy: CyclePolicy
    preemptor: Preemptor
    now: float
    backfill: Backfill | None = None
    is_spent: IsSpent | None = None
    _expected: list[tuple[QueueState, Quantities, tuple[Place, ...]]] = field(default_factory=list)
    # What heads keep for this cycle alone, that get nothing of it.
    _in_passing: list[tuple[QueueState, Quantities, tuple[Place, ...]]] = field(default_factory=list)
    _passed: HoldExceptions = field(init=False)

    def __post_init__(self) -> None:
        self._passed = HoldExceptions(snapshot=self.snapshot)

    def keep(self, claims: HoldClaims) -> None:
        """Keep what was freed, or is being freed, for Workloads that are not tried in this cycle."""
        # On the picture its own queue's head would meet it, too.
        self._passed.claims = claims.passed
        # Taken though it may not fit: what others free for it on the way must not be had.
        if claims.is_standing:
            self.snapshot.stand(claims.overlay, claims.leaving)

    def process(self, entry: Entry) -> Steps[HeadOutcome]:
        """Return what becomes of the entry on top of what those before it took."""
        if self._is_pushed_out(entry):
            # Nominated without what is kept for others: once more with that on the picture, where it may be
            # elsewhere, by another flavor too.
            entry = yield from nominate(
                self.snapshot, entry.queue, entry.pending, preemptor=self.preemptor, policy=self.policy
            )
            if not entry.is_promising:
                reason, requeue = PendingReason.WAITING_FOR_QUOTA, RequeueCause.NO_FIT
                return lost(entry.queue, entry.pending, reason, _KEPT_FOR_OTHERS, requeue)
        elif entry.targets and self._overlaps(entry):
            again = yield from self._nominate_again(entry)
            again = self._to_deferred(again)
            # An earlier head of this cycle evicts one of its victims too, so that the choice has
            # to be made again.
            outcome = yield from self._settle(again)
            return replace(outcome, recomputation=recomputation(again, outcome))
        elif self._is_out_of_place(entry):
            is_displaced = self._is_displaced(entry)
            entry = yield from self._nominate_again(entry)
            if is_displaced and not entry.is_promising:
                outcome = yield from self._settle(entry)
                return replace(outcome, is_displaced=True)
        return (yield from self._settle(entry))

    def _is_pushed_out(self, entry: Entry) -> bool:
        """Return whether it is only by what is kept for others that the entry cannot have what it was
        nominated for. From here on the picture shows what is kept from it.
        """
        if not self._passed.claims:
            return False
        kept = self._passed.kept_from(entry)
        self._passed.show(kept)
        # What would not fit without them either is told so.
        if not kept or not entry.is_promising or self._is_possible(entry):
            return False
        self._passed.show(())
        was_possible = self._is_possible(entry)
        self._passed.show(kept)
        return was_possible

    def _is_possible(self, entry: Entry) -> bool:
        return not self._overlaps(entry) and self._fits(entry)

    def _settle(self, entry: Entry) -> Steps[HeadOutcome]:
        mode, queue = entry.assignment.mode, entry.queue
        # The common case, spared the trial of places and promises.
        if mode is Mode.FIT and not entry.assignment.places and self.backfill is None:
            return self._admit(entry)
        if mode is Mode.NO_FIT:
            if not (yield from self._plan(entry)):
                return in_vain(entry)
            return waiting(entry, entry.assignment.no_fit_reason(), RequeueCause.HELD_BACK)
        if mode is Mode.PREEMPT and not entry.targets:
            is_any = queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY
            # A promise keeps the capacity for longer than a cycle, and from when it is needed.
            if (yield from self._plan(entry)):
                return waiting(entry, PendingReason.WAITING_FOR_QUOTA, RequeueCause.HELD_BACK)
            # Under `Any` what comes free is reclaimed when its turn comes; nothing has to be kept for it.
            if not is_any or entry.is_preemptor:
                kept = queue, self._to_reserve(entry), self._places_to_reserve(entry)
                self.snapshot.reserve(*kept)
                self._in_passing.append(kept)
            return in_vain(entry)
        if mode is Mode.DEFERRED_FIT:
            awaited = self._awaited(entry)
            self._expect(entry, awaited)
            reason = PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS
            outcome = waiting(entry, reason, RequeueCause.PENDING_PREEMPTION)
            return after_others(entry, outcome, awaited)
        if self._overlaps(entry):
            return skipped(entry, "Workload has overlapping preemption targets with another workload")
        if not self._fits(entry):
            return skipped(entry, _NO_LONGER_FITS)
        verdict = self.backfill.judge(entry) if self.backfill is not None else StartCheck(entry=entry)
        if verdict.kept_from is not None or verdict.behind is not None:
            verdict = (yield from self._with_fewer_pods(entry)) or verdict
        if verdict.kept_from is not None:
            # Even who is kept by the calendar may be promised a start after the appointment.
            yield from self._plan(entry)
            return kept_back(entry, verdict.kept_from)
        if verdict.behind is not None:
            # Whoever is promised a start is tried again by itself, as its time comes.
            too_long = None if (yield from self._plan(entry)) else verdict.too_long
            return held_back(entry, verdict.behind, too_long)
        return self._take(verdict)

    def _with_fewer_pods(self, entry: Entry) -> Steps[StartCheck | None]:
        """Return the verdict by which the most of its pods start now, None where it has to wait all the same.

        Without evictions alone: nobody gives way for a part of what its rank would give it later.
        """
        may: list[StartCheck] = []

        def may_start(smaller: Entry) -> bool:
            if self.backfill is None or smaller.assignment.mode is not Mode.FIT or not self._fits(smaller):
                return False
            verdict = self.backfill.judge(smaller)
            if verdict.kept_from is not None or verdict.behind is not None:
                return False
            may.append(verdict)
            return True

        yield from nominate_fewer(
            self.snapshot,
            entry.queue,
            entry.pending,
            preemptor=self.preemptor,
            policy=self.policy,
            accepts=may_start,
        )
        return may[-1] if may else None

    def _take(self, verdict: StartCheck) -> HeadOutcome:
        """Give the entry what it was nominated for, or evict its targets first."""
        entry = verdict.entry
        for target in entry.targets:
            # Gone from the picture for those who follow, and kept for this one by `_expect`.
            self.snapshot.evict(target.queue, target.held)
        if entry.assignment.mode is Mode.PREEMPT:
            awaited = self._awaited(entry)
            self._expect(entry, awaited)
            if self.backfill is not None:
                self.backfill.plan_after_evictions(entry)
            return preempting(entry, awaited, now=self.now)
        if (lack := self._lack(entry)) != _NOTHING_LACKED:
            return self._wait_for_leaving(entry, lack)
        self.snapshot.reserve(entry.queue, entry.assignment.usage, entry.assignment.places)
        if self.backfill is not None:
            self.backfill.note_admitted(verdict)
        outcome = admitted(entry, now=self.now)
        if verdict.lease is None:
            return outcome
        return replace(outcome, lease=verdict.lease, decision=replace(outcome.decision, on_lease=True))

    def _wait_for_leaving(self, entry: Entry, lack: _Lack) -> HeadOutcome:
        """Let an entry wait for what others leave over; where such room is held, it is from now on."""
        awaited = self._awaited(entry, lack)
        if holds_room(entry.queue.policy):
            self._expect(entry, awaited)
        return still_taken(entry, awaited)

    def _plan(self, entry: Entry) -> Steps[bool]:
        """Promise a start to an entry that waits. Returns whether it has a promise."""
        if self.backfill is None:
            return False
        # Whether it may start has been a search of its own.
        yield
        return (yield from self.backfill.plan(entry))

    def _expect(self, entry: Entry, others: Iterable[HeldWorkload]) -> None:
        """Keep for the entry what it will have when those who give way for it, `others` too, have stopped.

        Nothing where it has had its time: who comes after it would be refused for what nobody gets.
        """
        workload, victims = entry.pending.workload, [target.held for target in entry.targets]
        if self.is_spent is not None and all(held.is_evicted for held in victims):
            awaited = [held.key for held in (*victims, *others)]
            if awaited and self.is_spent(workload.key, workload.uid, awaited):
                return
        usage, places = entry.assignment.usage, entry.assignment.places
        self._expected.append((entry.queue, usage, places))
        self.snapshot.reserve(entry.queue, usage, places)

    def _all_expected(self) -> tuple[tuple[QueueState, Quantities, tuple[Place, ...]], ...]:
        """Return what the picture shows as taken by those for whom others have yet to stop."""
        return *self._expected, *self._passed.expected()

    def _lack(self, entry: Entry) -> _Lack:
        """Return what the entry lacks while those who are to give way in this cycle, but for its own targets,
        still run: of which quota there is too little, and whether its places are taken.

        The picture has them gone and their place kept for who evicts them. What they leave over beyond that
        is nobody's until they have stopped: an entry that started on it would run beside them.
        """
        # Nobody gives way in this cycle, so what the picture shows is free.
        if not self.snapshot.gone:
            return _NOTHING_LACKED
        usage, places, node = entry.assignment.usage, entry.assignment.places, entry.queue.node
        with (
            self.snapshot.before_evictions(self._all_expected(), places),
            self.snapshot.without((target.queue, target.held) for target in entry.targets),
        ):
            lacking = frozenset(pair for pair, amount in usage.items() if not node.fits({pair: amount}))
            return lacking, not self.snapshot.topology_cache.fits(places)

    def _awaited(self, entry: Entry, lack: _Lack | None = None) -> list[HeldWorkload]:
        """Return who leaves for others and holds what the entry lacks until then, quota or nodes, beyond what
        its own targets leave. `lack`: that, where it is known.
        """
        own = {target.held.key for target in entry.targets}
        others = [(queue, held) for queue, held in self.snapshot.leaving() if held.key not in own]
        if not others or not holds_room(entry.queue.policy):
            return []
        lacking, lacks_places = self._lack(entry) if lack is None else lack
        if not (lacking or lacks_places or entry.targets):
            # It is kept out by what is expected for others, and comes by what any of them leaves.
            lacking, lacks_places = frozenset(entry.assignment.usage), True
        nodes = _nodes_of(entry.assignment.places) if lacks_places else set()
        # Quota is a tree's own, nodes are everybody's.
        return [
            held
            for queue, held in others
            if (queue.tree is entry.queue.tree and any(held.usage.get(pair, 0) for pair in lacking))
            or not nodes.isdisjoint(_nodes_of(held.places))
        ]

    def _admit(self, entry: Entry) -> HeadOutcome:
        """Admit an entry that fitted when nominated and asks for quota alone, if it still fits."""
        # Nominated alone; heads before it may have taken its quota since.
        if not entry.queue.node.fits(entry.assignment.usage):
            return skipped(entry, _NO_LONGER_FITS)
        if (lack := self._lack(entry)) != _NOTHING_LACKED:
            return self._wait_for_leaving(entry, lack)
        self.snapshot.reserve(entry.queue, entry.assignment.usage)
        return admitted(entry, now=self.now)

    def _places_to_reserve(self, entry: Entry) -> tuple[Place, ...]:
        """Return the places to keep for an entry that finds nobody to evict; none that are others' by now.

        They were found on the empty cluster, where nothing is reserved: who joined would find them taken.
        """
        places = entry.assignment.places
        is_reserved = self.backfill is not None and self.backfill.is_reserved(entry)
        return () if is_reserved else places

    def _overlaps(self, entry: Entry) -> bool:
        return any(self.snapshot.is_gone(target.held) for target in entry.targets)

    def _fits(self, entry: Entry) -> bool:
        """Return whether it fits once its victims, and all of this cycle, are gone."""
        return all(self._fit(entry))

    def _is_out_of_place(self, entry: Entry) -> bool:
        """Return whether its quota is there, but its places have been taken in this cycle."""
        if not entry.assignment.places:
            return False
        has_quota, has_places = self._fit(entry)
        return has_quota and not has_places

    def _is_displaced(self, entry: Entry) -> bool:
        """Return whether its places are free but for what heads of other trees keep in passing.

        Those of its own tree are tried again with it, as long as anything changes there.
        """
        others = [one for one in self._in_passing if one[2] and one[0].tree is not entry.queue.tree]
        if not others:
            return False
        with self.snapshot.without_usage(others):
            return self._fits(entry)

    def _fit(self, entry: Entry) -> tuple[bool, bool]:
        """Return whether its quota, and whether its places are free once its victims are gone."""
        usage, places, node = entry.assignment.usage, entry.assignment.places, entry.queue.node
        if not entry.targets:
            return node.fits(usage), self.snapshot.topology_cache.fits(places)
        # Only to look: they are back in the picture at the end of the block.
        with self.snapshot.without((target.queue, target.held) for target in entry.targets):
            return node.fits(usage), self.snapshot.topology_cache.fits(places)

    def _nominate_again(self, entry: Entry) -> Steps[Entry]:
        """Nominate on the picture as it is now, for the same flavors."""
        # Same flavors, so that one head cannot go through all of them twice in a cycle.
        pins = tuple(
            {resource: chosen.flavor for resource, chosen in choice.choices.items()}
            for choice in entry.assignment.pod_sets
        )
        return (
            yield from nominate(
                self.snapshot,
                entry.queue,
                entry.pending,
                preemptor=self.preemptor,
                policy=self.policy,
                pins=pins,
            )
        )

    def _to_deferred(self, entry: Entry) -> Entry:
        """Let an entry wait that fits only once the victims of another, one of them its own, are gone."""
        if entry.assignment.mode is Mode.FIT:
            return replace(entry, assignment=replace(entry.assignment, mode=Mode.DEFERRED_FIT))
        return entry

    def _to_reserve(self, entry: Entry) -> dict[FlavorResource, int]:
        """Return what a head keeps from those after it in this cycle although it cannot be admitted itself.

        It needs evictions that it may not do. Without this, later heads of other queues would take what comes
        free, for ever. Up to its nominal quota, or its borrowing limit where it borrows.
        Source: Kueue, scheduler.go, quotaResourcesToReserve.
        """
        queue, reserved = entry.queue, {}
        for pair, amount in entry.assignment.usage.items():
            cell = queue.node.cell(pair)
            # What those who go still use is not free to reserve.
            used = cell.usage + self.snapshot.evicted_usage(queue, pair)
            if entry.assignment.borrowing == 0:
                # Never more than its own nominal quota leaves, or it would keep others from theirs.
                amount = max(0, min(amount, cell.nominal - used))
            elif cell.borrowing_limit is not None:
                amount = min(amount, cell.nominal + cell.borrowing_limit - used)
            reserved[pair] = amount
        return reserved


def _nodes_of(places: Iterable[Place]) -> set[tuple[str, ...]]:
    return {domain.values for place in places for domain in place.assignment.domains}
