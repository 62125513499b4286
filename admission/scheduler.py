"""One cycle: the heads of the ClusterQueues, and what becomes of each.

    1 nominate  give every head the best flavors it could have, as if it were alone
    2 order     who others were evicted for, then least borrowing, then priority, then age
    3 process   in that order, on top of what those before it took: admit, evict others for it, or wait

A cycle takes one head of each ClusterQueue. All of them are nominated on the same picture; one that no longer
fits when its turn comes is tried again next cycle. Nothing is written here: the outcomes say what to do.
Source: Kueue, pkg/scheduler/scheduler.go.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from admission.assignment import Mode
from admission.backfill.judge import Verdict
from admission.backfill.work import Backfill
from admission.decision import Admit, Evict, Wait
from admission.entry_order import classical_order, fair_order
from admission.holds import Claim
from admission.nomination import CyclePolicy, Entry, find_rejection, nominate
from admission.placement.fleet import Place
from admission.preemption.loss import Losses
from admission.preemption.preemptor import Preemptor, eviction_message
from admission.preemption.saves import asked_first, leaving_seconds
from admission.preemption.targets import Target
from admission.runtimes import eviction_seconds
from admission.snapshot import Held, QueueState, Snapshot
from admission.steps import Steps
from api.keys import JOB_UID
from api.queueing import CheckRule, PreemptionPolicy
from api.reasons import EvictionReason, PendingReason
from api.workload import Admission, WorkloadKey, to_rfc3339
from queues.pending import FlavorScan, Pending, RequeueReason
from queues.promises import BackfillLease, PlannedStart
from queues.resources import FlavorResource, Quantities

_STILL_TAKEN = "Workload fits only where preempted workloads are still running"


class Recomputation(StrEnum):
    """What a second search for victims gave, after another head had taken one. The words of metrics."""

    NEW_TARGETS = "new_targets"
    DEFERRED_FIT = "deferred_fit"
    SKIPPED = "skipped"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one head: admitted (`requeue` is None), or back to its queue for a reason.

    `evictions` make room for it in a later cycle. `scan` is where its next search through the flavors begins.
    `is_preemption_skipped`: it had victims, but another head of this cycle was in the way.
    """

    queue: QueueState
    pending: Pending
    decision: Admit | Wait
    requeue: RequeueReason | None = None
    scan: FlavorScan | None = None
    evictions: tuple[Evict, ...] = ()
    # Whose end it waits for: those of `evictions`, and those who had been told before, for it or for others.
    awaits: tuple[WorkloadKey, ...] = ()
    # Evictions of those who save for somebody else already: they go on for this one if that one goes away.
    joins: tuple[Evict, ...] = ()
    is_preemption_skipped: bool = False
    # When somebody that a policy spares for now may be evicted for it; infinity: not by time alone.
    spared_until: float | None = None
    recomputation: Recomputation | None = None
    # What an admission charges, pairs of zero amount included; of a preemption what it will, and where, and
    # how that will stand in its status.
    usage: Quantities = msgspec.field(default_factory=dict)
    places: tuple[Place, ...] = ()
    admission: Admission | None = None
    lease: BackfillLease | None = None
    # For how long it would be in the way of promises, where others as long need not be tried.
    seconds: float | None = None


def schedule(
    snapshot: Snapshot,
    heads: Iterable[tuple[QueueState, Pending]],
    *,
    policy: CyclePolicy,
    now: float,
    backfill: Backfill | None = None,
    claims: Iterable[Claim] = (),
) -> Generator[None, None, tuple[Outcome, ...]]:
    """Return what becomes of each head, in the order to be carried out; yield after each look at one of them.

    `heads` holds at most one Workload of each ClusterQueue. The snapshot is left as it was found. With
    `backfill` promised starts are kept, and more are promised. `claims` are kept from all heads.
    """
    # One for the cycle: what evicting a victim costs is worked out once, however many ask.
    losses = Losses(now=now)
    preemptor = Preemptor(snapshot=snapshot, losses=losses, fair_sharing=policy.fair_sharing)
    cycle = _Cycle(snapshot=snapshot, policy=policy, preemptor=preemptor, now=now, backfill=backfill)
    # Before the first head is nominated, so that none finds room there.
    cycle.keep(claims)
    entries: list[Entry] = []
    outcomes: list[Outcome] = []
    for queue, pending in heads:
        rejection = find_rejection(snapshot, queue, pending)
        if rejection is not None:
            # It needs no picture, and so no place in the order.
            outcomes.append(_lost(queue, pending, rejection.reason, rejection.message, rejection.requeue))
        else:
            found = yield from nominate(snapshot, queue, pending, preemptor=preemptor, policy=policy)
            entries.append(found)
        yield
    is_fair = policy.fair_sharing is not None
    # All are nominated first: the order is by what each would borrow.
    in_order = fair_order(snapshot, entries) if is_fair else classical_order(entries)
    for entry in in_order:
        outcome = yield from cycle.process(entry)
        spared_until = losses.spared.get(entry.queue.name) if outcome.requeue is not None else None
        # Only for those who wait: who starts needs nobody's time to run out.
        outcomes.append(replace(outcome, spared_until=spared_until) if spared_until else outcome)
        yield
    # Whatever was tried; the outcomes are carried into the state one by one.
    snapshot.rollback()
    if backfill is not None:
        backfill.finish()
    return tuple(outcomes)


