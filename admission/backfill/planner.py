"""Planning: from when on does a head that cannot start fit, after all of higher rank? That it is promised."""

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
from admission.snapshot.snapshot import QueueState
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import Claim, Start
from queues.profile.earliest_start import searching
from queues.profile.planned_start import BackfillLease, MoveCause, PlannedStart, Rank
from queues.steps import Steps


@dataclass(slots=True, kw_only=True)
class Planner:
    """Makes promises on one outlook, and takes note of who starts. They are the timekeeper's."""

    visible: VisiblePromises
    # Promises whose capacity counts as taken already while the cycle lasts: others were sent away for it.
    _later: list[tuple[PlannedStart, StartClaim]] = field(default_factory=list)

    def plan(self, entry: Entry) -> Steps[bool]:
        """Promise a start to a head that cannot start now. Returns whether it has a promise.

        It gets none where its ClusterQueue has promised to enough Workloads before it, where it would not
        fit if all others had ended, and beyond the window unless it is the first of its queue.
        """
        rules, key = rules_of(entry.queue), entry.pending.key
        if rules is None:
            return False
        # A promise that stands is the settling's to move, not the planner's to make anew.
        if key in self.visible.schedule_plan.promises:
            return True
        # The depth counts only those before it: a promise further down must not keep the next from one.
        before = self.visible.schedule_plan.promises.before(entry.pending, entry.queue.name)
        if before >= rules.reservation_depth:
            return False
        found = yield from self.search(entry.queue, entry.pending)
        if found is None or (before and found[0].start_at > self.visible.now + rules.window_seconds):
            return False
        self._keep(*found)
        return True

    def plan_after_evictions(self, entry: Entry) -> bool:
        """Promise a start to a head whose targets are sent away in this cycle: when the last of them is gone.

        Returns whether it has a promise. For the rest of the cycle its capacity counts as taken.
        """
        if rules_of(entry.queue) is None:
            return False
        workload, queue = entry.pending.workload, entry.queue
        # The slowest target decides; until then its room is not there.
        at = max(self._gone_at(target) for target in entry.targets)
        known = self.visible.schedule_plan.promises.get(workload.key)
        if known is not None and self.visible.now < known.planned.start_at <= at:
            # Tried again while they leave, or promised a sooner start elsewhere: that is the settling's to
            # move. Moved here it would be moved back there, and so on for as long as they take to leave.
            footing = StartClaim(usage=known.claim.usage, spots=known.claim.spots)
            self._later.append((known.planned, footing))
            self._claim_now(entry)
            return True
        planned = PlannedStart(
            key=workload.key,
            uid=workload.uid,
            cluster_queue=queue.name,
            rank=self.visible.rank_of(entry),
            start_at=at,
            seconds=self.visible.schedule_plan.lengths.length(workload, queue.name),
            admission=entry.assignment.to_admission(queue.name),
            made_at=known.planned.made_at if known is not None else self.visible.now,
            first_start_at=known.planned.first_start_at if known is not None else at,
        )
        # Kept only at the end of the cycle: the claim would count what `_claim_now` counts already.
        self._later.append((planned, self.visible.footing(entry)))
        self._claim_now(entry)
        return True

    def _gone_at(self, target: Target) -> float:
        """Return when a target will have left: told to now, or on its way already."""
        held, now = target.held, self.visible.now
        claim = self.visible.schedule_plan.profile.get(held.key)
        if held.is_evicted and claim is not None:
            return max(now, claim.ends_at)
        return now + leaving_seconds(held.workload, target.queue.policy)

    def search(
        self, queue: QueueState, pending: Pending, known: PlannedStart | None = None
    ) -> Steps[tuple[PlannedStart, StartClaim] | None]:
        """Return the earliest start after all of higher rank, None for never."""
        height = known.rank.height if known is not None else 0
        while True:
            rank = self.visible.rank(queue, pending, height)
            others = self.visible.before(rank, pending.key)
            start = yield from self.earliest(queue, pending, rank, others)
            if start is None or start.value.assignment is None:
                return None
            # It was assumed to borrow no higher than this, and who comes before it was chosen accordingly.
            if start.value.assignment.borrowing <= rank.height:
                return self.planned(queue, pending, rank, start, known), start.value
            # It has to borrow higher than was assumed, and so comes after more of the others.
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
        """Return the earliest start beside running work and those promises, at `latest` if it is not now."""
        visible = self.visible
        trial = visible.trial(queue, pending)
        horizon = visible.horizon(queue, rank, others, of=pending.workload)
        seconds = self._seconds(queue, pending, rank)
        return (
            yield from searching(
                horizon, visible.stage, trial, now=visible.now, seconds=seconds, latest=latest
            )
        )

    def _seconds(self, queue: QueueState, pending: Pending, rank: Rank) -> float:
        """Return for how long a promise holds: as long as it must be out of the way of those before it."""
        schedule_plan = self.visible.schedule_plan
        # Nobody before it: what it holds is for as long as it says it runs, and no longer.
        if self.visible.above(rank, pending.key):
            return schedule_plan.lengths.span(pending.workload, queue.name)
        return schedule_plan.lengths.length(pending.workload, queue.name)

    def planned(
        self,
        queue: QueueState,
        pending: Pending,
        rank: Rank,
        start: Start[StartClaim],
        known: PlannedStart | None,
    ) -> PlannedStart:
        """Return the promise of a start that was found; of one that is `known` already its history stays."""
        assert start.value.assignment is not None, "what a search finds has flavors"
        fresh = PlannedStart(
            key=pending.key,
            uid=pending.workload.uid,
            cluster_queue=queue.name,
            rank=rank,
            start_at=start.at,
            seconds=self._seconds(queue, pending, rank),
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

    def _keep(self, planned: PlannedStart, footing: StartClaim) -> None:
        self.visible.schedule_plan.keep(planned, footing.usage, footing.spots)
        self._note_precedence(planned.key, planned.rank, planned.cluster_queue)

    def _note_precedence(self, key: WorkloadKey, rank: Rank, queue: str, *, of_equals: bool = False) -> None:
        """Note that someone takes precedence over the promises of lower rank, which were made without it.

        It left alone those that it does not outrank by more than age, unless `of_equals`.
        """
        for promise in self.visible.schedule_plan.promises.values():
            lower = promise.planned
            is_outranked = lower.rank > rank if of_equals else lower.rank[:3] > rank[:3]
            if is_outranked and lower.key != key:
                # Own quota taken back from a borrower, which is told by other words than being outranked.
                is_reclaim = lower.cluster_queue != queue and lower.rank.height > rank.height
                cause = MoveCause.RECLAIM if is_reclaim else MoveCause.HIGHER_PRIORITY
                self.visible.schedule_plan.causes.add(cause)

    # --- what the cycle did ------------------------------------------------------------------------------

    def note_admitted(self, verdict: StartCheck) -> None:
        """Take note that the entry starts: from here on it claims what it takes, until its expected end."""
        entry = verdict.entry
        if verdict.is_outranking:
            rank = self.visible.rank_of(entry)
            self._note_precedence(entry.pending.key, rank, entry.queue.name, of_equals=True)
        # What was promised to it goes with its Workload's leaving the queue, not here.
        self._claim_now(entry, verdict.lease)

    def finish(self) -> None:
        """Take note that the cycle has ended: what it counted as taken for the time being is promised."""
        for planned, footing in self._later:
            self._keep(planned, footing)
        self._later.clear()

    def _claim_now(self, entry: Entry, lease: BackfillLease | None = None) -> None:
        self.visible.schedule_plan.ahead.join(entry.pending.workload)
        seconds = self.visible.schedule_plan.lengths.length(entry.pending.workload, entry.queue.name)
        # It may be asked to go at its end and take as long as it is allowed: nobody is promised that time.
        if lease is not None and self.visible.schedule_plan.gives_way(lease):
            seconds += lease.eviction_seconds
        schedule_plan, ends_at = self.visible.schedule_plan, self.visible.now + seconds
        promised, rules = schedule_plan.promises.get(entry.pending.key), rules_of(entry.queue)
        # It was promised the time of its own eviction, too, and may not need it. What is less than would be
        # worth a word moves nobody.
        least = rules.resolution_seconds if rules is not None else inf
        if promised is not None and promised.claim.ends_at >= ends_at + least:
            schedule_plan.slack.note(promised.claim, from_at=ends_at, until=promised.claim.ends_at)
        schedule_plan.profile.put(
            Claim(
                holder=entry.pending.key,
                queue=entry.queue.name,
                usage=entry.assignment.usage,
                spots=self.visible.snapshot.topology_cache.spots(entry.assignment.places),
                ends_at=ends_at,
            )
        )
