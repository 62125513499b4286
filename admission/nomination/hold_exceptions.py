"""What is kept from the heads of all queues but one: a more important head of that queue passes it.

Such a claim (`admission.snapshot.capacity_holds`) cannot stand on the picture of the whole cycle, as others
do: the head that passes it would meet it too. So the picture is changed before each head has its turn, to
what it is to meet:

    picture            heads                                             the claim's victims    its room
    without the claim  of its own queue, and who is owed room itself     still there            free
    with it            of all other queues                               gone                   taken

With it the picture is the one that these heads meet in a cycle in which nobody passes the claim, so all that
follows is decided alike: where else a head could go, whom it would evict, what is left over for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from admission.nomination.nominate import Entry
from admission.placement.topology.place import Place
from admission.snapshot.capacity_holds import HoldClaim
from admission.snapshot.snapshot import HeldWorkload, QueueState, Snapshot
from api.workload import WorkloadKey
from queues.quota.resources import Quantities


@dataclass(slots=True, kw_only=True)
class HoldExceptions:
    """The claims of one cycle that a head passes, and which of them its picture shows at present."""

    snapshot: Snapshot
    claims: tuple[HoldClaim, ...] = ()
    _shown: tuple[HoldClaim, ...] = ()
    # Victims that are gone because of what is shown, and for no other reason.
    _gone: dict[WorkloadKey, tuple[QueueState, HeldWorkload]] = field(default_factory=dict)

    def kept_from(self, entry: Entry) -> tuple[HoldClaim, ...]:
        """Return which of the claims the entry has to leave alone.

        None for whom room is kept itself: refused for another's sake, it would lose that to a third.
        """
        if not self.claims or entry.is_preemptor:
            return ()
        return tuple(claim for claim in self.claims if claim.queue is not entry.queue)

    def show(self, claims: tuple[HoldClaim, ...]) -> None:
        """Make the picture show these of the claims, and no others. It stays so until the next call."""
        # Mostly one head after another is to meet the same; else they differ by the claims of one queue.
        if claims == self._shown:
            return
        wanted, shown = set(map(id, claims)), set(map(id, self._shown))
        leaving = {held.key: (queue, held) for claim in claims for queue, held in claim.victims}
        for claim in self._shown:
            if id(claim) not in wanted:
                self.snapshot.release(claim.queue, claim.usage, claim.places)
        for key in [key for key in self._gone if key not in leaving]:
            self.snapshot.readmit(*self._gone.pop(key))
        # All victims first: several may wait for what one leaves.
        for key, (queue, held) in leaving.items():
            if not self.snapshot.is_gone(held):
                self.snapshot.evict(queue, held)
                self._gone[key] = queue, held
        for claim in claims:
            if id(claim) not in shown:
                self.snapshot.reserve(claim.queue, claim.usage, claim.places)
        self._shown = claims

    def expected(self) -> Iterator[tuple[QueueState, Quantities, tuple[Place, ...]]]:
        """Yield what the picture shows as taken, and is not yet."""
        return ((claim.queue, claim.usage, claim.places) for claim in self._shown)
