"""When is there room for long enough? Asked spot by spot, before any search for nodes.

The room of one spot is a step function of time. A pod that runs for some seconds needs the least of it over
as many seconds, so what counts at an instant is the least from there on:

    pods    2 ┤     ┌─────┐        ┌───          the room: an end at 5, a promise from 11 to 20
            1 ┤     │     │        │
            0 ┼─────┘     └────────┘
    for 4 s 2 ┤     ┌─┐            ┌───          the same four seconds later: only who begins by 7 is done
            0 ┼─────┘ └────────────┘             before the promise begins
              0     5 7   11       20

The sum of that over all spots says at which instants a request could begin at all. It leaves out all that
hangs together (domains, other pods beside it, quota), so "no" is certain and "yes" is worth a search. A spot
costs its own few edges, whatever happens elsewhere; spots where nothing changes cost nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from queues.profile.capacity_profile import Course, Edge, Room, Rooms, Spot
from queues.profile.request_horizon import RequestHorizon

# A start that ends as a promise begins is found by subtracting, and tried by adding, the same seconds: the
# two may differ by a rounding. Rather one search too many.
_ROUNDING = 1e-3
# From when on the room is this one, 1: right after that instant.
_Step = tuple[float, int, int]


def open_instants(
    horizon: RequestHorizon, rooms: Rooms, instants: Sequence[float], *, seconds: float
) -> list[float]:
    """Return those of the instants, which are in order, at which there may be room for so many seconds.

    `horizon` begins at the first of them, as the stage shows it.
    """
    for alternatives in rooms:
        if not instants:
            break
        lacking: Sequence[float] = instants
        found: set[float] = set()
        for room in alternatives:
            found.update(_with_room(horizon, room, lacking, now=instants[0], seconds=seconds))
            lacking = [at for at in lacking if at not in found]
        instants = [at for at in instants if at in found]
    return list(instants)


def _with_room(
    horizon: RequestHorizon, room: Room, instants: Sequence[float], *, now: float, seconds: float
) -> list[float]:
    if not instants:
        return []
    total = room.total()
    changes: list[_Step] = []
    # An end after the last instant helps nobody who begins by then.
    for spot in horizon.spots_until(instants[-1], seconds=seconds):
        edges = horizon.at_spot(spot)
        if not edges:
            continue
        course = _course(horizon, room, spot, edges)
        before = course[1][0]
        if len(course[1]) == course[1].count(before):
            # A host that takes none of the pods, whoever comes and goes.
            continue
        for at, is_after, pods in _steps(course, now=now, last=instants[-1], seconds=seconds):
            if pods != before:
                changes.append((at, is_after, pods - before))
                before = pods
    changes.sort()
    found, index = [], 0
    for at in instants:
        while index < len(changes) and changes[index][:2] <= (at, 0):
            total += changes[index][2]
            index += 1
        if total >= room.needed:
            found.append(at)
    return found


def has_room_within(
    horizon: RequestHorizon,
    room: Room,
    spot: Spot,
    *,
    now: float,
    within: tuple[float, float],
    seconds: float,
) -> bool:
    """Return whether the spot has room for one pod, for so many seconds, from some instant within the two."""
    first, last = within
    course = _course(horizon, room, spot, horizon.at_spot(spot))
    steps = _steps(course, now=now, last=last, seconds=seconds)
    # A step counts until the next, and the last of them ever after.
    ends = [at for at, _, _ in steps[1:]] + [inf]
    return any(pods > 0 and until >= first for (_, _, pods), until in zip(steps, ends, strict=True))


def _steps(course: Course, *, now: float, last: float, seconds: float) -> list[_Step]:
    """Return the least room over so many seconds from each instant on, from now until `last`."""
    times, levels = course
    # What has come by now counts from now on; `times` has one less than `levels`, which begin with today's.
    begun = bisect_right(times, now)
    end = bisect_right(times, last + seconds, lo=begun)
    times, levels = [now, *times[begun:end]], levels[begun : end + 1]
    if levels == sorted(levels):
        # Without a promise on it a spot only becomes freer.
        return [(at, 0, pods) for at, pods in zip(times, levels, strict=True) if at <= last]
    steps: list[_Step] = []
    count = len(times)
    for index, at in enumerate(times):
        if at > last:
            break
        least, ahead = levels[index], index + 1
        while ahead < count and times[ahead] < at + seconds:
            least = min(least, levels[ahead])
            ahead += 1
        steps.append((at, 0, least))
        ends_at = times[index + 1] if index + 1 < count else inf
        while ahead < count and (reaches_at := times[ahead] - seconds + _ROUNDING) < ends_at:
            if levels[ahead] < least:
                least = levels[ahead]
                steps.append((reaches_at, 1, least))
            ahead += 1
    return steps


def _course(horizon: RequestHorizon, room: Room, spot: Spot, edges: Sequence[Edge]) -> Course:
    """Return how the room of a spot changes: after which instants it is how much, and first how much now."""
    stamp = horizon.stamp(spot, edges)
    known = room.known(spot, stamp) if stamp is not None else None
    if known is not None:
        return known
    change: dict[str, int] = {}
    times: list[float] = []
    levels = [room.at(spot, change)]
    for at, sign, _, claim in edges:
        for resource, amount in claim.spots[spot].items():
            change[resource] = change.get(resource, 0) + sign * amount
        pods = room.at(spot, change)
        if times and times[-1] == at:
            levels[-1] = pods
        else:
            times.append(at)
            levels.append(pods)
    if stamp is not None:
        room.note(spot, stamp, (times, levels))
    return times, levels
