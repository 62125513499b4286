"""The snapshot as the stage that the profile's searches walk on, and the request that looks for a start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from admission.assignment import Assignment, Mode
from admission.flavors import FlavorSearch
from admission.grades import Grade, Granular
from admission.nomination import CyclePolicy
from admission.snapshot import QueueState, Snapshot
from queues.pending import Pending
from queues.profile import Claim, Spots
from queues.resources import FlavorResource, Quantities


@dataclass(frozen=True, slots=True)
class SnapshotStage:
    """Changes of claims, carried out on the quota trees and nodes that a snapshot borrows."""

    snapshot: Snapshot

    def change(self, claim: Claim, sign: int) -> None:
        """Count the claim as used from here on (1), or as free (-1)."""
        queue = self.snapshot.queues.get(claim.queue)
        if queue is not None and claim.usage:
            (queue.node.add if sign > 0 else queue.node.remove)(claim.usage)
        if queue is not None and claim.quota:
            for pair, amount in claim.quota.items():
                queue.node.shift(pair, -sign * amount)
        if claim.spots:
            self.snapshot.fleet.occupy(claim.spots, sign=sign)

    def occupy(self, spots: Spots, sign: int) -> None:
        """Count spots alone as taken (1), or as free again (-1)."""
        if spots:
            self.snapshot.fleet.occupy(spots, sign=sign)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footing:
    """What a Workload would run on: quota of its ClusterQueue, and spots. `assignment` None: as promised."""

    usage: Quantities
    spots: Spots
    assignment: Assignment | None = None


class _NoEvictions:
    """An oracle for searches in the future: whoever runs then has not been asked."""

    def grade(
        self,
        _queue: QueueState,
        _pending: Pending,
        _pair: FlavorResource,
        _amount: int,
        height: int,
    ) -> Grade:
        """Return that evictions would not help."""
        return Grade(Granular.NO_CANDIDATES, height)


_NO_EVICTIONS = _NoEvictions()


@dataclass(slots=True, kw_only=True)
class StartTrial:
    """One pending Workload in search of its start, with all its pods unless `counts` says fewer.

    Flavors are searched from the first, and without evictions: a promise does not count on them.
    """

    snapshot: Snapshot
    queue: QueueState
    pending: Pending
    policy: CyclePolicy
    counts: Sequence[int] | None = None
    _search: FlavorSearch = field(init=False)

    def __post_init__(self) -> None:
        self._search = FlavorSearch(
            snapshot=self.snapshot,
            queue=self.queue,
            pending=structs.replace(self.pending, scan=None),
            oracle=_NO_EVICTIONS,
            is_fair_sharing=self.policy.fair_sharing is not None,
            quota_check=self.policy.quota_check,
        )

    def find(self) -> Footing | None:
        """Return what it would run on if it began now."""
        assignment = self._search.assign(self.counts)
        if assignment.mode is not Mode.FIT:
            return None
        spots = self.snapshot.fleet.spots(assignment.places) if assignment.places else {}
        return Footing(usage=assignment.usage, spots=spots, assignment=assignment)

    def holds(self, value: Footing) -> bool:
        """Return whether that quota and those spots are free."""
        fleet = self.snapshot.fleet
        return self.queue.node.fits(value.usage) and (not value.spots or fleet.has_free(value.spots))
