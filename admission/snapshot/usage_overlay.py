"""A usage overlay: a change of usage that applies to the whole of a cycle, as one sum.

Where a dozen Workloads leave and those that wait for them will take their place, nearly all usage cancels
out: what one frees on a node, another takes. The remainder is applied to the snapshot in one step and removed
in one step, however many Workloads contribute to it.
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
    """The change of usage of each ClusterQueue and of each leaf domain; negative amounts are given back."""

    usage: tuple[tuple[QuotaNode, Quantities], ...] = ()
    spots: Spots = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether it changes no usage."""
        return not self.usage and not self.spots

    def negated(self, hosts: Collection[str] | None = None) -> UsageOverlay:
        """Return the inverse of this overlay; with `hosts`, of the leaves only those of these hosts."""
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
        """Apply it to the quota trees and to the nodes."""
        for node, amounts in self.usage:
            node.change(amounts)
        topology_cache.usage.occupy(self.spots)


@dataclass(slots=True)
class UsageTotal:
    """The total of many changes of usage, kept as they come and go. Holds no zeros."""

    _usage: dict[QuotaNode, dict[FlavorResource, int]] = field(default_factory=dict)
    _spots: dict[Spot, dict[str, int]] = field(default_factory=dict)

    def add(self, node: QuotaNode, usage: Quantities, spots: Spots, *, sign: int) -> None:
        """Count this usage of the queue and of the leaves as taken (sign 1), or as given back (-1)."""
        _add(self._usage, node, usage, sign)
        for spot, amounts in spots.items():
            _add(self._spots, spot, amounts, sign)

    def overlay(self) -> UsageOverlay:
        """Return the present total as an overlay."""
        # Copies: an overlay applied to a snapshot must stay the same until it is removed.
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
        # Amounts that cancel out are dropped, so that an overlay holds nothing but real changes.
        if new:
            total[key] = new
        else:
            total.pop(key, None)
    if not total:
        del sums[of]
