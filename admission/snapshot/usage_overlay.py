"""An overlay: what stands on the picture of a cycle from its begin to its end, in one sum.

Where a dozen Workloads leave and those who wait for them will stand where they stood, nearly all of it
cancels out: what one gives back of a node the other takes. What is left is put onto the picture in one step,
and taken off in one, however many have a part in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from admission.placement.topology_cache import TopologyCache
from queues.profile.capacity_profile import Spot, Spots
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource, Quantities

_Key = TypeVar("_Key")
_Of = TypeVar("_Of")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageOverlay:
    """What is used more of each ClusterQueue's quota and of each leaf; below 0: what is given back."""

    usage: tuple[tuple[QuotaNode, Quantities], ...] = ()
    spots: Spots = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not self.usage and not self.spots

    def negated(self, hosts: Collection[str] | None = None) -> UsageOverlay:
        """Return what takes this off again; of leaves those of these hosts alone, None: all."""
        return UsageOverlay(
            usage=tuple((node, _negated(amounts)) for node, amounts in self.usage),
            spots={
                spot: _negated(amounts)
                for spot, amounts in self.spots.items()
                # The last value is the hostname, however many levels there are above it.
                if hosts is None or spot[1][-1] in hosts
            },
        )

    def put_on(self, topology_cache: TopologyCache) -> None:
        """Count it as used, on the quota trees and on the nodes."""
        for node, amounts in self.usage:
            node.change(amounts)
        topology_cache.occupy(self.spots)


@dataclass(slots=True)
class Sum:
    """What many take and give back, kept as they come and go. Holds no zeros."""

    _usage: dict[QuotaNode, dict[FlavorResource, int]] = field(default_factory=dict)
    _spots: dict[Spot, dict[str, int]] = field(default_factory=dict)

    def add(self, node: QuotaNode, usage: Quantities, spots: Spots, *, sign: int) -> None:
        """Count so much as taken of the queue's quota and of the leaves (sign 1), or as given back (-1)."""
        _add(self._usage, node, usage, sign)
        for spot, amounts in spots.items():
            _add(self._spots, spot, amounts, sign)

    def overlay(self) -> UsageOverlay:
        """Return what it amounts to now."""
        # Copies: what stands on a picture must stay what it was until it is taken off.
        return UsageOverlay(
            usage=tuple((node, dict(amounts)) for node, amounts in self._usage.items()),
            spots={spot: dict(amounts) for spot, amounts in self._spots.items()},
        )


def _negated(amounts: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: -amount for key, amount in amounts.items()}


def _add(sums: dict[_Of, dict[_Key, int]], of: _Of, amounts: Mapping[_Key, int], sign: int) -> None:
    total = sums.setdefault(of, {})
    for key, amount in amounts.items():
        new = total.get(key, 0) + sign * amount
        # What cancels out is dropped, so that an overlay changes nothing but what is different.
        if new:
            total[key] = new
        else:
            total.pop(key, None)
    if not total:
        del sums[of]
