"""Promotions: Workloads that hold quota move to a better flavor (`spec.placement.flavors.promote`).

    something came free ─▶ no head is left to try ─▶ a look at some Workloads ─▶ Evict, reason FlavorPromotion
                                                                                  │
               starts in the better flavor, before its equals ◀── queues again ◀──┘

Pending Workloads come first: a look is taken only when no cycle would admit anything. Whether a move pays is
answered by `admission.scheduler.flavor_promotion`. Each look moves at most one Workload, the one whose score
gains most, within the policy's limit for an hour, and none twice in an hour. The moves are part of the stored
plan (`admission.snapshot.recent_moves`), so that a new leader keeps to the same limit.

No quota is held for a Workload on its way: its start is decided by a cycle, as any other. It queues before
all others of its priority. What it was to get counts as taken for further moves until it has started, so two
do not leave for the same room.

A look costs one search for each of at most `_MOST_SEARCHES` Workloads. They follow each other by key, with
looks a second apart until all have been looked at; then at most once in `_PAUSE_SECONDS` where quota came
free since, and once in `_LONG_PAUSE_SECONDS` otherwise, because losses change with every checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from admission.backfill.backfill_cycle import Backfill
from admission.cache.cache import Cache
from admission.cache.workload_index import WorkloadIndex
from admission.decisions.decision import Evict
from admission.nomination.nominate import CyclePolicy, Nominator
from admission.preemption.checkpoint_before_eviction import asked_first
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemptor import Preemptor
from admission.scheduler.cycle_capacity import CycleCapacity
from admission.scheduler.flavor_promotion import FlavorMove, PromotionSearch, may_move, rules_of
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.reasons import EvictionReason
from api.workload import WorkloadKey
from queues.pending.ordering import RequeuingTimestamp
from queues.pending.pending_queue import Pending

# Caps the searches of one look: each costs as much as the nomination of a head.
_MOST_SEARCHES = 32
_NEXT_SECONDS = 1.0
_PAUSE_SECONDS = 60.0
_LONG_PAUSE_SECONDS = 600.0
# How long what a moving Workload was to get counts as taken. It should have started by then.
_MOST_SECONDS_UNDER_WAY = 3600.0


class Promotions:
    """Decides which Workload moves to a better flavor, and when to look again."""

    def __init__(
        self, cache: Cache, index: WorkloadIndex, policy: CyclePolicy, timestamp: RequeuingTimestamp
    ) -> None:
        self._cache = cache
        self._index = index
        self._policy = policy
        self._timestamp = timestamp
        # When the last look was taken, and after which change of what is free; None before the first.
        self._looked_at: float | None = None
        self._generation = 0
        # The last Workload of the last look, None where the next one begins with the first.
        self._cursor: WorkloadKey | None = None
        # What Workloads on their way were to get, and since when.
        self._under_way: dict[WorkloadKey, tuple[FlavorMove, float]] = {}

    def is_due(self, *, now: float) -> bool:
        """Return whether a look is to be taken, once no head is left to try."""
        at = self.next_at()
        return at is not None and at <= now

    def next_at(self) -> float | None:
        """Return when the next look is due (Unix seconds); None where no policy promotes what is held."""
        if not any(self._queues()):
            # What was seen of an earlier policy says nothing of the next one.
            self._looked_at = None
            return None
        if self._looked_at is None:
            return self._cache.now
        if self._cursor is not None:
            return self._looked_at + _NEXT_SECONDS
        has_freed = self._cache.generation != self._generation
        return self._looked_at + (_PAUSE_SECONDS if has_freed else _LONG_PAUSE_SECONDS)

    def decide(self, *, now: float) -> tuple[Evict, ...]:
        """Return the move that is decided now, as an eviction; its Workload is marked as leaving.

        To be called when no head is to be tried. Empty where no look is due, or none pays.
        """
        if not self.is_due(now=now):
            return ()
        self._looked_at, generation = now, self._cache.generation
        snapshot = self._cache.snapshot(now=now)
        # Capacity that is kept for others, and what moving Workloads will take, is not free.
        CycleCapacity(snapshot=snapshot).keep(self._cache.claims(()))
        self._reserve_under_way(snapshot, now)
        best = self._best(snapshot, now)
        snapshot.rollback()
        if self._cursor is None:
            self._generation = generation
        if best is None:
            return ()
        return (self._move(best, now),)

    def explanation(self, key: WorkloadKey, *, now: float) -> FlavorMove | None:
        """Return the move that would pay for this Workload now, whatever the limits; None where it stays."""
        held = self._cache.held.get(key)
        queue = self._cache.queues.get(held.admission.cluster_queue) if held is not None else None
        if held is None or queue is None or rules_of(queue) is None or not may_move(queue, held):
            return None
        snapshot = self._cache.snapshot(now=now)
        found = self._search(snapshot, now).better(queue, held, self._pending(held))
        snapshot.rollback()
        return found

    def _best(self, snapshot: Snapshot, now: float) -> FlavorMove | None:
        search, found = self._search(snapshot, now), []
        candidates = self._candidates(now)
        for queue, held in candidates[:_MOST_SEARCHES]:
            move = search.better(queue, held, self._pending(held))
            if move is not None:
                found.append(move)
        is_more = len(candidates) > _MOST_SEARCHES
        self._cursor = candidates[_MOST_SEARCHES - 1][1].key if is_more else None
        # The first by key among equals, so that replicas agree.
        return min(found, key=lambda one: (-one.gain, one.held.key), default=None)

    def _candidates(self, now: float) -> list[tuple[QueueState, HeldWorkload]]:
        """Return the Workloads to look at, from the cursor on, in the order of their keys."""
        moves, found = self._cache.moves, []
        for queue in self._queues():
            rules, policy = rules_of(queue), queue.policy.name
            if rules is None or moves.number(policy, now=now, is_promotion=True) >= rules.max_moves_per_hour:
                continue
            for held in queue.held.values():
                is_next = self._cursor is None or held.key > self._cursor
                if (
                    is_next
                    and may_move(queue, held)
                    and held.key not in self._cache.schedule_plan.leases
                    and not moves.has_moved(held.key, now=now)
                ):
                    found.append((queue, held))
        return sorted(found, key=lambda one: one[1].key)

    def _queues(self) -> Iterator[QueueState]:
        """Yield the queues whose policy promotes and that have Workloads to promote."""
        return (queue for queue in self._cache.queues.values() if queue.held and rules_of(queue) is not None)

    def _search(self, snapshot: Snapshot, now: float) -> PromotionSearch:
        plan, estimator = self._cache.schedule_plan, self._cache.estimator
        losses = EvictionLosses(now=now, estimator=estimator)
        preemptor = Preemptor(snapshot=snapshot, losses=losses, fair_sharing=self._policy.fair_sharing)
        backfill = None
        if plan.is_on:
            backfill = Backfill(snapshot=snapshot, schedule_plan=plan, policy=self._policy, now=now)
        return PromotionSearch(
            snapshot=snapshot,
            nominator=Nominator(snapshot=snapshot, preemptor=preemptor, policy=self._policy),
            estimator=estimator,
            backfill=backfill,
            now=now,
        )

    def _pending(self, held: HeldWorkload) -> Pending:
        return self._index.records[held.key].to_pending(self._timestamp)

    def _reserve_under_way(self, snapshot: Snapshot, now: float) -> None:
        """Count what moving Workloads will take as taken, until they have started or are gone."""
        for key, (move, since) in tuple(self._under_way.items()):
            record, held = self._index.records.get(key), self._cache.held.get(key)
            is_gone = record is None or record.workload.uid != move.held.workload.uid
            has_started = held is not None and not held.is_evicted
            queue = self._cache.queues.get(move.entry.queue.name)
            if is_gone or has_started or queue is None or now > since + _MOST_SECONDS_UNDER_WAY:
                del self._under_way[key]
            else:
                # Quota only: nodes may have changed since, and each flavor's quota is that of its nodes.
                snapshot.trial.reserve(queue, move.entry.assignment.usage)

    def _move(self, move: FlavorMove, now: float) -> Evict:
        """Mark the Workload as leaving, and return its eviction."""
        held, queue = move.held, move.entry.queue
        workload = held.workload
        decision = Evict(
            key=workload.key,
            uid=workload.uid,
            resource_version=workload.resource_version,
            reason=EvictionReason.FLAVOR_PROMOTION,
            message=f"Evicted to move to another flavor: {move.message}",
            cluster_queue=queue.name,
        )
        decision = asked_first(decision, workload, queue.policy, now=now)
        held.is_evicting, held.leaves_by = True, decision.save_by
        self._cache.schedule_plan.hold(held)
        self._cache.moves.note(held.key, policy=queue.policy.name, at=now, is_promotion=True)
        self._under_way[held.key] = move, now
        return decision
