"""Settling: something moved, so does every promise still stand? Earlier if it can, later for a cause."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf

from admission.backfill.improvable_promises import ImprovablePromises
from admission.backfill.planned_starts import Promise
from admission.backfill.planner import Planner
from admission.backfill.profile_trial import StartClaim
from admission.backfill.schedule_plan import SLACK_SECONDS
from admission.backfill.visible_promises import VisiblePromises, rules_of
from admission.flavors.feasibility import may_have_room
from admission.snapshot.snapshot import QueueState
from queues.pending.pending_queue import Pending
from queues.profile.planned_start import MoveCause
from queues.profile.profile_walk import holds_at
from queues.steps import Steps


@dataclass(slots=True, kw_only=True)
class PromiseReviser:
    """One look at all promises, the highest rank first, while everybody who waits is in a queue."""

    visible: VisiblePromises
    planner: Planner
    # The shortest of each shape that could not be promised an earlier start in this look.
    _in_vain: dict[bytes, float] = field(default_factory=dict)
    _gains: ImprovablePromises = field(init=False)
    # Whether one is to be tried first, so that who comes after it may have what it leaves.
    _is_trying: bool = False

    def settling(self) -> Steps[None]:
        """Take back or move what does not stand, start earlier what can: a step for each promise.

        Between two steps all that is promised is true. A look that is closed before its end leaves its
        reasons to the next.
        """
        schedule_plan, is_whole = self.visible.schedule_plan, False
        # Taken before the look, so that what the look itself brings about is for the next one.
        causes, schedule_plan.causes = schedule_plan.causes, set()
        self._gains = ImprovablePromises(visible=self.visible, slack=schedule_plan.slack.take())
        try:
            for promise in schedule_plan.promises.in_order():
                yield from self._look_at(promise, causes)
                yield
            is_whole = True
        finally:
            if not is_whole:
                schedule_plan.causes |= causes
            if not is_whole or self._is_trying:
                schedule_plan.slack.give_back(self._gains.slack)

    def _look_at(self, promise: Promise, causes: set[MoveCause]) -> Steps[None]:
        queue = self.visible.snapshot.queues[promise.planned.cluster_queue]
        pending = queue.pending.get(promise.planned.key)
        if pending is None:
            # It is not in its queue now: being tried, or gone; whoever changes that sets a
            # cause of its own.
            return
        # Without a cause nothing can have broken a promise, so none is tried.
        if causes and not self._stands(promise, queue, pending):
            yield from self._move(promise, queue, pending, causes)
        # Moved, it is as early as can be; only what stands may be improved.
        elif self._gains.slack.until >= self.visible.now:
            yield from self._improve(promise, queue, pending)

    def _stands(self, promise: Promise, queue: QueueState, pending: Pending) -> bool:
        visible, planned = self.visible, promise.planned
        footing = StartClaim(usage=promise.claim.usage, spots=promise.claim.spots)
        above = visible.above(planned.rank, planned.key)
        horizon = visible.horizon(queue, planned.rank, above, of=pending.workload)
        at = max(planned.start_at, visible.now)
        trial = visible.trial(queue, pending)
        return holds_at(horizon, visible.stage, trial, footing, at=at, seconds=planned.seconds)

    def _move(
        self, promise: Promise, queue: QueueState, pending: Pending, causes: set[MoveCause]
    ) -> Steps[None]:
        known, schedule_plan = promise.planned, self.visible.schedule_plan
        found = yield from self.planner.search(queue, pending, known)
        if found is None:
            schedule_plan.withdraw(known.key)
            return
        planned, footing = found
        # Within the slack nobody is told: the estimates are no better than that.
        if planned.start_at > known.start_at + SLACK_SECONDS:
            planned = replace(planned, moves=known.moves + 1, cause=self._cause(promise, causes))
            # For those of higher rank too, who had their look before this one left.
            schedule_plan.slack.note(promise.claim, from_at=known.start_at, until=known.ends_at)
        schedule_plan.keep(planned, footing.usage, footing.spots)

    def _cause(self, promise: Promise, causes: set[MoveCause]) -> MoveCause:
        """Return why a promise does not stand: what is known of it alone first, then what has happened.

        Nothing but work that was to end can be late without a word, so that is what is left.
        """
        if not self.visible.snapshot.topology_cache.has_nodes(promise.claim.spots):
            return MoveCause.NODE_LOST
        return next((cause for cause in MoveCause if cause in causes), MoveCause.OVERRUN)

    def _improve(self, promise: Promise, queue: QueueState, pending: Pending) -> Steps[None]:
        """Start it earlier if that is worth a word and moves nobody else, those of lower rank included.

        What came free was to come free at some instant, so nothing has changed for a start after that. One
        that starts earlier leaves its former end to those after it. To start at once is always worth a word.
        Where one could not, a longer one of the same shape is not looked at: it might do without its own hold
        what the other could not, but that is rare and the look is dear.
        """
        visible, known, rules = self.visible, promise.planned, rules_of(queue)
        least = max(rules.resolution_seconds if rules is not None else 0, SLACK_SECONDS)
        latest = min(self._gains.slack.until, known.start_at - least)
        if known.start_at <= visible.now or known.seconds >= self._in_vain.get(pending.shape, inf):
            return
        if not self._gains.may_help(promise, queue, pending, latest=latest):
            return
        if latest <= visible.now and not may_have_room(visible.snapshot, queue, pending):
            return
        others = [one for key, one in visible.schedule_plan.promises.items() if key != known.key]
        start = yield from self.planner.earliest(queue, pending, known.rank, others, latest=latest)
        # `earliest` tries now whatever `latest` says, so a start after both is none that was asked for.
        if start is None or start.at > max(latest, visible.now):
            self._in_vain[pending.shape] = known.seconds
            return
        if start.value.assignment is None:
            return
        # Borrowing higher would cost it its rank, and with that perhaps the very start.
        if start.value.assignment.borrowing > known.rank.height:
            if start.at <= visible.now and not visible.schedule_plan.dues.may_try(known, now=visible.now):
                # Beside all that is promised, whatever its rank: it is tried, and promised what it was.
                visible.schedule_plan.dues.try_now(known, now=visible.now)
                self._is_trying = True
            return
        # What it would have may be what the one before it takes when it is tried: it would be promised that
        # and lose it again. Once that one has started, or was tried in vain, there is another look.
        if self._is_trying:
            return
        planned = self.planner.planned(queue, pending, known.rank, start, known)
        visible.schedule_plan.keep(planned, start.value.usage, start.value.spots)
        # Those after it may have what it leaves at its former end.
        self._gains.slack.note(promise.claim, from_at=known.start_at, until=known.ends_at)
