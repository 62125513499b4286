"""Revision of promises: after a change, which promised starts still hold, and which can be earlier?

All promises are looked at in the order of rank, the highest first, each against running work and the
promises of higher rank:

    it no longer holds, and there is a cause    ─▶  it is searched for again: moved later, or withdrawn
    it holds, and capacity has come free        ─▶  it is moved earlier, if that is enough to be reported
    otherwise                                   ─▶  it stays as it is

The invariant: a promise moves later only for a recorded cause (`MoveCause`), and moving one earlier never
moves another, of whatever rank. Between two steps of a revision the plan is valid, so it may pause there, and
a revision that is abandoned keeps its causes and freed capacity for the next.

The order of rank makes one pass enough for moves to a later start: a promise depends only on those before it.
A move to an earlier start frees capacity for the promises after it, and the same pass considers that; a move
to a later start may help promises before it too, and the next pass considers those. Searches are what a pass
costs, at most one for each promise. Three tests avoid most of them: without a cause no promise is checked,
`improvable_promises` rules out promises that the freed capacity cannot help, and after a failed search longer
promises of the same queue and shape are not tried. A pass ends because it works on a list taken at its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from admission.backfill.improvable_promises import ImprovablePromises
from admission.backfill.planned_starts import Promise
from admission.backfill.planner import Planner
from admission.backfill.profile_trial import StartClaim
from admission.backfill.schedule_plan import SLACK_SECONDS
from admission.backfill.visible_promises import VisiblePromises, rules_of
from admission.flavors.feasibility import may_have_room
from admission.snapshot.queue_state import QueueState
from queues.pending.pending_queue import Pending
from queues.profile.planned_start import MoveCause
from queues.profile.profile_walk import holds_at
from queues.steps import Steps


@dataclass(slots=True, kw_only=True)
class PromiseReviser:
    """One pass over all promises, the highest rank first. No cycle may run meanwhile.

    Every pending Workload has to be in its queue: one that a cycle has taken out is passed over.
    """

    visible: VisiblePromises
    planner: Planner
    # By ClusterQueue and shape of requests: the shortest run time in seconds that no earlier start was found
    # for in this pass.
    _failed_seconds: dict[tuple[str, bytes], float] = field(default_factory=dict)
    _gains: ImprovablePromises = field(init=False)
    # Whether a Workload is to be tried first (see `_improve`), so that others get only what it leaves.
    _is_trying: bool = False

    def settling(self) -> Steps[None]:
        """Withdraw or move promises that no longer hold, and move others earlier; one step per promise.

        Between two steps the plan is valid. If the generator is closed before its end, the causes and the
        freed capacity are kept for the next pass.
        """
        revision, is_whole = self.visible.schedule_plan.revision, False
        # The causes are taken before the pass, so that those which the pass itself adds are left to the next.
        causes, freed = revision.take()
        self._gains = ImprovablePromises(visible=self.visible, slack=freed)
        try:
            for promise in self.visible.schedule_plan.promises.in_order():
                yield from self._look_at(promise, causes)
                yield
            is_whole = True
        finally:
            if not is_whole:
                revision.causes |= causes
            if not is_whole or self._is_trying:
                revision.freed.give_back(self._gains.slack)

    def _look_at(self, promise: Promise, causes: set[MoveCause]) -> Steps[None]:
        """Move the promise if it no longer holds, or improve it if capacity came free."""
        queue = self.visible.snapshot.queues[promise.planned.cluster_queue]
        pending = queue.pending.members.get(promise.planned.key)
        if pending is None:
            # It is not in its queue: it is being tried, or it is gone. Whatever changes that
            # records its own cause.
            return
        # Without a cause no promise can have been broken, so none is checked.
        if causes and not self._still_holds(promise, queue, pending):
            # One that was moved is as early as can be; only one that holds can be improved.
            yield from self._move(promise, queue, pending, causes)
            return
        if causes:
            promise = self._lengthened(promise, queue, pending)
        if self._gains.slack.until >= self.visible.now:
            yield from self._improve(promise, queue, pending)

    def _lengthened(self, promise: Promise, queue: QueueState, pending: Pending) -> Promise:
        """Return the promise with time for its own eviction, where promises above it were made since.

        Its Workload will start on a lease and keep its capacity for that time, so no promise after it may be
        moved earlier into it. A promise that would break another one by this stays as it is.
        """
        known, promises = promise.planned, self.visible.schedule_plan.promises
        seconds = self.planner.seconds(queue, pending, known.rank)
        if seconds <= known.seconds:
            return promise
        planned = replace(known, seconds=seconds)
        others = [one for key, one in promises.items() if key != known.key]
        if not self._holds(promise, queue, pending, beside=others, seconds=seconds):
            return promise
        promises.keep(planned, promise.claim.usage, promise.claim.spots)
        return promises[known.key]

    def _still_holds(self, promise: Promise, queue: QueueState, pending: Pending) -> bool:
        """Return whether the promise holds at its start beside running work and higher promises."""
        planned = promise.planned
        above = self.visible.above(planned.rank, planned.key)
        return self._holds(promise, queue, pending, beside=above, seconds=planned.seconds)

    def _holds(
        self,
        promise: Promise,
        queue: QueueState,
        pending: Pending,
        *,
        beside: Sequence[Promise],
        seconds: float,
    ) -> bool:
        """Return whether the promise holds from its start for `seconds` beside running work and these."""
        visible, planned = self.visible, promise.planned
        start_claim = StartClaim(usage=promise.claim.usage, spots=promise.claim.spots)
        horizon = visible.horizon(queue, planned.rank, beside, of=pending.workload)
        at = max(planned.start_at, visible.now)
        trial = visible.trial(queue, pending)
        return holds_at(horizon, visible.stage, trial, start_claim, at=at, seconds=seconds)

    def _move(
        self, promise: Promise, queue: QueueState, pending: Pending, causes: set[MoveCause]
    ) -> Steps[None]:
        """Search for another start and promise that, or withdraw the promise where there is none."""
        known, schedule_plan = promise.planned, self.visible.schedule_plan
        found = yield from self.planner.search(queue, pending, known)
        if found is None:
            schedule_plan.promises.withdraw(known.key)
            return
        planned, start_claim = found
        # A move within the slack is not reported: estimates are no more exact than that.
        if planned.start_at > known.start_at + SLACK_SECONDS:
            planned = replace(planned, moves=known.moves + 1, cause=self._cause(promise, causes))
            # Recorded for promises of higher rank too, which were looked at before this one moved.
            schedule_plan.revision.freed.note(promise.claim, from_at=known.start_at, until=known.ends_at)
        schedule_plan.promises.keep(planned, start_claim.usage, start_claim.spots)

    def _cause(self, promise: Promise, causes: set[MoveCause]) -> MoveCause:
        """Return why a promise no longer holds: lost nodes of its own, else the first recorded cause.

        The recorded causes are tried in the order of `MoveCause`. A promise is moved only if there is one.
        """
        if not self.visible.snapshot.topology_cache.usage.has_nodes(promise.claim.spots):
            return MoveCause.NODE_LOST
        return next(cause for cause in MoveCause if cause in causes)

    def _improve(self, promise: Promise, queue: QueueState, pending: Pending) -> Steps[None]:
        """Move the promise earlier if the gain is worth reporting and no other promise has to move.

        Capacity that came free would have come free at some later instant anyway, so only starts before that
        instant are new. A promise that moves earlier frees its former end for those after it. A start right
        now is always worth reporting. After a failed search, longer Workloads of the same queue and shape are
        skipped: one of them might succeed by giving up its own hold, but that is rare, and trying them takes
        nearly twice the time where a hundred starts are promised.
        """
        visible, known, rules = self.visible, promise.planned, rules_of(queue)
        least = max(rules.resolution_seconds if rules is not None else 0, SLACK_SECONDS)
        latest = min(self._gains.slack.until, known.start_at - least)
        like = known.cluster_queue, pending.shape
        if known.start_at <= visible.now or known.seconds >= self._failed_seconds.get(like, inf):
            return
        if not self._gains.may_help(promise, queue, pending, latest=latest):
            return
        if latest <= visible.now and not may_have_room(visible.snapshot, queue, pending):
            return
        others = [one for key, one in visible.schedule_plan.promises.items() if key != known.key]
        start = yield from self.planner.earliest(queue, pending, known.rank, others, latest=latest)
        # `earliest` always tries the present, so a start after both instants is not one that was asked for.
        if start is None or start.at > max(latest, visible.now):
            self._failed_seconds[like] = known.seconds
            return
        if start.value.assignment is None:
            return
        # Borrowing higher would lower its rank, and it might lose this very start to others.
        if start.value.assignment.borrowing > known.rank.height:
            if start.at <= visible.now and not visible.schedule_plan.due_queues.may_try(
                known, now=visible.now
            ):
                # It fits beside all promises, whatever their rank, so a cycle tries it; its promise stays.
                visible.schedule_plan.due_queues.try_now(known, now=visible.now)
                self._is_trying = True
            return
        # This start may need the capacity that the Workload to be tried first will take, and would then be
        # lost again. Another pass follows once that Workload has started or failed to.
        if self._is_trying:
            return
        planned = self.planner.planned(queue, pending, known.rank, start, known)
        visible.schedule_plan.promises.keep(planned, start.value.usage, start.value.spots)
        # Its former end is free for the promises after it.
        self._gains.slack.note(promise.claim, from_at=known.start_at, until=known.ends_at)
