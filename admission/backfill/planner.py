"""Planning: when can a head that cannot start now start at the earliest? That start is promised to it.

The search runs over the capacity profile, which holds the expected ends of running work and the promises made
so far. It looks for the first instant from which the Workload fits for as long as its promise holds, beside
running work, every promise of higher rank, and every promise that only age puts below it.

    assume a borrow height  ─▶  rank  ─▶  promises to leave alone  ─▶  earliest start
          ▲                                                                  │
          └──────────────── the start borrows higher than assumed ◀──────────┘

The rank depends on how high in the cohort tree the Workload borrows, and that is known only once
flavors have been found. So the search first assumes no borrowing (for a promise that is moved: its
former height) and is repeated with the height that the start needs if that is greater. The height grows
from round to round and is bounded by that of the tree, so the search ends. Each round costs one search
of the profile (`queues.profile.earliest_start`).

The invariant is that a new promise never takes quota or places from a promise it has to leave alone. A
promise that exists is moved by `revise_promises`; here it is replaced only where evictions for its Workload
let it start earlier, or where its start is due and the Workload still has to wait for evictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from admission.backfill.planned_starts import Promise
from admission.backfill.profile_trial import StartClaim
from admission.backfill.start_check import StartCheck
from admission.backfill.visible_promises import VisiblePromises, rules_of
from admission.nomination.nominate import Entry
from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.preemption.targets import Target
from admission.snapshot.queue_state import QueueState
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import Claim, Start
from queues.profile.earliest_start import searching
from queues.profile.planned_start import BackfillLease, MoveCause, PlannedStart, Rank
from queues.steps import Steps


@dataclass(slots=True, kw_only=True)
class Planner:
    """Makes promises on one snapshot and records which heads start; `schedule_plan` holds the promises.

    One for each cycle. `_later` holds promises that are recorded at the end of the cycle, because the cycle
    counts their capacity as taken already.
    """

    visible: VisiblePromises
    # Promises made in this cycle to heads whose targets are being evicted. Their capacity counts as taken
    # until the cycle ends; `finish` then makes them promises like all others.
    _later: list[tuple[PlannedStart, StartClaim]] = field(default_factory=list)

    def plan(self, entry: Entry) -> Steps[bool]:
        """Promise a start to a head that cannot start now. Return whether it has a promise.

        It gets none where its ClusterQueue has already promised `reservationDepth` Workloads before it a
        start, where it would not fit even if all other work had ended, or where it could start only beyond
        the backfill window, unless it is the first of its queue.
        """
        rules, key = rules_of(entry.queue), entry.pending.key
        if rules is None:
            return False
        # A promise that exists is moved by `revise_promises`, never replaced here.
        if key in self.visible.schedule_plan.promises:
            return True
        # Only Workloads before it count: a promise further down the queue must not cost this one its own.
        before = self.visible.schedule_plan.promises.before(entry.pending, entry.queue.name)
        if before >= rules.reservation_depth:
            return False
        found = yield from self.search(entry.queue, entry.pending)
        if found is None or (before and found[0].start_at > self.visible.now + rules.window_seconds):
            return False
        self._keep(*found)
        return True

    def plan_after_evictions(self, entry: Entry) -> bool:
        """Promise a start to a head whose targets are evicted in this cycle: when the last of them is gone.

        Return whether it has a promise: False only where its queue has no backfill rules. For the rest of
        the cycle its capacity counts as taken.
        """
        if rules_of(entry.queue) is None:
            return False
        workload, queue = entry.pending.workload, entry.queue
        # The capacity is free only once the slowest target has left.
        at = max(self._gone_at(target) for target in entry.targets)
        known = self.visible.schedule_plan.promises.get(workload.key)
        if known is not None and self.visible.now < known.planned.start_at <= at:
            # It is tried again while its targets leave, or was promised an earlier start elsewhere. Only
            # `revise_promises` moves such a promise: if it were moved here as well, it would be moved to and
            # fro until the targets have left.
            start_claim = StartClaim(usage=known.claim.usage, spots=known.claim.spots)
            self._later.append((known.planned, start_claim))
            self._claim_now(entry)
            return True
        planned = PlannedStart(
            key=workload.key,
            uid=workload.uid,
            cluster_queue=queue.name,
            rank=self.visible.rank_of(entry),
            start_at=at,
            seconds=self.visible.schedule_plan.run_estimates.length(workload, queue.name),
            admission=entry.assignment.to_admission(queue.name),
            made_at=known.planned.made_at if known is not None else self.visible.now,
            first_start_at=known.planned.first_start_at if known is not None else at,
        )
        # Kept only at the end of the cycle, since the claim would count what `_claim_now` already counts.
        self._later.append((planned, self.visible.usage_of(entry)))
        self._claim_now(entry)
        return True

    def _gone_at(self, target: Target) -> float:
        """Return when a target will have left, whether its eviction starts now or has already started."""
        held, now = target.held, self.visible.now
        claim = self.visible.schedule_plan.profile.get(held.key)
        if held.is_evicted and claim is not None:
            return max(now, claim.ends_at)
        return now + leaving_seconds(held.workload, target.queue.policy)

    def search(
        self, queue: QueueState, pending: Pending, known: PlannedStart | None = None
    ) -> Steps[tuple[PlannedStart, StartClaim] | None]:
        """Return the earliest start of a pending Workload and what it will run on; None if it never fits.

        `known` is its present promise, if it has one; the new one keeps the history of moves.

        Its rank depends on how high it borrows, and how high it must borrow depends on which promises it may
        ignore, so the search is repeated with a higher height until both agree. Heights only rise, so it ends
        after as many searches as the tree has levels.
        """
        height = known.rank.height if known is not None else 0
        while True:
            rank = self.visible.rank(queue, pending, height)
            others = self.visible.firm(queue, rank, pending.key)
            start = yield from self.earliest(queue, pending, rank, others)
            if start is None or start.value.assignment is None:
                return None
            # The rank, and with it the promises to leave alone, was computed for this height or a lower one.
            if start.value.assignment.borrowing <= rank.height:
                return self.planned(queue, pending, rank, start, known), start.value
            # It has to borrow higher than assumed, so it ranks lower and has to leave more promises alone.
            height = start.value.assignment.borrowing
            yield

    def earliest(
        self,
        queue: QueueState,
        pending: Pending,
        rank: Rank,
        others: Sequence[Promise],
        *,
        latest: float = inf,
    ) -> Steps[Start[StartClaim] | None]:
        """Return the earliest start beside running work and `others`, or None.

        The present is always tried; any other instant only up to `latest` (Unix seconds).

        Steps are those of `queues.profile.earliest_start.searching`.
        """
        visible = self.visible
        trial = visible.trial(queue, pending)
        horizon = visible.horizon(queue, rank, others, of=pending.workload)
        seconds = self.seconds(queue, pending, rank)
        return (
            yield from searching(
                horizon, visible.stage, trial, now=visible.now, seconds=seconds, latest=latest
            )
        )

    def seconds(self, queue: QueueState, pending: Pending, rank: Rank) -> float:
        """Return for how many seconds the promise of that rank holds its capacity."""
        schedule_plan = self.visible.schedule_plan
        # No promise precedes it, so it holds its capacity for its estimate and no longer. Otherwise it must
        # be clear of those before it until it has been evicted.
        if self.visible.above(rank, pending.key):
            return schedule_plan.run_estimates.span(pending.workload, queue.name)
        return schedule_plan.run_estimates.length(pending.workload, queue.name)

    def planned(
        self,
        queue: QueueState,
        pending: Pending,
        rank: Rank,
        start: Start[StartClaim],
        known: PlannedStart | None,
    ) -> PlannedStart:
        """Return the promise of a start that was found; it keeps the history of a `known` promise.

        Nothing is recorded yet: `Promises.keep` does that. `made_at` is the present for a new promise.
        """
        assert start.value.assignment is not None, "what a search finds has flavors"
        fresh = PlannedStart(
            key=pending.key,
            uid=pending.workload.uid,
            cluster_queue=queue.name,
            rank=rank,
            start_at=start.at,
            seconds=self.seconds(queue, pending, rank),
            admission=start.value.assignment.to_admission(queue.name),
            made_at=self.visible.now,
            first_start_at=start.at,
        )
        if known is None:
            return fresh
        return replace(
            fresh,
            made_at=known.made_at,
            first_start_at=known.first_start_at,
            moves=known.moves,
            cause=known.cause,
        )

    def _keep(self, planned: PlannedStart, start_claim: StartClaim) -> None:
        """Record a promise with its claim, and which promises of lower rank may have to move for it."""
        self.visible.schedule_plan.promises.keep(planned, start_claim.usage, start_claim.spots)
        self._note_precedence(planned.key, planned.rank, planned.cluster_queue)

    def _note_precedence(self, key: WorkloadKey, rank: Rank, queue: str) -> None:
        """Record why promises that the Workload outranks may move: they were made without it."""
        for promise in self.visible.schedule_plan.promises.values():
            lower = promise.planned
            if lower.key != key and lower.is_outranked_by(rank, queue):
                # A queue that reclaims its own quota from a borrower is reported as a cause of its own.
                is_reclaim = lower.cluster_queue != queue and lower.rank.height > rank.height
                cause = MoveCause.RECLAIM if is_reclaim else MoveCause.HIGHER_PRIORITY
                self.visible.schedule_plan.revision.causes.add(cause)

    def _note_outranking(self, entry: Entry) -> None:
        """Record why promises of lower rank may move: this start takes capacity that was promised to them."""
        visible, causes = self.visible, self.visible.schedule_plan.revision.causes
        rank = visible.rank_of(entry)
        self._note_precedence(entry.pending.key, rank, entry.queue.name)
        # A start that is due, or one with evictions, can also break promises that only age puts below it. As
        # a rule something else has changed before that, and that is the cause.
        if not causes and any(one.planned.rank > rank for one in visible.schedule_plan.promises.values()):
            causes.add(MoveCause.HIGHER_PRIORITY)

    # --- what the cycle did ------------------------------------------------------------------------------

    def note_admitted(self, verdict: StartCheck) -> None:
        """Record that the entry starts: its claim begins now and lasts until its expected end.

        From then on the claim counts as running work, beside which promises have to fit.
        """
        entry = verdict.entry
        if verdict.is_outranking:
            self._note_outranking(entry)
        # Its promise is removed when the Workload leaves its queue, not here.
        self._claim_now(entry, verdict.lease)

    def finish(self) -> None:
        """Record that the cycle has ended, and keep the promises whose capacity it counted as taken."""
        for planned, start_claim in self._later:
            self._keep(planned, start_claim)
        self._later.clear()

    def _claim_now(self, entry: Entry, lease: BackfillLease | None = None) -> None:
        """Put the claim of a Workload that starts now into the profile, until its expected end."""
        schedule_plan = self.visible.schedule_plan
        schedule_plan.upcoming.join(entry.pending.workload)
        ends_at = self.visible.now + schedule_plan.ends.claimed_seconds(
            entry.pending.workload, entry.queue.name, lease
        )
        promised, rules = schedule_plan.promises.get(entry.pending.key), rules_of(entry.queue)
        # Its promise included the time for its own eviction, which it may not need. A difference below the
        # resolution of promises is not worth another look at them.
        least = rules.resolution_seconds if rules is not None else inf
        if promised is not None and promised.claim.ends_at >= ends_at + least:
            schedule_plan.revision.freed.note(promised.claim, from_at=ends_at, until=promised.claim.ends_at)
        schedule_plan.profile.put(
            Claim(
                holder=entry.pending.key,
                queue=entry.queue.name,
                usage=entry.assignment.usage,
                spots=self.visible.snapshot.topology_cache.usage.spots(entry.assignment.places),
                ends_at=ends_at,
            )
        )
