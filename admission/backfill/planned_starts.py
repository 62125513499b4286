"""The promises in force: each a planned start, and the claim that keeps its capacity in the profile.

They are made, moved and withdrawn here; the other modules of `admission.backfill` decide about them. How many
promises precede a Workload is asked often, so the ranks are cached by ClusterQueue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from admission.backfill.due_queues import DueQueues
from admission.backfill.promise_reports import PromiseReports
from admission.flavors.feasibility import never_evicts
from admission.snapshot.queue_state import QueueState
from api.policy import BackfillMode
from api.workload import Workload, WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import CapacityProfile, Claim, Spots
from queues.profile.freed_capacity import FreedCapacity
from queues.profile.planned_start import PlannedStart, Rank, own_rank
from queues.quota.resources import Quantities
from queues.tracked import Tracked


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A planned start, and the claim that represents it in the profile.

    The claim lasts for `planned.seconds`, which may include the time of an eviction at its end.
    """

    planned: PlannedStart
    claim: Claim


class Promises(Tracked[WorkloadKey, Promise]):
    """The promises by Workload. Changes are tracked, so that the store gets only what has changed.

    Each has a claim in `profile`. What a promise leaves behind is recorded in `freed`.
    """

    __slots__ = ("_due_queues", "_freed", "_profile", "_ranked_in", "_ranks", "_reports")

    def __init__(
        self,
        *,
        profile: CapacityProfile,
        freed: FreedCapacity,
        reports: PromiseReports,
        due_queues: DueQueues,
    ) -> None:
        super().__init__()
        self._profile = profile
        self._freed = freed
        self._reports = reports
        self._due_queues = due_queues
        # Ranks by ClusterQueue, and the version of the promises that they were computed for.
        self._ranks: dict[str, list[Rank]] = {}
        self._ranked_in = -1

    # --- what becomes of them ----------------------------------------------------------------------------

    def keep(self, planned: PlannedStart, usage: Quantities, spots: Spots) -> None:
        """Make a promise, or move one. Raise ValueError where it ends before it begins.

        `usage` is in each resource's unit, `spots` are the hosts or domains. What a move to a later start
        frees is recorded by the caller, which knows the former claim.
        """
        claim = Claim(
            holder=planned.key,
            queue=planned.cluster_queue,
            usage=usage,
            spots=spots,
            begins_at=planned.start_at,
            ends_at=planned.ends_at,
        )
        # The profile goes first: if it refuses the span, no promise has been recorded.
        self._profile.put(claim)
        known = self.get(planned.key)
        self[planned.key] = Promise(planned=planned, claim=claim)
        # A promise kept as it was is not reported again.
        if known is None or known.planned != planned:
            self._reports.note(planned.key, planned)
            self._due_queues.note_moved(is_on_nodes=known is not None and bool(known.claim.spots))

    def withdraw(self, key: WorkloadKey) -> None:
        """Withdraw a promise: its Workload no longer waits, or cannot be promised a start any more.

        No effect without a promise. Capacity that comes free with it may improve other promises, so it is
        recorded.
        """
        promise = self.pop(key, None)
        if promise is None:
            return
        claim = self._profile.get(key)
        # It may have started meanwhile. Then the claim is its running one and stays.
        if claim is not None and not claim.is_running:
            self._profile.drop(key)
        self._reports.note(key, None)
        # Its queue may promise a start to the next in line.
        self._due_queues.note_left(promise.planned.cluster_queue, is_on_nodes=bool(promise.claim.spots))
        self._freed.note(promise.claim, from_at=promise.planned.start_at, until=promise.planned.ends_at)

    def note_started(self, key: WorkloadKey, *, at: float) -> None:
        """Record that a Workload holds quota since `at` (Unix seconds): a promise made to it is kept.

        The caller replaces its claim by that of running work.

        Withdrawn and kept promises are told apart, because only kept ones are counted in the metrics.
        """
        promise = self.pop(key, None)
        if promise is not None:
            self._reports.note_kept(promise.planned, at=at)
            self._due_queues.note_left(promise.planned.cluster_queue, is_on_nodes=bool(promise.claim.spots))

    def adopt(self, planned: PlannedStart, usage: Quantities, spots: Spots) -> None:
        """Take over a promise that another leader has made and reported.

        If this process has made one as well, its start counts, and the older of the two tells when and for
        when a start was first promised.
        """
        known = self.get(planned.key)
        if known is not None:
            if planned.made_at < known.planned.made_at:
                planned = replace(
                    known.planned, made_at=planned.made_at, first_start_at=planned.first_start_at
                )
                self[planned.key] = replace(known, planned=planned)
            return
        self.keep(planned, usage, spots)
        self._reports.note_reported(planned)

    # --- questions ---------------------------------------------------------------------------------------

    def in_order(self) -> list[Promise]:
        """Return all promises, the highest rank first."""
        return sorted(self.values(), key=lambda promise: promise.planned.rank)

    def before(self, pending: Pending, queue: str) -> int:
        """Return how many Workloads of the queue have a promise and precede this one in queue order.

        Cheap, O(promises of the queue): it is asked for every head that cannot start.
        """
        own, known = own_rank(pending), self.get(pending.key)
        # Without a promise of its own it ranks behind all promised Workloads queued in the same second.
        is_ranked = known is not None and known.planned.rank[1:4] == own[:3]
        uid = known.planned.rank.uid if known is not None and is_ranked else None
        return sum(
            1
            for rank in self._ranks_in(queue)
            if rank[1:4] < own[:3] or (rank[1:4] == own[:3] and (uid is None or rank.uid < uid))
        )

    def may_promise(self, pending: Pending, queue: QueueState) -> bool:
        """Return whether the Workload would be promised a start if it were tried, as far as depth goes.

        False without backfill in the queue's policy. `reservationDepth` counts promised Workloads, whatever
        their size.
        """
        rules = queue.policy.backfill_rules
        return rules is not None and self.before(pending, queue.name) < rules.reservation_depth

    def waits_for_its_time(self, workload: Workload, queue: QueueState, *, now: float) -> bool:
        """Return whether the Workload is promised a later start, before which it need not be tried.

        If it could start earlier, its promise would have been moved. That does not hold where other Workloads
        may be evicted for it, where it may run inside another's hold, or with fewer pods than promised.
        """
        promise = self.get(workload.key)
        if promise is None or self._due_queues.may_try(promise.planned, now=now):
            return False
        rules = queue.policy.backfill_rules
        is_opportunistic = rules is None or rules.mode is BackfillMode.OPPORTUNISTIC
        is_whole = all(pod_set.min_count is None for pod_set in workload.pod_sets)
        return is_whole and never_evicts(queue) and not is_opportunistic

    def _ranks_in(self, queue: str) -> Sequence[Rank]:
        """Return the ranks of the queue's promised Workloads, in no order."""
        # This is asked for every class of pending Workloads whenever something comes free, while the
        # promises stay the same.
        if self._ranked_in != self.version:
            self._ranked_in, self._ranks = self.version, {}
            for one in self.values():
                self._ranks.setdefault(one.planned.cluster_queue, []).append(one.planned.rank)
        return self._ranks.get(queue, ())
