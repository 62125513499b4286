"""Capacity holds that some heads ignore: the snapshot is switched from head to head.

A head of higher priority in the hold's own ClusterQueue ignores the hold; the heads of all other queues
respect it. Such a claim (`admission.snapshot.capacity_holds`) cannot be applied for the whole cycle as the
others are, because the head that ignores it would be restricted by it too. So the snapshot is changed before
each head is tried:

    snapshot           heads                                           the claim's victims    its capacity
    without the claim  of its own queue, and heads with own holds      still there            free
    with the claim     of all other queues                             gone                   taken

With the claim, the snapshot is the same as in a cycle in which no head ignores it. So everything that follows
is decided alike: where else a head could go, which Workloads it would evict, what capacity is left for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from admission.nomination.nominate import Entry
from admission.placement.topology.place import Place
from admission.snapshot.capacity_holds import HoldClaim
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.workload import WorkloadKey
from queues.quota.resources import Quantities


@dataclass(slots=True, kw_only=True)
class HoldExceptions:
    """The claims of one cycle that some head ignores, and which of them the snapshot has applied now."""

    snapshot: Snapshot
    claims: tuple[HoldClaim, ...] = ()
    _shown: tuple[HoldClaim, ...] = ()
    # Victims that are gone because of the claims applied now, and for no other reason.
    _gone: dict[WorkloadKey, tuple[QueueState, HeldWorkload]] = field(default_factory=dict)

    def claims_against(self, entry: Entry) -> tuple[HoldClaim, ...]:
        """Return the claims that the entry has to respect.

        An entry that is a preemptor respects none. If it were refused because of another Workload's claim, it
        would lose the capacity held for it to a third.
        """
        if not self.claims or entry.is_preemptor:
            return ()
        return tuple(claim for claim in self.claims if claim.queue is not entry.queue)

    def show(self, claims: tuple[HoldClaim, ...]) -> None:
        """Apply exactly these claims to the snapshot. They stay applied until the next call."""
        # Usually consecutive heads need the same claims; otherwise they differ by the claims of one queue.
        if claims == self._shown:
            return
        wanted, shown = set(map(id, claims)), set(map(id, self._shown))
        leaving = {held.key: (queue, held) for claim in claims for queue, held in claim.victims}
        for claim in self._shown:
            if id(claim) not in wanted:
                self.snapshot.trial.release(claim.queue, claim.usage, claim.places)
        for key, (queue, held) in list(self._gone.items()):
            if key not in leaving:
                self.snapshot.evictions.readmit(queue, held)
                del self._gone[key]
        # All victims before any claim: several claims may need the capacity of one victim.
        for key, (queue, held) in leaving.items():
            if not self.snapshot.evictions.is_gone(held):
                self.snapshot.evictions.evict(queue, held)
                self._gone[key] = queue, held
        for claim in claims:
            if id(claim) not in shown:
                self.snapshot.trial.reserve(claim.queue, claim.usage, claim.places)
        self._shown = claims

    def expected(self) -> Iterator[tuple[QueueState, Quantities, tuple[Place, ...]]]:
        """Yield the usage that the applied claims count as taken although it is not taken yet."""
        return ((claim.queue, claim.usage, claim.places) for claim in self._shown)
