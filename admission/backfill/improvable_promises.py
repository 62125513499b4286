"""Gains: which promises may begin earlier by what came free? Asked before any search, of all of them.

Most of what comes free helps one promise or none, and a search for each of a hundred at each end of a Job is
what makes conservative backfill slow. A promise gains by slack only in one of two ways:

    a freed spot has room for one of its pods, for as long as they run, while the slack lasts
    or quota was short at some instant of the slack and is no longer, on spots that it could have had before

Were neither so, it could have begun as early without the slack. "No" is certain; "perhaps" is worth a search.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from admission.backfill.planned_starts import Promise
from admission.backfill.visible_promises import VisiblePromises
from admission.flavors.feasibility import needs_of, rooms_of
from admission.snapshot.snapshot import QueueState
from queues.pending.pending_queue import Pending
from queues.profile.freed_capacity import FreedCapacity, Piece
from queues.profile.node_windows import has_room_within
from queues.profile.request_horizon import RequestHorizon
from queues.quota.resources import FlavorResource


@dataclass(frozen=True, slots=True)
class _Tight:
    """Where the quota of one resource hangs on what came free.

    `amounts` are spans, in order, of what fits at some instant and would not have; `spent_at` are the
    instants at which less is left than came free, so that whoever holds some then would not have it else.
    """

    amounts: tuple[tuple[int, int], ...]
    spent_at: tuple[float, ...]

    def may_help(self, amount: int, *, from_at: float, until: float) -> bool:
        """Return whether so much may have been short, of one who holds it already between two instants."""
        index = bisect_left(self.spent_at, from_at)
        is_own = index < len(self.spent_at) and self.spent_at[index] < until
        return is_own or any(least < amount <= most for least, most in self.amounts)


@dataclass(slots=True, kw_only=True)
class ImprovablePromises:
    """One look at the slack, on one outlook. Pieces may be added as promises move."""

    visible: VisiblePromises
    slack: FreedCapacity
    _tight: dict[tuple[int, FlavorResource], _Tight] = field(default_factory=dict)

    def may_help(self, promise: Promise, queue: QueueState, pending: Pending, *, latest: float) -> bool:
        """Return False only where the promise could not begin by the slack, at `latest` or now at most."""
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
        """Return whether a freed spot has room for one of its pods, or spots are none of its concern."""
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
        """Return what becomes of the spots beside the promise, with all others kept."""
        visible = self.visible
        late = visible.overstaying(promise.planned.rank, frozenset())
        left_out = [promise.claim, *(edge[3] for edge in late)]
        profile = visible.schedule_plan.profile
        return RequestHorizon(edges=(), profile=profile, left_out=left_out, put_in=late, ended_by=visible.now)

    # --- quota -------------------------------------------------------------------------------------------

    def _was_short(self, piece: Piece, promise: Promise, queue: QueueState, pending: Pending) -> bool:
        freed_of = self.visible.snapshot.queues.get(piece.queue)
        if freed_of is None or freed_of.tree is not queue.tree:
            return False
        needs = needs_of(self.visible.snapshot, queue, pending)
        has_calendar = (
            self.visible.schedule_plan.ahead.is_heeded or self.visible.schedule_plan.ahead.calendar.windows
        )
        if len(queue.tree.queues) > 1 or len(needs) > 1 or has_calendar:
            # With limits on lending, several pod sets or quotas to come it is no difference of two sums.
            return True
        planned = promise.planned
        wanted = {id(cell): amount for options in needs for one in options for cell, amount in one.amounts}
        return any(
            self._tight_of(piece, pair).may_help(amount, from_at=planned.start_at, until=planned.ends_at)
            for pair in piece.usage
            if (amount := wanted.get(id(queue.node.cell(pair)))) is not None
        )

    def _tight_of(self, piece: Piece, pair: FlavorResource) -> _Tight:
        known = self._tight.get((id(piece), pair))
        if known is None:
            # Several pieces may only together be what was short.
            freed = sum(one.usage.get(pair, 0) for one in self.slack.pieces)
            levels = [(at, level) for at, level in self._levels(piece, pair) if level >= 0]
            spans = sorted({(level - freed, level) for _, level in levels})
            spent_at = tuple(at for at, level in levels if level < freed)
            known = self._tight[id(piece), pair] = _Tight(_merged(spans), spent_at)
        return known

    def _levels(self, piece: Piece, pair: FlavorResource) -> Iterator[tuple[float, int]]:
        """Yield what is available of the queue's quota while the piece lasts, and from when on."""
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
    """Return the spans, which are sorted, with those that meet made one."""
    merged: list[tuple[int, int]] = []
    for least, most in spans:
        if merged and least <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(most, merged[-1][1])
        else:
            merged.append((least, most))
    return tuple(merged)
