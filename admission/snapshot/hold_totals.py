"""The sum of all capacity holds, kept from one cycle to the next.

Each cycle sees every hold as if its victims had gone and its Workload had started in their place. Dozens of
holds exist for minutes, through hundreds of cycles, and each cycle tries one or two of the Workloads that
they are for. So their sum is kept, and a cycle changes it by those few holds only.

    holds of this cycle   =   holds of the last cycle   - heads tried now   + heads tried in the last cycle
    the sum               =   Σ usage of the holds      - Σ usage of their victims, each counted once

A head takes its own held capacity, and a head of higher priority in the same queue ignores the hold: the
caller leaves these holds out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from admission.placement.topology.place import Place
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.usage_overlay import UsageOverlay, UsageTotal
from api.workload import WorkloadKey
from queues.profile.capacity_profile import Spots
from queues.profile.holds import Hold
from queues.quota.resources import Quantities


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRoom:
    """A hold with its usage, and its places on the nodes as they are now.

    `usage` is in each resource's unit. Immutable: a changed hold is a new value, which the sum notices by
    identity.
    """

    hold: Hold
    usage: Quantities
    places: tuple[Place, ...]


class _Counted(NamedTuple):
    """A hold that is part of the sum, with the amounts that were added for it."""

    room: HeldRoom
    queue: QueueState
    spots: Spots


class _Gone(NamedTuple):
    """A victim whose usage is subtracted from the sum, with the amounts that were subtracted."""

    held: HeldWorkload
    places: tuple[Place, ...]
    queue: QueueState
    spots: Spots


@dataclass(slots=True, kw_only=True)
class HoldTotals:
    """The sum of some holds and of their victims, brought up to date before each cycle."""

    _queues: Mapping[str, QueueState] = field(default_factory=dict)
    _sum: UsageTotal = field(default_factory=UsageTotal)
    _counted: dict[WorkloadKey, _Counted] = field(default_factory=dict)
    # How many of the counted holds name each victim, and which of these victims have been evicted.
    _named: Counter[WorkloadKey] = field(default_factory=Counter)
    _gone: dict[WorkloadKey, _Gone] = field(default_factory=dict)

    def bring_up(
        self,
        rooms: Mapping[WorkloadKey, HeldRoom],
        *,
        queues: Mapping[str, QueueState],
        held: Mapping[WorkloadKey, HeldWorkload],
        topology_cache: TopologyCache,
    ) -> None:
        """Make the sum that of these holds, whose queues must exist, and of their victims as they are.

        O(holds), and the amounts of those that have changed. The result does not depend on the order of
        earlier calls.
        """
        # Quota trees and flavors were rebuilt, so everything counted on the old ones is void.
        if queues is not self._queues:
            self._queues, self._sum = queues, UsageTotal()
            self._counted, self._named, self._gone = {}, Counter(), {}
        # Compared by identity: any change to a hold creates a new value.
        for key in [key for key, one in self._counted.items() if rooms.get(key) is not one.room]:
            self._take_off(self._counted.pop(key))
        for key, room in rooms.items():
            if key not in self._counted:
                self._counted[key] = self._put_on(room, topology_cache)
        self._see_victims(held, topology_cache)

    def _put_on(self, room: HeldRoom, topology_cache: TopologyCache) -> _Counted:
        """Add a hold to the sum, and count its victims."""
        one = _Counted(room, self._queues[room.hold.cluster_queue], topology_cache.usage.spots(room.places))
        self._sum.add(one.queue.node, room.usage, one.spots, sign=1)
        self._named.update(room.hold.victims)
        return one

    def _take_off(self, one: _Counted) -> None:
        """Subtract a hold from the sum, by the amounts that were added for it."""
        self._sum.add(one.queue.node, one.room.usage, one.spots, sign=-1)
        for key in one.room.hold.victims:
            self._named[key] -= 1
            if not self._named[key]:
                del self._named[key]

    def _see_victims(self, held: Mapping[WorkloadKey, HeldWorkload], topology_cache: TopologyCache) -> None:
        """Subtract each victim of a counted hold that has been evicted, and no other."""
        leaving = {key: one for key in self._named if (one := held.get(key)) is not None and one.is_evicted}
        for key, gone in tuple(self._gone.items()):
            if leaving.get(key) is not gone.held or gone.held.places is not gone.places:
                del self._gone[key]
                self._sum.add(gone.queue.node, gone.held.usage, gone.spots, sign=1)
        for key, one in leaving.items():
            queue = self._queues.get(one.admission.cluster_queue)
            if queue is not None and key not in self._gone:
                gone = self._gone[key] = _Gone(one, one.places, queue, topology_cache.usage.spots(one.places))
                self._sum.add(queue.node, one.usage, gone.spots, sign=-1)

    def overlay(self) -> UsageOverlay:
        """Return the usage that the holds add and their victims give back, in all."""
        return self._sum.overlay()

    def leaving(self) -> dict[WorkloadKey, tuple[QueueState, HeldWorkload]]:
        """Return the victims that count as gone, each with its ClusterQueue."""
        return {key: (one.queue, one.held) for key, one in self._gone.items()}
