"""The snapshot and a pending Workload in the terms of the profile's searches (`queues.profile`).

The searches know neither flavors nor topologies. `SnapshotStage` applies the claims that they pass to the
snapshot, and `StartTrial` asks there whether the Workload would fit.
"""

from __future__ import annotations

from collections.abc import KeysView, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from admission.decisions.assignment import Assignment, Mode
from admission.decisions.flavor_mode import Grade, Granular
from admission.flavors.feasibility import may_have_quota, rooms_of
from admission.flavors.flavor_assigner import FlavorSearch, Pins
from admission.flavors.topology_assigner import place, place_again, with_requests
from admission.nomination.nominate import CyclePolicy
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.workload import Admission
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import Rooms, Spots
from queues.quota.resources import FlavorResource, Quantities
from queues.steps import finish


@dataclass(frozen=True, slots=True)
class SnapshotStage:
    """Applies changes of claims to the quota trees and nodes of a snapshot.

    The exact inverse of each method is the same call with negated amounts. Queues that no longer exist are
    ignored, since their claims are about to be dropped.
    """

    snapshot: Snapshot

    def charge(self, queue: str, usage: Quantities) -> None:
        """Count this much more of the queue's quota as used from here on; less if negative."""
        state = self.snapshot.queues.get(queue)
        if state is not None:
            state.node.change(usage)

    def shift(self, queue: str, amounts: Quantities) -> None:
        """Reduce the queue's own nominal quota by these amounts from here on; raise it if negative."""
        state = self.snapshot.queues.get(queue)
        if state is not None:
            for pair, amount in amounts.items():
                state.node.shift(pair, -amount)

    def occupy(self, spots: Spots) -> None:
        """Count this much more of the spots as occupied from here on; less if negative."""
        self.snapshot.topology_cache.usage.occupy(spots)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartClaim:
    """What a Workload would run on: quota and spots. `assignment` is None for what was already promised.

    `usage` is in each resource's unit, by flavor and resource, for all pods together.
    """

    usage: Quantities
    spots: Spots
    assignment: Assignment | None = None


class _NoEvictions:
    """An oracle for searches in the future: which Workloads run then, and may be evicted, is not known."""

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
    """One pending Workload whose start is searched for, with all its pods unless `counts` says fewer.

    Flavors are searched from the first one, and without evictions: a promise does not rely on them.

    Implements `queues.profile.capacity_profile.Trial`. With `counts` the pods of each pod set are as many as
    nominated, which partial admission has lowered.
    """

    snapshot: Snapshot
    queue: QueueState
    pending: Pending
    policy: CyclePolicy
    counts: Sequence[int] | None = None
    _search: FlavorSearch = field(init=False)

    def __post_init__(self) -> None:
        self._search = self._search_among(None)

    def _search_among(self, pins: Pins | None) -> FlavorSearch:
        return FlavorSearch(
            snapshot=self.snapshot,
            queue=self.queue,
            pending=structs.replace(self.pending, scan=None),
            oracle=_NO_EVICTIONS,
            is_fair_sharing=self.policy.fair_sharing is not None,
            quota_check=self.policy.quota_check,
            pins=pins,
        )

    def may_have_quota(self) -> bool:
        """Return False only where the quota cannot suffice, even with the fewest pods allowed."""
        return may_have_quota(self.snapshot, self.queue, self.pending)

    def rooms(self) -> Rooms:
        """Return the alternatives of room on nodes that its pod sets need, one of each."""
        return rooms_of(self.snapshot, self.queue, self.pending)

    def find(self) -> StartClaim | None:
        """Return what it would run on if it started at the present instant of the stage; None if no fit.

        The whole search for flavors and places, at a cost of up to milliseconds for a gang on thousands of
        nodes.
        """
        assigned = self._search.assign(self.counts)
        asking = with_requests(self.snapshot, self.queue, self.pending, assigned)
        assignment = finish(place(self.snapshot, asking))
        if assignment.mode is not Mode.FIT:
            return None
        # Spots are computed only if there is a topology; quota alone occupies no nodes.
        spots = self.snapshot.topology_cache.usage.spots(assignment.places) if assignment.places else {}
        return StartClaim(usage=assignment.usage, spots=spots, assignment=assignment)

    def again(self, admission: Admission) -> Assignment | None:
        """Return the assignment of exactly this admission at the present instant of the stage.

        None where its flavors or places are not free, or no longer usable, or its pods are not those asked
        about.
        """
        counts = [one.count for one in admission.pod_sets]
        if self.counts is not None and counts != list(self.counts):
            return None
        assigned = self._search_among([one.flavors for one in admission.pod_sets]).assign(counts)
        if assigned.mode is not Mode.FIT:
            return None
        return place_again(self.snapshot, self.queue, self.pending, assigned, admission)

    def pairs_of(self, value: StartClaim) -> KeysView[FlavorResource]:
        """Return the flavors and resources of what `find` returned."""
        return value.usage.keys()

    def spots_of(self, value: StartClaim) -> Spots:
        """Return the spots of what `find` returned."""
        return value.spots

    def has_quota(self, value: StartClaim) -> bool:
        """Return whether the quota of `value` is free."""
        return self.queue.node.fits(value.usage)

    def has_spots(self, value: StartClaim) -> bool:
        """Return whether the spots of `value` are free."""
        return not value.spots or self.snapshot.topology_cache.usage.has_free(value.spots)