def required_checks(rules: Sequence[CheckRule], admission: Admission) -> tuple[str, ...]:
    """Return the admission checks that the assigned flavors require, in order of name.

    A Workload without any flavor needs none. Source: Kueue, pkg/workload/admissionchecks.go.
    """
    if not rules:
        return ()
    assigned = {flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()}
    applying = [rule.name for rule in rules if not rule.on_flavors or rule.on_flavors & assigned]
    return tuple(sorted(applying)) if assigned else ()


@dataclass(slots=True, kw_only=True)
class _Cycle:
    """The third step. Whose eviction is decided is gone from the picture for those after."""

    snapshot: Snapshot
    policy: CyclePolicy
    preemptor: Preemptor
    now: float
    backfill: Backfill | None = None
    _expected: list[tuple[QueueState, Quantities, tuple[Place, ...]]] = field(default_factory=list)

    def keep(self, claims: Iterable[Claim]) -> None:
        """Keep what was freed, or is being freed, for Workloads that are not tried in this cycle."""
        claims = tuple(claims)
        # All victims first: several may wait for what one leaves.
        for queue, held in (victim for claim in claims for victim in claim.victims):
            if not self.snapshot.is_gone(held):
                self.snapshot.evict(queue, held)
        for claim in claims:
            self._expected.append((claim.queue, claim.usage, claim.places))
            # Reserved though it may not fit: what others free for it on the way must not be taken.
            self.snapshot.reserve(claim.queue, claim.usage, claim.places)

    def process(self, entry: Entry) -> Steps[Outcome]:
        """Return what becomes of the entry on top of what those before it took."""
        if entry.targets and self._overlaps(entry):
            again = yield from self._nominate_again(entry)
            again = self._to_deferred(again)
            # An earlier head of this cycle evicts one of its victims too, so that the choice has to
            # be made again.
            outcome = self._settle(again)
            return replace(outcome, recomputation=_recomputation(again, outcome))
        if self._is_out_of_place(entry):
            entry = yield from self._nominate_again(entry)
        return self._settle(entry)

    def _settle(self, entry: Entry) -> Outcome:
        mode, queue = entry.assignment.mode, entry.queue
        # The common case, spared the trial of places and promises.
        if mode is Mode.FIT and not entry.assignment.places and self.backfill is None:
            return self._admit(entry)
        if mode is Mode.NO_FIT:
            requeue = RequeueReason.HELD_BACK if self._plan(entry) else RequeueReason.NO_FIT
            return _waiting(entry, entry.assignment.no_fit_reason(), requeue)
        if mode is Mode.PREEMPT and not entry.targets:
            is_any = queue.spec.preemption.reclaim_within_cohort is PreemptionPolicy.ANY
            # A promise keeps the capacity for longer than a cycle, and from when it is needed.
            if self._plan(entry):
                return _waiting(entry, PendingReason.WAITING_FOR_QUOTA, RequeueReason.HELD_BACK)
            # Under `Any` what comes free is reclaimed when its turn comes; nothing has to be kept
            # for it.
            if not is_any or entry.is_preemptor:
                self.snapshot.reserve(queue, self._to_reserve(entry), self._places_to_reserve(entry))
            return _waiting(entry, PendingReason.WAITING_FOR_QUOTA, RequeueReason.PREEMPTION_NO_CANDIDATES)
        if mode is Mode.DEFERRED_FIT:
            self._expect(entry)
            reason = PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS
            return _waiting(entry, reason, RequeueReason.PENDING_PREEMPTION)
        if self._overlaps(entry):
            return _skipped(entry, "Workload has overlapping preemption targets with another workload")
        if not self._fits(entry):
            return _skipped(entry, "Workload no longer fits after processing another workload")
        verdict = self.backfill.judge(entry) if self.backfill is not None else Verdict(entry=entry)
        if verdict.kept_from is not None:
            # Even who is kept by the calendar may be promised a start after the appointment.
            self._plan(entry)
            return _kept_back(entry, verdict.kept_from)
        if verdict.behind is not None:
            # Whoever is promised a start is tried again by itself, as its time comes.
            too_long = None if self._plan(entry) else verdict.too_long
            return _held_back(entry, verdict.behind, too_long)
        return self._take(verdict)

    def _take(self, verdict: Verdict) -> Outcome:
        """Give the entry what it was nominated for, or evict its targets first."""
        entry = verdict.entry
        for target in entry.targets:
            # Gone from the picture for those who follow, and kept for this one by `_expect`.
            self.snapshot.evict(target.queue, target.held)
        if entry.assignment.mode is Mode.PREEMPT:
            self._expect(entry)
            if self.backfill is not None:
                self.backfill.plan_after_evictions(entry)
            return _preempting(entry, now=self.now)
        if not self._is_free_now(entry):
            return _still_taken(entry, self.snapshot)
        self.snapshot.reserve(entry.queue, entry.assignment.usage, entry.assignment.places)
        if self.backfill is not None:
            self.backfill.note_admitted(verdict)
        return replace(_admitted(entry, now=self.now), lease=verdict.lease)

    def _plan(self, entry: Entry) -> bool:
        """Promise a start to an entry that waits. Returns whether it has a promise."""
        return self.backfill is not None and self.backfill.plan(entry)

    def _expect(self, entry: Entry) -> None:
        """Keep for the entry what it will have when those who give way for it have stopped."""
        usage, places = entry.assignment.usage, entry.assignment.places
        self._expected.append((entry.queue, usage, places))
        self.snapshot.reserve(entry.queue, usage, places)

    def _is_free_now(self, entry: Entry) -> bool:
        """Return whether there is room while those who are to give way in this cycle still run.

        The picture has them gone and their place kept for who evicts them. What they leave over beyond that
        is nobody's until they have stopped: an entry that started on it would run beside them.
        """
        # Nobody gives way in this cycle, so what the picture shows is free.
        if not self.snapshot.gone:
            return True
        with self.snapshot.with_evicted(), self.snapshot.without_usage(self._expected):
            return entry.queue.node.fits(entry.assignment.usage) and self.snapshot.fleet.fits(
                entry.assignment.places
            )

    def _admit(self, entry: Entry) -> Outcome:
        """Admit an entry that fitted when nominated and asks for quota alone, if it still fits."""
        # Nominated alone; heads before it may have taken its quota since.
        if not entry.queue.node.fits(entry.assignment.usage):
            return _skipped(entry, "Workload no longer fits after processing another workload")
        if not self._is_free_now(entry):
            return _still_taken(entry, self.snapshot)
        self.snapshot.reserve(entry.queue, entry.assignment.usage)
        return _admitted(entry, now=self.now)

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

    def _fit(self, entry: Entry) -> tuple[bool, bool]:
        """Return whether its quota, and whether its places are free once its victims are gone."""
        usage, places, node = entry.assignment.usage, entry.assignment.places, entry.queue.node
        if not entry.targets:
            return node.fits(usage), self.snapshot.fleet.fits(places)
        # Only to look: they are back in the picture at the end of the block.
        with self.snapshot.without((target.queue, target.held) for target in entry.targets):
            return node.fits(usage), self.snapshot.fleet.fits(places)

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


