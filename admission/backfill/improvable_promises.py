"""Improvable promises: which promises could begin earlier on the capacity that came free?

Most of what comes free helps one promise or none. A search for each of a hundred promises at every end of a
Job is what makes conservative backfill slow, so this filter is asked about all of them before any search.
Freed capacity (*slack*) can help a promise in two ways only:

    a freed spot has room for one of its pods for as long as they run, while the slack lasts
    its quota was short at some instant of the slack and no longer is, on spots it could have had before

If neither holds, the promise could have begun as early without the slack, and then it would have: every
promise begins as early as it could when it was made or last moved. So "no" is certain and saves the search;
"perhaps" costs one. The filter may say "perhaps" too often, never "no" too often.

Quota is compared with the levels that the profile reaches while a piece of slack lasts. With one queue in the
tree, one need and no calendar, an amount was short exactly where `level - freed < amount <= level`. In any
other case lending limits or several pod sets make that difference meaningless, and the answer is "perhaps".
One pass over the profile's edges for each piece and resource gives all levels; they are kept for the
revision, so a further promise costs a bisection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from admission.backfill.planned_starts import Promise
from admission.backfill.visible_promises import VisiblePromises
from admission.flavors.feasibility import needs_of, rooms_of
from admission.snapshot.queue_state import QueueState
from queues.pending.pending_queue import Pending
from queues.profile.freed_capacity import FreedCapacity, Piece
from queues.profile.node_windows import has_room_within
from queues.profile.request_horizon import RequestHorizon
from queues.quota.resources import FlavorResource


@dataclass(frozen=True, slots=True)
class _Tight:
    """Where the quota of one resource depends on what came free.

    `amounts` are sorted spans `(least, most]`: an amount within one fits at some instant only because of the
    slack. `spent_at` are the instants (Unix seconds, sorted) at which less is left than came free, so that a
    promise that holds some then would not have it without the slack.
    """

    amounts: tuple[tuple[int, int], ...]
    spent_at: tuple[float, ...]

    def may_help(self, amount: int, *, from_at: float, until: float) -> bool:
        """Return whether `amount` may have been short, also for a promise that holds it in that interval.

        `from_at` and `until` are in Unix seconds, `amount` in the resource's unit.
        """
        index = bisect_left(self.spent_at, from_at)
        is_own = index < len(self.spent_at) and self.spent_at[index] < until
        return is_own or any(least < amount <= most for least, most in self.amounts)


@dataclass(slots=True, kw_only=True)
class ImprovablePromises:
    """The slack as seen by one revision of promises. Pieces may be added to it as promises move."""

    visible: VisiblePromises
    slack: FreedCapacity
    _tight: dict[tuple[int, FlavorResource], _Tight] = field(default_factory=dict)

    def may_help(self, promise: Promise, queue: QueueState, pending: Pending, *, latest: float) -> bool:
        """Return False only where the slack cannot let the promise begin by `latest` (at least: now).

        `latest` is in Unix seconds. A cheap, necessary test before a search: with hundreds of promises and a
        piece of freed capacity every second, nearly all promises are ruled out by it.
        """
        now, planned = self.visible.now, promise.planned
        if self.slack.whole_until >= now:
            return True
        latest = max(now, latest)
        pieces = [one for one in self.slack.pieces if one.until > now]
        pieces = [one for one in pieces if one.from_at < min(latest, one.until) + planned.seconds]
        if not pieces:
            return False
        return self._has_freed_spot(pieces, promise, queue, pending, latest) or any(
            self._was_short(piece, promise, queue, pending) for piece in pieces
        )

    def _has_freed_spot(
        self, pieces: list[Piece], promise: Promise, queue: QueueState, pending: Pending, latest: float
    ) -> bool:
        """Return whether a freed spot has room for one of its pods; True if it needs no spots at all."""
        alternatives = rooms_of(self.visible.snapshot, queue, pending)
        rooms = [room for rooms in alternatives for room in rooms]
        if not rooms:
            return True
        horizon, seconds = self._spots_beside(promise), promise.planned.seconds
        return any(
            has_room_within(
                horizon,
                room,
                spot,
                now=self.visible.now,
                within=(piece.from_at - seconds, min(latest, piece.until)),
                seconds=seconds,
            )
            for piece in pieces
            for spot in piece.spots
            for room in rooms
        )

    def _spots_beside(self, promise: Promise) -> RequestHorizon:
        """Return how the spots change over time beside the promise, all other promises being kept."""
        visible = self.visible
        late = visible.overstaying(promise.planned.rank, frozenset())
        left_out = [promise.claim, *(edge[3] for edge in late)]
        profile = visible.schedule_plan.profile
        return RequestHorizon(edges=(), profile=profile, left_out=left_out, put_in=late, ended_by=visible.now)

    # --- quota -------------------------------------------------------------------------------------------

    def _was_short(self, piece: Piece, promise: Promise, queue: QueueState, pending: Pending) -> bool:
        """Return whether the freed quota may have been what the promise waited for; True where that is not
        clear.
        """
        freed_of = self.visible.snapshot.queues.get(piece.queue)
        if freed_of is None or freed_of.tree is not queue.tree:
            return False
        needs = needs_of(self.visible.snapshot, queue, pending)
        has_calendar = (
            self.visible.schedule_plan.upcoming.affects_admissions
            or self.visible.schedule_plan.upcoming.calendar.windows
        )
        if len(queue.tree.queues) > 1 or len(needs) > 1 or has_calendar:
            # Lending limits, several pod sets or coming quotas: then it is no difference of two sums.
            return True
        planned = promise.planned
        wanted = {id(cell): amount for options in needs for one in options for cell, amount in one.amounts}
        return any(
            self._tight_of(piece, pair).may_help(amount, from_at=planned.start_at, until=planned.ends_at)
            for pair in piece.usage
            if (amount := wanted.get(id(queue.node.cell(pair)))) is not None
        )

    def _tight_of(self, piece: Piece, pair: FlavorResource) -> _Tight:
        """Return the amounts of the pair that fit only with the freed quota, computed once for each piece."""
        known = self._tight.get((id(piece), pair))
        if known is None:
            # Two pieces may have been short only together, so all of them count as one.
            freed = sum(one.usage.get(pair, 0) for one in self.slack.pieces)
            levels = [(at, level) for at, level in self._levels(piece, pair) if level >= 0]
            spans = sorted({(level - freed, level) for _, level in levels})
            spent_at = tuple(at for at, level in levels if level < freed)
            known = self._tight[id(piece), pair] = _Tight(_merged(spans), spent_at)
        return known

    def _levels(self, piece: Piece, pair: FlavorResource) -> Iterator[tuple[float, int]]:
        """Yield from which instant on how much of the queue's quota is available, while the piece lasts."""
        visible = self.visible
        node = visible.snapshot.queues[piece.queue].node
        level, begins_at = node.cell(pair).available, max(visible.now, piece.from_at)
        at = visible.now
        for time, sign, _, claim in visible.schedule_plan.profile.edges():
            if time >= piece.until:
                break
            if sign < 0 and time <= visible.now:
                continue
            amount = claim.usage.get(pair)
            if amount:
                if time > begins_at:
                    yield max(at, begins_at), level
                level -= sign * amount
                at = max(time, visible.now)
        yield max(at, begins_at), level


def _merged(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the sorted spans with adjoining ones merged."""
    merged: list[tuple[int, int]] = []
    for least, most in spans:
        if merged and least <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(most, merged[-1][1])
        else:
            merged.append((least, most))
    return tuple(merged)
