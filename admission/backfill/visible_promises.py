"""Visible promises: which promises and running work must a Workload take into account?

The start check, planning, revision and leases of one cycle share this view of one snapshot. It ranks the
Workload among the promises and gives the edges (begins and ends of claims) that a search walks along. The
snapshot is left as it was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from admission.backfill.planned_starts import Promise
from admission.backfill.profile_trial import SnapshotStage, StartClaim, StartTrial
from admission.backfill.running_ends import assumed_end
from admission.backfill.schedule_plan import SchedulePlan
from admission.nomination.nominate import CyclePolicy, Entry
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.policy import Backfill as BackfillRules
from api.workload import Workload, WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import RELEASE, Claim, Edge, order
from queues.profile.planned_start import Rank, own_rank, tie_behind
from queues.profile.request_horizon import RequestHorizon


@dataclass(slots=True, kw_only=True)
class VisiblePromises:
    """One snapshot, and the schedule plan at `now` (Unix seconds).

    `stage` is the snapshot in the terms of the profile. Created for each cycle and each revision.
    """

    snapshot: Snapshot
    schedule_plan: SchedulePlan
    policy: CyclePolicy
    now: float
    stage: SnapshotStage = field(init=False)

    def __post_init__(self) -> None:
        self.stage = SnapshotStage(self.snapshot)

    # --- ranks -------------------------------------------------------------------------------------------

    def rank_of(self, entry: Entry) -> Rank:
        """Return the rank of a nominated head among the promises."""
        return self.rank(entry.queue, entry.pending, entry.assignment.borrowing)

    def rank(self, queue: QueueState, pending: Pending, height: int) -> Rank:
        """Return the rank of a Workload of the queue among the promises if it borrows at that `height`.

        It ranks behind every promised Workload queued in the same second. The API server keeps whole seconds,
        so among Workloads created in one second the uid decides, which is chance. A Workload that won by
        chance would overtake a promise without a lease, and would break it by overrunning its estimate.
        """
        own = own_rank(pending)
        second, promises = own[:3], self.schedule_plan.promises
        known = promises.get(pending.key)
        own_uid = known.planned.rank.uid if known is not None and known.planned.rank[1:4] == second else None
        last = ""
        for promise in promises.values():
            planned = promise.planned
            rank = planned.rank
            place = rank[1:4]
            if place > second:
                continue
            if place == second:
                last = max(last, rank.uid)
                if own_uid is not None and rank.uid >= own_uid:
                    continue
            # An older Workload that borrows less would otherwise precede promises that its rank
            # had been behind before.
            if planned.cluster_queue == queue.name:
                height = max(height, rank.height)
        return Rank(height, *second, tie_behind(last, own[3]) if own_uid is None else own_uid)

    def above(self, rank: Rank, key: WorkloadKey) -> list[Promise]:
        """Return the promises of higher rank, in no order.

        The promise of `key` itself is left out, because a Workload does not wait behind its own promise.
        """
        promises = self.schedule_plan.promises.values()
        return [one for one in promises if one.planned.rank < rank and one.planned.key != key]

    def met(self, queue: QueueState, promises: Iterable[Promise]) -> list[Promise]:
        """Return the promises that a start in the queue can interfere with, in quota or on nodes.

        Those of the same quota tree, and all that have nodes: trees share nodes.
        """
        if self.schedule_plan.is_one_tree:
            return list(promises)
        is_met = self._is_met_by(queue)
        return [one for one in promises if is_met(one.claim)]

    def firm(self, queue: QueueState, rank: Rank, key: WorkloadKey) -> list[Promise]:
        """Return the promises that a Workload of that rank in the queue may not break.

        These are the promises of higher rank, and those of lower rank that only age puts below. An older
        Workload may be promised a start late (it was beyond the window or the depth when others were
        promised theirs), or it could start early on what a younger one was promised.
        """
        promises = self.schedule_plan.promises.values()
        return [
            one
            for one in promises
            if one.planned.key != key and not one.planned.is_outranked_by(rank, queue.name)
        ]

    # --- what it meets -----------------------------------------------------------------------------------

    def horizon(
        self,
        queue: QueueState,
        rank: Rank,
        promises: Iterable[Promise],
        *,
        leaving: frozenset[WorkloadKey] = frozenset(),
        going: frozenset[WorkloadKey] = frozenset(),
        of: Workload | None = None,
    ) -> RequestHorizon:
        """Return what a Workload of that rank can meet over time: running work and these promises.

        Workloads in `leaving` have been taken off the snapshot, or count as never ending; those in `going`
        end now. Work that has outrun its lease ends as soon as it can be stopped, if it can be evicted for a
        promise of that rank. `of` is the Workload asked about: its own reservation does not block it.
        """
        # The claim of a Workload that was taken off the snapshot stays in the profile until it has really
        # left; here it counts as ended.
        profile = self.schedule_plan.profile
        gone = self.snapshot.evictions.gone | leaving | going
        put_in = self.overstaying(rank, gone)
        put_in += [
            (self.now, RELEASE, key, claim) for key in going if (claim := profile.get(key)) is not None
        ]
        left_out = self._left_out(promises, gone, put_in)
        names = [other.name for other in queue.tree.queues]
        put_in += self.schedule_plan.upcoming.edges(names, profile, joining=of)
        edges = self._without(left_out, self._of_tree(queue))
        if put_in:
            edges += put_in
            edges.sort(key=order)
        return RequestHorizon(edges=edges, profile=profile, left_out=left_out.values(), put_in=put_in)

    def _of_tree(self, queue: QueueState) -> list[Edge]:
        """Return the edges of claims on the tree's quota, and of those on nodes, which trees may share."""
        # With one tree, as in most clusters, no filter is needed.
        if self.schedule_plan.is_one_tree:
            return self.schedule_plan.profile.edges()
        return self.schedule_plan.profile.edges(wants=self._is_met_by(queue))

    def _is_met_by(self, queue: QueueState) -> Callable[[Claim], bool]:
        """Return a test for claims that the queue's Workloads can meet: on their tree's quota or on nodes."""
        queues, tree = self.snapshot.queues, queue.tree

        def is_met(claim: Claim) -> bool:
            other = queues.get(claim.queue)
            return bool(claim.spots) or (other is not None and other.tree is tree)

        return is_met

    def _left_out(
        self,
        promises: Iterable[Promise],
        gone: Iterable[WorkloadKey],
        late: Iterable[Edge],
    ) -> dict[int, Claim]:
        """Return the claims that are not to be met, by identity; as a rule there are few."""
        profile = self.schedule_plan.profile
        wanted = {id(one.claim) for one in promises}
        claims = (one.claim for one in self.schedule_plan.promises.values())
        left_out = {id(claim): claim for claim in claims if id(claim) not in wanted}
        keys = [*gone, *(key for _, _, key, _ in late)]
        running = (claim for key in keys if (claim := profile.get(key)) and claim.is_running)
        left_out.update((id(claim), claim) for claim in running)
        return left_out

    @staticmethod
    def _without(left_out: Mapping[int, Claim], edges: list[Edge]) -> list[Edge]:
        """Return the edges of claims that are not left out; the claims are given by identity."""
        return [edge for edge in edges if id(edge[3]) not in left_out] if left_out else edges

    def overstaying(self, rank: Rank, gone: frozenset[WorkloadKey]) -> list[Edge]:
        """Return the edges at which work that has outrun its lease could be gone.

        They replace ends that have passed. Workloads in `gone` are left out.

        In no order. Without such edges the capacity would count as taken for ever, and nothing could be
        promised on it.
        """
        late: list[Edge] = []
        for claim in self.schedule_plan.profile.outrun(self.now):
            lease = self.schedule_plan.leases.get(claim.holder)
            if lease is not None and lease.key not in gone:
                # Only a Workload of higher rank can have it evicted.
                at = self.now + lease.eviction_seconds
                if lease.rank <= rank:
                    at = assumed_end(claim, lease, now=self.now)
                late.append((at, RELEASE, lease.key, claim))
        return late

    # --- what is asked about ------------------------------------------------------------------------------

    def usage_of(self, entry: Entry) -> StartClaim:
        """Return the quota and spots that the entry would run on.

        The places are those of the assignment of this cycle, so no search is made.
        """
        spots = self.snapshot.topology_cache.usage.spots(entry.assignment.places)
        return StartClaim(usage=entry.assignment.usage, spots=spots, assignment=entry.assignment)

    def trial_of(self, entry: Entry) -> StartTrial:
        """Return the search for a start of the entry, with the number of pods it was nominated with."""
        counts = [choice.count for choice in entry.assignment.pod_sets]
        return self.trial(entry.queue, entry.pending, counts)

    def trial(self, queue: QueueState, pending: Pending, counts: Sequence[int] | None = None) -> StartTrial:
        """Return the search for a start of a pending Workload, with `counts` pods per pod set, else all."""
        return StartTrial(
            snapshot=self.snapshot, queue=queue, pending=pending, policy=self.policy, counts=counts
        )


def rules_of(queue: QueueState) -> BackfillRules | None:
    """Return the backfill rules that govern the queue, None where it has none."""
    return queue.policy.backfill_rules