# --- outcomes --------------------------------------------------------------------------------------------


def _admitted(entry: Entry, *, now: float) -> Outcome:
    queue, workload = entry.queue, entry.pending.workload
    admission = entry.assignment.to_admission(queue.name)
    checks = required_checks(queue.spec.checks, admission)
    # Ready from an earlier admission: a check need not be made twice.
    ready = {check.name for check in workload.checks if check.state == "Ready"} if checks else checks
    decision = Admit(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        admission=admission,
        # Pods that have no place yet are not started, though their checks may be ready from before.
        is_admitted=all(check in ready for check in checks) and not admission.is_delayed,
        checks=checks,
        waited_seconds=max(0.0, now - entry.pending.queued_at),
        borrows=entry.assignment.borrowing > 0,
        strategy=entry.assignment.strategy,
    )
    usage = entry.assignment.usage
    return Outcome(queue=queue, pending=entry.pending, decision=decision, usage=usage)


def _preempting(entry: Entry, *, now: float) -> Outcome:
    """Evict the targets; the Workload itself comes back until their quota is free, its scan begun anew."""
    count = len(entry.targets)
    message = f"{entry.assignment.message()}. Pending the preemption of {count} workload(s)"
    outcome = _lost(
        entry.queue,
        entry.pending,
        PendingReason.WAITING_FOR_PREEMPTED_WORKLOADS,
        message,
        RequeueReason.PENDING_PREEMPTION,
    )
    # Some may be on their way out already, evicted for somebody else; they are not told again.
    fresh = [target for target in entry.targets if not target.held.is_evicted]
    # The preemptor starts when the slowest is gone, so that the others may take as long.
    slowest = max((leaving_seconds(one.held.workload, one.queue.policy) for one in fresh), default=0.0)
    evictions = tuple(
        asked_first(
            _evict(entry, target),
            target.held.workload,
            target.queue.policy,
            now=now,
            slack_seconds=slowest - eviction_seconds(target.held.workload),
        )
        for target in fresh
    )
    assignment = entry.assignment
    return replace(
        outcome,
        evictions=evictions,
        awaits=tuple(target.held.key for target in entry.targets),
        joins=tuple(_evict(entry, target) for target in entry.targets if target.held.is_saving),
        usage=assignment.usage,
        places=assignment.places,
        admission=assignment.to_admission(entry.queue.name),
    )


