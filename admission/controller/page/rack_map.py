"""Racks as a map: what is free in each domain, and the largest gang that fits into one now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from admission.answers.items import GangItem, RackItem


@dataclass(frozen=True, slots=True)
class Rack:
    """A domain. `used` is the share of its GPUs in use, in hundredths; `gang` the largest that fits now."""

    item: RackItem
    used: float
    gang: GangItem | None
    is_best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorMap:
    """The domains of one level, as the nodes of a flavor see them; `gang` is the largest of all."""

    flavor: str
    level: str
    racks: tuple[Rack, ...]
    gang: GangItem | None


def flavor_maps(items: Iterable[RackItem]) -> tuple[FlavorMap, ...]:
    """Return a map for each flavor and level, the order of the items kept within it."""
    ordered = sorted(items, key=_level)
    return tuple(_map(flavor, level, tuple(racks)) for (flavor, level), racks in groupby(ordered, key=_level))


def _level(one: RackItem) -> tuple[str, str]:
    return one.flavor, one.level


def _map(flavor: str, level: str, items: tuple[RackItem, ...]) -> FlavorMap:
    gangs = [gang for one in items if (gang := largest(one)) is not None]
    best = max(gangs, key=_gpus, default=None)
    racks = tuple(
        Rack(
            item=one,
            used=round(100 * (one.gpus - one.free_gpus) / one.gpus, 1) if one.gpus else 0.0,
            gang=(gang := largest(one)),
            is_best=gang is not None and best is not None and _gpus(gang) == _gpus(best),
        )
        for one in items
    )
    return FlavorMap(flavor=flavor, level=level, racks=racks, gang=best)


def largest(one: RackItem) -> GangItem | None:
    """Return the gang with the most GPUs that fits into the domain, of equal ones that of larger pods."""
    return max(
        (gang for gang in one.largest_gangs if gang.pods),
        key=lambda gang: (_gpus(gang), gang.gpus_per_pod),
        default=None,
    )


def _gpus(gang: GangItem) -> int:
    return gang.pods * gang.gpus_per_pod
