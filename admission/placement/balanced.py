"""Balanced placement: a preferred gang spread evenly over as few domains as hold it.

Theory of operation. Best fit fills one domain after the other, and the last one gets what is left: a gang
of ten over racks of eight is divided 8 + 2, and its two are far from all the others. Balanced, it is
divided 5 + 5.

    1 group       the domains of the wanted level below one parent; where slices are at a lower level, the
                  children of these domains. These are the units
    2 threshold   over the k roomiest units that hold all: the even share, need // k, but at most what the
                  least roomy of them has. The group with the highest threshold is taken; of equal ones the
                  one that needs the fewest domains, and then the one with the least room
    3 choose      as many units as needed, each with room for the threshold, with little room to spare: the
                  roomiest first, and then each is exchanged for the smallest unit that still suffices
    4 hand out    the threshold to each unit, and the rest in their order

Cost. Sorting the units dominates: O(n log n) for n units of a group, plus one scan of the other units for
each unit chosen. Every step is a single pass, so it ends.

Kueue minimises the spare room by dynamic programming over all units. The exchange used here may
miss the minimum where several units must be exchanged at once. Without a result best fit decides,
as it does for leaders.
Source: Kueue, pkg/cache/scheduler/tas_balanced_placement.go; gate TASBalancedPlacement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from admission.placement.topology.pod_counts import PodCounts
from admission.placement.topology.request import PlacementPlan

# Units, and the number of slices that each is given.
Shares = list[tuple[int, int]]


class _Group(NamedTuple):
    """Units that hold all, the roomiest first, below `domains` domains of the wanted level."""

    threshold: int
    domains: int
    units: tuple[int, ...]


def balanced_shares(counts: PodCounts, plan: PlacementPlan, need: int) -> tuple[int, Shares] | None:
    """Return a level and how many of `need` slices each of its units gets; None without an even choice.

    `need` is in slices. The result is a level and, for each unit of that level, the slices that it gets; all
    units together get exactly `need`.
    """
    values = counts.site.tree.values
    # Where slices are at a lower level than the wanted one, the children of its domains are filled evenly.
    has_lower_units = plan.level < plan.slice_level
    groups = [
        group
        for domains in _side_by_side(counts, plan.level)
        if (group := _group(counts, domains, need, has_lower_units=has_lower_units))
    ]
    if not groups:
        return None

    def rank(group: _Group) -> tuple[object, ...]:
        # The highest threshold is the most even. Then few domains, then little room, so that
        # what is used is used up.
        room = sum(counts.slices[unit] for unit in group.units)
        return -group.threshold, group.domains, room, values[group.units[0]]

    best = min(groups, key=rank)
    # One level lower where the units are the children.
    return plan.level + has_lower_units, _handed_out(counts, best, need)


def _side_by_side(counts: PodCounts, level: int) -> Iterator[list[int]]:
    """Yield the domains of a level in groups with a common parent: balance is sought within one parent."""
    tree = counts.site.tree
    # The domains of the widest level have no parent and form one group.
    if level == 0:
        yield list(tree.at_level[0])
    else:
        yield from (tree.children[one] for one in tree.at_level[level - 1])


def _group(counts: PodCounts, domains: list[int], need: int, *, has_lower_units: bool) -> _Group | None:
    """Return the most even choice below these domains, None where they do not hold `need` slices evenly."""
    slices, children = counts.slices, counts.site.tree.children
    below = {domain: children[domain] if has_lower_units else [domain] for domain in domains}
    units = _roomiest(counts, [unit for of_domain in below.values() for unit in of_domain])
    # As many units as are needed if each gives all that it has.
    number = _fewest([slices[unit] for unit in units], need)
    # At most an even share, and at most what the smallest of these units can give.
    threshold = min(need // number, slices[units[number - 1]]) if number else 0
    if threshold < 1:
        return None
    # Units below the threshold cannot take an even share, so they do not count. Domains may hold less
    # without them; as few domains as then hold all are taken.
    kept = {domain: [one for one in below[domain] if slices[one] >= threshold] for domain in domains}
    room = {domain: sum(slices[one] for one in kept[domain]) for domain in domains}
    taken = _tightest(counts, room, need)
    units = _tightest(counts, {one: slices[one] for domain in taken for one in kept[domain]}, need)
    # Without the smaller units, the thresholds together may exceed the gang.
    if not units or len(units) * threshold > need:
        return None
    return _Group(threshold, len(taken), tuple(units))


def _tightest(counts: PodCounts, room: Mapping[int, int], need: int) -> list[int]:
    """Return as few of these as hold all, with little room to spare; [] where all of them do not."""
    values = counts.site.tree.values
    in_order = sorted(room, key=lambda one: (-room[one], values[one]))
    number = _fewest([room[one] for one in in_order], need)
    chosen, others = in_order[:number], in_order[number:]
    # How much room may be saved by exchanging a unit for a smaller one.
    spare = sum(room[one] for one in chosen) - need
    for index, one in enumerate(chosen):
        # The smallest unit that still lets all fit, if it is smaller than this one.
        fitting = [other for other in others if 0 < room[one] - room[other] <= spare]
        if fitting:
            smallest = min(fitting, key=lambda other: (room[other], values[other]))
            spare -= room[one] - room[smallest]
            # The exchanged unit is available again to replace another.
            others[others.index(smallest)] = one
            chosen[index] = smallest
    return sorted(chosen, key=lambda one: (-room[one], values[one]))


def _roomiest(counts: PodCounts, units: Iterable[int]) -> list[int]:
    """Return the units, those with the most room first, then by name."""
    return sorted(units, key=lambda one: (-counts.slices[one], counts.site.tree.values[one]))


def _fewest(rooms: Sequence[int], need: int) -> int:
    """Return how many of these, in their order, hold all; 0 where all of them do not."""
    held = 0
    for number, room in enumerate(rooms, start=1):
        held += room
        if held >= need:
            return number
    return 0


def _handed_out(counts: PodCounts, group: _Group, need: int) -> Shares:
    """Return how many slices each unit gets, `need` in all."""
    # Each unit gets the threshold. The rest is handed out in the order of room.
    left = need - group.threshold * len(group.units)
    shares: Shares = []
    for unit in group.units:
        more = min(left, counts.slices[unit] - group.threshold)
        shares.append((unit, group.threshold + more))
        left -= more
    return shares
