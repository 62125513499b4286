"""What a Workload can meet in time: whose promises come before it, and the edges that it has to reckon with.

Shared by all that judges, plans, settles or ends leases on one snapshot, which is left as it was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from admission.backfill.planned_starts import Promise
from admission.backfill.profile_trial import SnapshotStage, StartClaim, StartTrial
from admission.backfill.schedule_plan import SchedulePlan
from admission.nomination.nominate import CyclePolicy, Entry
from admission.snapshot.snapshot import QueueState, Snapshot
from api.policy import Backfill as BackfillRules
from api.workload import Workload, WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import RELEASE, Claim, Edge, order
from queues.profile.planned_start import Rank, own_rank, tie_behind
from queues.profile.request_horizon import RequestHorizon

# For so many seconds who runs beyond its time is believed once more by those who cannot send it away.
_PATIENCE = 60.0


@dataclass(slots=True, kw_only=True)
class VisiblePromises:
    """One snapshot, and what the timekeeper knows at `now`."""

    snapshot: Snapshot
    schedule_plan: SchedulePlan
    policy: CyclePolicy
    now: float
    stage: SnapshotStage = field(init=False)

    def __post_init__(self) -> None:
        self.stage = SnapshotStage(self.snapshot)

    # --- ranks -------------------------------------------------------------------------------------------

    def rank_of(self, entry: Entry) -> Rank:
        """Return the place of a nominated head among the promised."""
        return self.rank(entry.queue, entry.pending, entry.assignment.borrowing)

    def rank(self, queue: QueueState, pending: Pending, height: int) -> Rank:
        """Return the place of a Workload of the queue among the promised, were it to borrow so high.

        It is behind all who are promised a start and came in the same second. An API server knows whole
        seconds, so of those created in one second the uid decides, which is chance. Whoever comes out first
        by chance would overtake a promise without a lease, and break it by running longer than it said.
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
            # Without this an older one that borrows less would come before those whose rank
            # it had been behind.
            if planned.cluster_queue == queue.name:
                height = max(height, rank.height)
        return Rank(height, *second, tie_behind(last, own[3]) if own_uid is None else own_uid)

    def above(self, rank: Rank, key: WorkloadKey) -> list[Promise]:
        """Return the promises of higher rank."""
        promises = self.schedule_plan.promises.values()
        return [one for one in promises if one.planned.rank < rank and one.planned.key != key]

    def met(self, queue: QueueState, promises: Iterable[Promise]) -> list[Promise]:
        """Return those of the promises that a start in the queue can be in the way of."""
        if self.schedule_plan.is_one_tree:
            return list(promises)
        is_met = self._is_met_by(queue)
        return [one for one in promises if is_met(one.claim)]

    def before(self, rank: Rank, key: WorkloadKey) -> list[Promise]:
        """Return whose promises a new promise of that rank has to leave alone."""
        return [*self.above(rank, key), *self.firm_below(rank, key)]

    def firm_below(self, rank: Rank, key: WorkloadKey) -> list[Promise]:
        """Return the promises of lower rank that one of that rank may not break.

        Whoever borrows less, has the higher priority or the lower level takes precedence; being older
        alone is no licence. Such a one may come to its turn late (beyond the window or behind the depth
        when others were promised theirs), or could start before its own promise on what is promised to a
        younger one.
        """
        promises = (one for one in self.schedule_plan.promises.values() if one.planned.key != key)
        # Equal in height, priority and level: older alone.
        return [one for one in promises if one.planned.rank > rank and one.planned.rank[:3] == rank[:3]]

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
        """Return what happens to whom the Workload of that rank can meet: running work and these promises.

        `leaving` have been taken off the snapshot already, or are taken not to end; `going` to end now. Who
        outran a lease ends as soon as it can be stopped, where it gives way to that rank.
        """
        # Who is gone has its claim in the profile until it has really left; here it counts as ended.
        profile = self.schedule_plan.profile
        gone = self.snapshot.gone | leaving | going
        put_in = self.overstaying(rank, gone)
        put_in += [
            (self.now, RELEASE, key, claim) for key in going if (claim := profile.get(key)) is not None
        ]
        left_out = self._left_out(promises, gone, put_in)
        names = [other.name for other in queue.tree.queues]
        put_in += self.schedule_plan.ahead.edges(names, profile, joining=of)
        edges = self._without(left_out, self._of_tree(queue))
        if put_in:
            edges += put_in
            edges.sort(key=order)
        return RequestHorizon(edges=edges, profile=profile, left_out=left_out.values(), put_in=put_in)

    def _of_tree(self, queue: QueueState) -> list[Edge]:
        """Return the edges of claims on quota of the queue's tree, or on nodes, which trees may share."""
        # One tree needs no filter, and that is how most clusters are.
        if self.schedule_plan.is_one_tree:
            return self.schedule_plan.profile.edges()
        return self.schedule_plan.profile.edges(wants=self._is_met_by(queue))

    def _is_met_by(self, queue: QueueState) -> Callable[[Claim], bool]:
        """Return which claims the queue's Workloads can meet: on quota of their tree, or on nodes."""
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
        """Return the claims that are not to be met, by identity: there are few as a rule."""
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
        return [edge for edge in edges if id(edge[3]) not in left_out] if left_out else edges

    def overstaying(self, rank: Rank, gone: frozenset[WorkloadKey]) -> list[Edge]:
        """Return when those could be gone who have outrun the estimate that their lease was given on.

        As ends of theirs, in place of those that are past; not of those who are `gone`.
        """
        late: list[Edge] = []
        for claim in self.schedule_plan.profile.outrun(self.now):
            lease = self.schedule_plan.leases.get(claim.holder)
            if lease is not None and lease.key not in gone:
                wait = lease.eviction_seconds
                # Whoever is of lower rank cannot send it away, and had better not look every second.
                at = self.now + (wait if lease.rank > rank else max(wait, _PATIENCE))
                late.append((at, RELEASE, lease.key, claim))
        return late

    # --- what is asked about ------------------------------------------------------------------------------

    def footing(self, entry: Entry) -> StartClaim:
        """Return what the entry would run on."""
        spots = self.snapshot.topology_cache.spots(entry.assignment.places)
        return StartClaim(usage=entry.assignment.usage, spots=spots, assignment=entry.assignment)

    def trial_of(self, entry: Entry) -> StartTrial:
        """Return the search for a start of the entry, with as many pods as it has been nominated with."""
        counts = [choice.count for choice in entry.assignment.pod_sets]
        return self.trial(entry.queue, entry.pending, counts)

    def trial(self, queue: QueueState, pending: Pending, counts: Sequence[int] | None = None) -> StartTrial:
        """Return the search for a start of a Workload that waits."""
        return StartTrial(
            snapshot=self.snapshot, queue=queue, pending=pending, policy=self.policy, counts=counts
        )


def rules_of(queue: QueueState) -> BackfillRules | None:
    """Return the backfill rules that govern the queue, None where it has none."""
    return queue.policy.backfill_rules
