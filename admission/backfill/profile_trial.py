"""The snapshot as the stage that the profile's searches walk on, and the request that looks for a start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import structs

from admission.decisions.assignment import Assignment, Mode
from admission.decisions.flavor_mode import Grade, Granular
from admission.flavors.feasibility import may_have_quota, rooms_of
from admission.flavors.flavor_assigner import FlavorSearch
from admission.flavors.topology_assigner import place
from admission.nomination.nominate import CyclePolicy
from admission.snapshot.snapshot import QueueState, Snapshot
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import Rooms, Spots
from queues.quota.resources import FlavorResource, Quantities
from queues.steps import finish


@dataclass(frozen=True, slots=True)
class SnapshotStage:
    """Changes of claims, carried out on the quota trees and nodes that a snapshot borrows."""

    snapshot: Snapshot

    def charge(self, queue: str, usage: Quantities) -> None:
        """Count this much more of the queue's quota as used from here on; below 0: as free."""
        state = self.snapshot.queues.get(queue)
        if state is not None:
            state.node.change(usage)

    def shift(self, queue: str, amounts: Quantities) -> None:
        """Take the queue's own nominal quota to be less by this much from here on; below 0: more."""
        state = self.snapshot.queues.get(queue)
        if state is not None:
            for pair, amount in amounts.items():
                state.node.shift(pair, -amount)

    def occupy(self, spots: Spots) -> None:
        """Count this much more of the spots as taken from here on; below 0: as free."""
        self.snapshot.topology_cache.occupy(spots)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartClaim:
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

    def may_have_quota(self) -> bool:
        """Return False only where the quota does not suffice, with the fewest pods that it may run with."""
        return may_have_quota(self.snapshot, self.queue, self.pending)

    def rooms(self) -> Rooms:
        """Return the rooms that its pod sets need one of each."""
        return rooms_of(self.snapshot, self.queue, self.pending)

    def find(self) -> StartClaim | None:
        """Return what it would run on if it began now."""
        assigned = self._search.assign(self.counts)
        assignment = finish(place(self.snapshot, self.queue, self.pending, assigned))
        if assignment.mode is not Mode.FIT:
            return None
        # Worked out only where there is a topology: quota alone stands on no nodes.
        spots = self.snapshot.topology_cache.spots(assignment.places) if assignment.places else {}
        return StartClaim(usage=assignment.usage, spots=spots, assignment=assignment)

    def spots_of(self, value: StartClaim) -> Spots:
        """Return the spots that were found."""
        return value.spots

    def has_quota(self, value: StartClaim) -> bool:
        """Return whether that quota is free."""
        return self.queue.node.fits(value.usage)

    def has_spots(self, value: StartClaim) -> bool:
        """Return whether those spots are free."""
        return not value.spots or self.snapshot.topology_cache.has_free(value.spots)
