"""Preemption for advance reservations: which Workloads are evicted when a reservation begins?

No Workload starts on capacity of a reservation if it is expected to run into it (`start_check`). So that
capacity is free at the start, unless a Workload overran its estimate or runs there as
`berth.dev/opportunistic`. Those are evicted early enough to be gone in time, the last started first, and no
more of them than needed:

    opportunistic             may run there whatever its length, and is evicted
    its estimate has passed   is evicted: a Workload that underestimates its run time bears the cost
    any other                 was there before the reservation was made, or may not be evicted: it stays, and
                              members of the reservation that need its place evict it by the ClusterQueue's
                              rules, as for any quota

If a domain is reserved as a whole, all such Workloads in it are evicted; for an amount of quota, the fewest.

Everything needed to decide is in the objects (estimate, annotation, start), so a new leader decides the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, KeysView
from dataclasses import dataclass
from typing import Never

from admission.backfill.profile_trial import SnapshotStage
from admission.backfill.running_estimates import started_at_of
from admission.backfill.schedule_plan import SchedulePlan
from admission.calendar.advance_reservations import ReservedCapacity
from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.workload import WorkloadKey
from queues.estimates.estimator import is_opportunistic, may_be_evicted
from queues.profile.capacity_profile import Edge, Rooms, Spots
from queues.profile.profile_walk import holds_at
from queues.profile.request_horizon import RequestHorizon
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource, Quantities


@dataclass(frozen=True, slots=True)
class _Amount:
    """A trial that asks whether a given amount of quota is free in a ClusterQueue; it asks for no nodes."""

    node: QuotaNode

    def find(self) -> Never:
        """Never called: the amount and its instant are given."""
        raise AssertionError("a reservation looks for no other start")

    def may_have_quota(self) -> bool:
        """Return True: the amount may fit."""
        return True

    def rooms(self) -> Rooms:
        """Return no rooms, since no places are asked for."""
        return ()

    def pairs_of(self, value: Quantities) -> KeysView[FlavorResource]:
        """Return the flavors and resources of the amount."""
        return value.keys()

    def spots_of(self, _value: Quantities) -> Spots:
        """Return no spots."""
        return {}

    def has_quota(self, value: Quantities) -> bool:
        """Return whether the amount is free at the instant that the walk has reached."""
        return self.node.fits(value)

    def has_spots(self, _value: Quantities) -> bool:
        """Return True, since no spots are asked for."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationPreemption:
    """Finds the Workloads to evict for reservations on one snapshot, which is left as it was found.

    `now` is in Unix seconds. Evicted are Workloads that occupy the reserved domain and, where quota is short
    at the begin, others that hold it.
    """

    snapshot: Snapshot
    schedule_plan: SchedulePlan
    now: float

    def leaving(self) -> Iterator[tuple[HeldWorkload, ReservedCapacity]]:
        """Yield each Workload to be evicted now, once, with the reservation that it is evicted for.

        Each is yielded once the time that its eviction takes has to begin, and not earlier: until then it may
        end by itself.
        """
        upcoming = self.schedule_plan.upcoming
        if not upcoming.reservations.kept:
            return
        # No Workload has to leave yet for a reservation further off than the longest eviction.
        earliest = self.now + max(self.schedule_plan.ends.eviction_times(), default=0.0)
        gone: set[WorkloadKey] = set()
        for kept in upcoming.reservations.kept:
            if kept.start_at > earliest or kept.queue not in self.snapshot.queues:
                continue
            for one in self._in_the_way(kept, gone):
                policy = self.snapshot.queues[one.admission.cluster_queue].policy
                if kept.start_at - leaving_seconds(one.workload, policy) <= self.now:
                    gone.add(one.key)
                    yield one, kept

    def _in_the_way(self, kept: ReservedCapacity, gone: Collection[WorkloadKey]) -> list[HeldWorkload]:
        """Return the Workloads that are in the reservation's way: in its domain, then for its quota."""
        inside = self._inside(kept, gone)
        return inside + self._for_quota(kept, {*gone, *(one.key for one in inside)})

    def _inside(self, kept: ReservedCapacity, gone: Collection[WorkloadKey]) -> list[HeldWorkload]:
        """Return the Workloads to evict that would still be on a node of the reserved domain at its start."""
        if kept.domain is None:
            return []
        # Nodes belong to no quota tree, so work of any queue may be there.
        found = []
        for queue in self.snapshot.queues.values():
            for held in queue.held.values():
                claim = self.schedule_plan.profile.get(held.key)
                if claim is None or kept.domain.spots.keys().isdisjoint(claim.spots):
                    continue
                latest = self.schedule_plan.ends.latest_end(claim, now=self.now)
                if latest > kept.start_at and self._may_go(held, queue, kept, gone):
                    found.append(held)
        return found

    def _for_quota(self, kept: ReservedCapacity, gone: Collection[WorkloadKey]) -> list[HeldWorkload]:
        """Return the fewest Workloads to evict for the quota of the reservation; may be empty."""
        queue = self.snapshot.queues[kept.queue]
        left = self.schedule_plan.upcoming.left_of(kept, self.schedule_plan.profile)
        if not left or self._has_room(kept, left, gone):
            return []
        going: list[HeldWorkload] = []
        for one in self._candidates(kept, queue, gone):
            going.append(one)
            if self._has_room(kept, left, {*gone, *(each.key for each in going)}):
                break
        else:
            return []
        # The last one made it enough, so it is needed. An earlier one may have become unnecessary.
        for one in going[:-1]:
            rest = {*gone, *(each.key for each in going if each is not one)}
            if self._has_room(kept, left, rest):
                going.remove(one)
        return going

    def _candidates(
        self, kept: ReservedCapacity, queue: QueueState, gone: Collection[WorkloadKey]
    ) -> list[HeldWorkload]:
        """Return the Workloads of the tree that may be evicted for the reservation, the first to go first."""
        found = [
            held
            for other in queue.tree.queues
            for held in other.held.values()
            if self._may_go(held, other, kept, gone)
        ]
        # Workloads that have outrun their estimate go first: the others may still end in time.
        has_outrun = self.schedule_plan.ends.has_outrun
        return sorted(found, key=lambda held: (not has_outrun(held.key), -held.reserved_at, held.key))

    def _may_go(
        self, held: HeldWorkload, queue: QueueState, kept: ReservedCapacity, gone: Collection[WorkloadKey]
    ) -> bool:
        """Return whether the Workload may be evicted for the reservation."""
        if held.key in gone or held.is_evicted or kept.is_joined_by(held.workload):
            return False
        if not may_be_evicted(held.workload):
            return False
        # It agreed to be evicted, whatever its length.
        if is_opportunistic(held.workload):
            return True
        estimate = self.schedule_plan.run_estimates.estimator.estimate(held.workload, queue.policy)
        # It may be evicted only if its estimate ends before the reservation. A Workload without an estimate
        # was admitted although it might not end in time.
        return estimate is not None and started_at_of(held) + estimate.seconds <= kept.start_at

    def _has_room(self, kept: ReservedCapacity, left: Quantities, going: Collection[WorkloadKey]) -> bool:
        """Return whether the reservation has its quota at its start if those in `going` end now."""
        queue, at = self.snapshot.queues[kept.queue], max(kept.start_at, self.now)
        edges = self._edges(kept, queue, going)
        stage, trial = SnapshotStage(self.snapshot), _Amount(queue.node)
        # Checked at its start only: later appointments have edges of their own, in both directions.
        return holds_at(RequestHorizon(edges=edges), stage, trial, left, at=at, seconds=0.0)

    def _edges(self, kept: ReservedCapacity, queue: QueueState, going: Collection[WorkloadKey]) -> list[Edge]:
        """Return the ends of running work and all other appointments; Workloads in `going` end now."""
        names = {other.name for other in queue.tree.queues}
        profile = self.schedule_plan.profile
        edges = profile.edges(wants=lambda claim: claim.is_running and claim.queue in names)
        edges = [edge for edge in edges if edge[2] not in going and edge[0] > self.now]
        edges = self.schedule_plan.ends.latest_edges(edges)
        for key in going:
            claim = profile.get(key)
            if claim is not None:
                edges.append((self.now, -1, key, claim))
        edges += [
            edge for edge in self.schedule_plan.upcoming.edges(names, profile) if edge[2] != kept.holder
        ]
        return sorted(edges, key=lambda edge: edge[:3])
