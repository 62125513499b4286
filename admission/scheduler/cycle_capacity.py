"""What the entries of a cycle still find: the snapshot, with what earlier entries took, hold or wait for.

The invariants: quota and places that one head was given are used up for all later heads; what an evicted
Workload leaves beyond its preemptor's need is not used before it has stopped. Workloads that are evicted are
off the snapshot from then on, and their capacity is reserved on it for those that wait for them:

    started     its usage, for good
    expected    what an entry will have once its targets and others have stopped (`expect`)
    reserved    for this cycle only, for an entry that is not admitted (`reserve_for_cycle`)
    held        what Workloads that are not tried in this cycle wait for (`keep`)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from admission.nomination.nominate import Entry
from admission.placement.topology.place import Place
from admission.preemption.targets import Target
from admission.scheduler.hold_exceptions import HoldExceptions
from admission.snapshot.capacity_holds import HoldClaims, holds_room
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.workload import WorkloadKey
from queues.quota.resources import FlavorResource, Quantities

# Whether a Workload (key, uid) has waited long enough for these to leave: no capacity is held
# for it any more.
IsSpent = Callable[[WorkloadKey, str, Iterable[WorkloadKey]], bool]

# The quota of which an entry has too little, and whether its places are taken.
Lack = tuple[frozenset[FlavorResource], bool]
NOTHING_LACKED: Lack = frozenset(), False


@dataclass(slots=True, kw_only=True)
class CycleCapacity:
    """The capacity of one cycle, on its snapshot. The caller rolls the snapshot back at the end."""

    snapshot: Snapshot
    is_spent: IsSpent | None = None
    # Capacity that entries of this cycle wait for, reserved until those who hold it have left.
    _expected: list[tuple[QueueState, Quantities, tuple[Place, ...]]] = field(default_factory=list)
    # Capacity reserved for this cycle only, for heads that are not admitted.
    _reserved: list[tuple[QueueState, Quantities, tuple[Place, ...]]] = field(default_factory=list)
    # Queues whose head started within nominal quota, though capacity has come free that their next may need,
    # and what the head took.
    _owners: list[tuple[QueueState, Quantities]] = field(default_factory=list)
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

    # --- what an entry finds -----------------------------------------------------------------------------

    def is_for_owners(self, entry: Entry) -> bool:
        """Return whether the entry would borrow what has come free and its owner's next head may need.

        A cycle takes one head of each ClusterQueue, but several Workloads may have ended since the last. A
        borrower that started now would be evicted in the next cycle, to reclaim what it took. It is tried
        again in that cycle, at the same instant. It does not wait for ever, since an owner's start precedes
        each such refusal. Where nothing has come free, a cycle decides as Kueue's.
        """
        assignment = entry.assignment
        if not self._owners or assignment.borrowing == 0 or not entry.will_fit:
            return False
        return any(
            queue is not entry.queue
            and queue.tree is entry.queue.tree
            and queue.pending.has_head()
            and not usage.keys().isdisjoint(assignment.usage)
            for queue, usage in self._owners
        )

    def is_pushed_out(self, entry: Entry) -> bool:
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
        return not self.overlaps(entry) and self.fits(entry)

    def overlaps(self, entry: Entry) -> bool:
        """Return whether an earlier entry of this cycle evicts one of its targets."""
        return any(self.snapshot.evictions.is_gone(target.held) for target in entry.targets)

    def fits(self, entry: Entry) -> bool:
        """Return whether its quota and places are free once its targets, and all of this cycle, are gone."""
        has_quota, has_places = self._fit(entry)
        return has_quota and has_places

    def is_out_of_place(self, entry: Entry) -> bool:
        """Return whether its quota is free, but its places have been taken in this cycle."""
        has_quota, has_places = self._fit(entry)
        return has_quota and not has_places

    def is_displaced(self, entry: Entry) -> bool:
        """Return whether its places are free except for what heads of other trees reserve for this cycle.

        Heads of its own tree do not count: they are tried again with it as long as anything changes there.
        """
        others = [one for one in self._reserved if one[2] and one[0].tree is not entry.queue.tree]
        if not others:
            return False
        with self.snapshot.trial.without_usage(others):
            return self.fits(entry)

    def _fit(self, entry: Entry) -> tuple[bool, bool]:
        """Return whether its quota, and with that also its places are free once its targets are gone."""
        if not entry.targets and entry.replaced is None:
            return self._fits_now(entry)
        # Only for this check; at the end of the block the targets are back on the snapshot.
        with self.snapshot.trial.without(self._making_way(entry)):
            return self._fits_now(entry)

    def _making_way(self, entry: Entry) -> Iterator[tuple[QueueState, HeldWorkload]]:
        """Yield what the entry takes the place of: its targets, and the slice that it replaces."""
        yield from ((target.queue, target.held) for target in entry.targets)
        if (replaced := self._replaced(entry)) is not None:
            yield entry.queue, replaced

    def _replaced(self, entry: Entry) -> HeldWorkload | None:
        """Return the slice that the entry replaces; None for one that this cycle evicts for another."""
        replaced = entry.replaced
        return None if replaced is None or self.snapshot.evictions.is_gone(replaced) else replaced

    def without_replaced(self, entry: Entry) -> AbstractContextManager[None]:
        """Return a block in which the slice that the entry replaces counts as gone."""
        return self.snapshot.evictions.handed_over(entry.queue, self._replaced(entry))

    def _fits_now(self, entry: Entry) -> tuple[bool, bool]:
        assignment = entry.assignment
        # Places are no question for most heads of a busy cohort: another has taken the quota.
        if not entry.queue.node.fits(assignment.usage):
            return False, False
        places = assignment.places
        return True, not places or self.snapshot.topology_cache.usage.fits(places)

    def lack(self, entry: Entry) -> Lack:
        """Return the quota of which the entry has too little, and whether its places are taken.

        This is as long as the Workloads evicted in this cycle, other than its own targets, still run. On the
        snapshot they are gone, and their capacity is reserved for their preemptors. What they leave over
        beyond that is free only once they have stopped: an entry that started on it now would run beside
        them, on capacity that they still use.
        """
        # Without evictions in this cycle, what is free on the snapshot is free.
        if not self.snapshot.evictions.has_gone:
            return NOTHING_LACKED
        usage, places, node = entry.assignment.usage, entry.assignment.places, entry.queue.node
        with (
            self.snapshot.evictions.taken_back((*self._expected, *self._passed.expected()), places),
            self.snapshot.trial.without(self._making_way(entry)),
        ):
            lacking = frozenset(pair for pair, amount in usage.items() if not node.fits({pair: amount}))
            return lacking, not self.snapshot.topology_cache.usage.fits(places)

    def awaited(self, entry: Entry, lack: Lack | None = None) -> list[HeldWorkload]:
        """Return the Workloads leaving for others that hold what the entry lacks, in quota or on nodes.

        What its own targets leave does not count as lacking. `lack` is the result of `lack` if known.
        """
        # Asked first: thousands of Workloads may be leaving.
        if not holds_room(entry.queue.policy):
            return []
        own = {target.held.key for target in entry.targets}
        others = [(queue, held) for queue, held in self.snapshot.evictions.leaving() if held.key not in own]
        if not others:
            return []
        lacking, lacks_places = self.lack(entry) if lack is None else lack
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

    # --- what an entry takes -----------------------------------------------------------------------------

    def evict(self, target: Target) -> None:
        """Take the Workload off the snapshot. `expect` holds its capacity for its preemptor."""
        self.snapshot.evictions.evict(target.queue, target.held)

    def start(self, entry: Entry) -> None:
        """Let the entry use what it was nominated for."""
        queue, assignment = entry.queue, entry.assignment
        if (replaced := self._replaced(entry)) is not None:
            self.snapshot.evictions.hand_over(queue, replaced)
        self.snapshot.trial.reserve(queue, assignment.usage, assignment.places)
        if assignment.borrowing == 0 and queue.pending.may_start_more:
            self._owners.append((queue, assignment.usage))

    def expect(self, entry: Entry, others: Iterable[HeldWorkload]) -> None:
        """Hold for the entry what it will have once its targets and `others` have stopped.

        Nothing is held where it has waited for them too long: later entries would be refused for capacity
        that no Workload gets.
        """
        workload, victims = entry.pending.workload, [target.held for target in entry.targets]
        if self.is_spent is not None and all(held.is_evicted for held in victims):
            awaited = [held.key for held in (*victims, *others)]
            if awaited and self.is_spent(workload.key, workload.uid, awaited):
                return
        if (replaced := self._replaced(entry)) is not None:
            # It runs until then, so what it has is no more free than what the targets have.
            self.snapshot.evictions.evict(entry.queue, replaced)
        self._expected.append((entry.queue, entry.assignment.usage, entry.assignment.places))
        self.start(entry)

    def reserve_for_cycle(self, entry: Entry, places: tuple[Place, ...]) -> None:
        """Reserve `places` and quota for this cycle, for an entry that needs evictions it may not do.

        Without this, later heads of other queues would take whatever comes free, for ever. The entry reserves
        up to its nominal quota, or up to its borrowing limit if it borrows.
        Source: Kueue, scheduler.go, quotaResourcesToReserve.
        """
        queue, reserved = entry.queue, {}
        for pair, amount in entry.assignment.usage.items():
            cell = queue.node.cell(pair)
            # What it has by the slice that it replaces need not be reserved.
            if entry.replaced is not None:
                amount = max(0, amount - entry.replaced.usage.get(pair, 0))
            # Quota still used by Workloads that are being evicted is not free to reserve.
            used = cell.usage + self.snapshot.evictions.usage(queue, pair)
            if entry.assignment.borrowing == 0:
                # Reserving more than its nominal quota leaves would keep other queues from theirs.
                amount = max(0, min(amount, cell.nominal - used))
            elif cell.borrowing_limit is not None:
                amount = min(amount, cell.nominal + cell.borrowing_limit - used)
            reserved[pair] = amount
        self._reserved.append((queue, reserved, places))
        self.snapshot.trial.reserve(queue, reserved, places)


def _nodes_of(places: Iterable[Place]) -> set[tuple[str, ...]]:
    """Return the domains of the lowest level that these places use."""
    return {domain.values for place in places for domain in place.assignment.domains}
