"""The instants at which single nodes have room for long enough: a cheap test before any search for nodes.

What is searched. The room of one spot is a step function of time: how many pods of a request it could take. A
pod that runs for d seconds from t on needs that room throughout, so at t it may count only the minimum over
[t, t + d), a sliding-window minimum:

    pods    2 ┤     ┌─────┐        ┌───          the room: an end at 5, a promise from 11 to 20
            1 ┤     │     │        │
            0 ┼─────┘     └────────┘
    for 4 s 2 ┤     ┌─┐            ┌───          the minimum over the next four seconds: a pod that starts
            0 ┼─────┘ └────────────┘             after 7 would overlap the promise at 11
              0     5 7   11       20

The sum of these minima over all spots bounds from above how many pods could start at t. Where the sum is less
than the request needs, the request cannot start at t.

Invariant. The test is necessary and not sufficient. It ignores all that relates spots to each other (topology
domains, several pod sets on one node, quota), so "no" is certain and "yes" means that a search is worthwhile.

Cost. The total now is known. Each spot that changes contributes only its own edges: O(e) for e of them
without a promise, O(e²) at worst with promises, and a spot has a handful. Spots without an edge cost nothing.
The steps of all spots are sorted once and merged with the sorted instants in one pass. A request remembers a
spot's step function under a stamp (`RequestHorizon.stamp`) until an edge of that spot changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from queues.profile.capacity_profile import Course, Edge, Room, Rooms, Spot
from queues.profile.request_horizon import RequestHorizon

# The search subtracts the duration from a promise's begin, and the walk adds it to a start. The two
# results may differ by rounding. This tolerance admits such an instant: a superfluous search is better
# than a missed start.
_ROUNDING = 1e-3
# The instant, 0 or 1 for "from the instant on" or "only after it", and the room from then on.
_Step = tuple[float, int, int]


def open_instants(
    horizon: RequestHorizon, rooms: Rooms, instants: Sequence[float], *, seconds: float
) -> list[float]:
    """Return those of the sorted instants at which single spots may have room for `seconds`.

    The stage must show the present, which is the first instant. Each element of `rooms` must find room; its
    alternatives are tried one after the other. With no rooms every instant passes.

    `instants` are Unix seconds. The result keeps their order. An instant that is missing is certainly no
    start, and one that remains may still fail for other reasons. `rooms` has an element for each group of
    pods; its alternatives are, for example, the flavors that the group may use.
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
    """Return the instants at which all spots together have room for the pods of one alternative."""
    if not instants:
        return []
    total = room.total()
    changes: list[_Step] = []
    # An end after the last instant cannot help a request that begins by then.
    for spot in horizon.spots_until(instants[-1], seconds=seconds):
        edges = horizon.at_spot(spot)
        if not edges:
            continue
        course = _course(horizon, room, spot, edges)
        before = course[1][0]
        if len(course[1]) == course[1].count(before):
            # The room never changes, for example on a host that takes none of the pods.
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
    """Return whether the spot has room for one pod for `seconds` from some instant in the range `within`.

    `within` is a pair of Unix seconds, both included. For one pod and one spot, so quota and domains are not
    asked. Used to decide whether freed capacity on this spot can improve a promise.
    """
    first, last = within
    course = _course(horizon, room, spot, horizon.at_spot(spot))
    steps = _steps(course, now=now, last=last, seconds=seconds)
    # A step lasts until the next one, the last step for ever.
    ends = [at for at, _, _ in steps[1:]] + [inf]
    return any(pods > 0 and until >= first for (_, _, pods), until in zip(steps, ends, strict=True))


def _steps(course: Course, *, now: float, last: float, seconds: float) -> list[_Step]:
    """Return the minimum of the room over `seconds` as a step function from `now` to `last`."""
    times, levels = course
    # Edges up to now are part of the first level. `levels` has one element more than `times`: the room now.
    begun = bisect_right(times, now)
    end = bisect_right(times, last + seconds, lo=begun)
    times, levels = [now, *times[begun:end]], levels[begun : end + 1]
    if levels == sorted(levels):
        # Without a promise the room only grows, so the minimum is the room itself.
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
    """Return the room of a spot over time: the instants of its changes, and the room now and after each."""
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