def _evict(entry: Entry, target: Target) -> Evict:
    preemptor, victim = entry.pending.workload, target.held.workload
    return Evict(
        key=victim.key,
        uid=victim.uid,
        resource_version=victim.resource_version,
        reason=EvictionReason.PREEMPTED,
        message=eviction_message(target, entry.queue, entry.pending, preemptor.labels.get(JOB_UID, "")),
        preemption_reason=target.reason,
        preemptor=preemptor.key,
        preemptor_uid=preemptor.uid,
        preempting_cluster_queue=entry.queue.name,
        cluster_queue=target.queue.name,
    )


def _waiting(entry: Entry, reason: PendingReason, requeue: RequeueReason) -> Outcome:
    message = entry.assignment.message()
    outcome = _lost(entry.queue, entry.pending, reason, message, requeue, scan=entry.assignment.scan)
    if reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED and isinstance(outcome.decision, Wait):
        return replace(outcome, decision=replace(outcome.decision, strategy=entry.assignment.strategy))
    return outcome


def _skipped(entry: Entry, message: str) -> Outcome:
    outcome = _lost(
        entry.queue,
        entry.pending,
        PendingReason.WAITING_FOR_QUOTA,
        message,
        RequeueReason.FAILED_AFTER_NOMINATION,
        scan=entry.assignment.scan,
    )
    return replace(outcome, is_preemption_skipped=bool(entry.targets))


def _still_taken(entry: Entry, snapshot: Snapshot) -> Outcome:
    """It needs no more than what others leave over who give way for somebody else."""
    assignment = entry.assignment
    return replace(
        _skipped(entry, _STILL_TAKEN),
        requeue=RequeueReason.STILL_TAKEN,
        usage=assignment.usage,
        places=assignment.places,
        admission=assignment.to_admission(entry.queue.name),
        awaits=tuple(held.key for held in snapshot.leaving() if _is_in_the_way(entry, held)),
    )


def _is_in_the_way(entry: Entry, held: Held) -> bool:
    """Return whether the one who leaves holds what the entry is to have: quota, or nodes where placed."""
    if not entry.assignment.places:
        return not held.pairs.isdisjoint(entry.assignment.usage)
    wanted = {domain.values for place in entry.assignment.places for domain in place.assignment.domains}
    return any(domain.values in wanted for place in held.places for domain in place.assignment.domains)


def _recomputation(entry: Entry, outcome: Outcome) -> Recomputation:
    if outcome.evictions:
        return Recomputation.NEW_TARGETS
    is_deferred = entry.assignment.mode is Mode.DEFERRED_FIT
    return Recomputation.DEFERRED_FIT if is_deferred else Recomputation.SKIPPED


def _held_back(entry: Entry, behind: PlannedStart, too_long: float | None) -> Outcome:
    """It fits, but starting it now would move a promised start."""
    message = (
        f"fits now, but would delay {behind.key}, which is promised to start at {to_rfc3339(behind.start_at)}"
    )
    requeue = RequeueReason.HELD_BACK if too_long is None else RequeueReason.TOO_LONG
    outcome = _lost(entry.queue, entry.pending, PendingReason.WAITING_FOR_QUOTA, message, requeue)
    return replace(outcome, seconds=too_long)


def _kept_back(entry: Entry, words: str) -> Outcome:
    """It fits, but not for as long as it will run, by the calendar."""
    message = f"fits now, but may still run when {words}"
    return _lost(
        entry.queue, entry.pending, PendingReason.WAITING_FOR_QUOTA, message, RequeueReason.HELD_BACK
    )


def _lost(
    queue: QueueState,
    pending: Pending,
    reason: PendingReason,
    message: str,
    requeue: RequeueReason,
    *,
    scan: FlavorScan | None = None,
) -> Outcome:
    workload = pending.workload
    decision = Wait(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=reason,
        message=message,
        requests=_requests(pending),
    )
    return Outcome(queue=queue, pending=pending, decision=decision, requeue=requeue, scan=scan)


def _requests(pending: Pending) -> Mapping[str, Mapping[str, int]]:
    return {requests.name: requests.total() for requests in pending.requests}
