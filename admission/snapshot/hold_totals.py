"""What all holds amount to on the picture of a cycle, kept from one cycle to the next.

A cycle meets each hold as if those who leave for it had gone and it had started in their place. Dozens of
them stand for minutes, through hundreds of cycles, of which each tries one or two of those they are for: so
their sum is kept, and a cycle changes it by those few.

    holds of this cycle   =   those of the last   - who is tried now   + who was tried then
    the sum               =   Σ their room        - Σ the room of their victims, each once

Who is tried itself takes its own room, and a more important head of its queue passes it: those are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from admission.placement.topology.place import Place
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.snapshot import HeldWorkload, QueueState
from admission.snapshot.usage_overlay import Sum, UsageOverlay
from api.workload import WorkloadKey
from queues.profile.capacity_profile import Spots
from queues.profile.holds import Hold
from queues.quota.resources import Quantities


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRoom:
    """A hold with what it amounts to on the flavors and nodes as they are."""

    hold: Hold
    usage: Quantities
    places: tuple[Place, ...]


class _Counted(NamedTuple):
    """A hold that is in the sum, and what was counted for it."""

    room: HeldRoom
    queue: QueueState
    spots: Spots


class _Gone(NamedTuple):
    """A victim that is out of the sum, and what was given back for it."""

    held: HeldWorkload
    places: tuple[Place, ...]
    queue: QueueState
    spots: Spots


@dataclass(slots=True, kw_only=True)
class HoldTotals:
    """The sum of some holds and of who leaves for them, brought up to date before each cycle."""

    _queues: Mapping[str, QueueState] = field(default_factory=dict)
    _sum: Sum = field(default_factory=Sum)
    _counted: dict[WorkloadKey, _Counted] = field(default_factory=dict)
    # How many of the holds counted name a victim, and who of these is told to leave.
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
        """Let the sum be that of these holds, whose queues are there, and of their victims as they are."""
        # Trees and flavors were built anew, and all that was counted on them is gone.
        if queues is not self._queues:
            self._queues, self._sum = queues, Sum()
            self._counted, self._named, self._gone = {}, Counter(), {}
        # By identity: whatever changes of a hold makes it another value.
        for key in [key for key, one in self._counted.items() if rooms.get(key) is not one.room]:
            self._take_off(self._counted.pop(key))
        for key, room in rooms.items():
            if key not in self._counted:
                self._counted[key] = self._put_on(room, topology_cache)
        self._see_victims(held, topology_cache)

    def _put_on(self, room: HeldRoom, topology_cache: TopologyCache) -> _Counted:
        one = _Counted(room, self._queues[room.hold.cluster_queue], topology_cache.spots(room.places))
        self._sum.add(one.queue.node, room.usage, one.spots, sign=1)
        self._named.update(room.hold.victims)
        return one

    def _take_off(self, one: _Counted) -> None:
        self._sum.add(one.queue.node, one.room.usage, one.spots, sign=-1)
        for key in one.room.hold.victims:
            self._named[key] -= 1
            if not self._named[key]:
                del self._named[key]

    def _see_victims(self, held: Mapping[WorkloadKey, HeldWorkload], topology_cache: TopologyCache) -> None:
        """Count each victim as gone that is told to leave, and no other."""
        leaving = {key: one for key in self._named if (one := held.get(key)) is not None and one.is_evicted}
        for key, gone in tuple(self._gone.items()):
            if leaving.get(key) is not gone.held or gone.held.places is not gone.places:
                del self._gone[key]
                self._sum.add(gone.queue.node, gone.held.usage, gone.spots, sign=1)
        for key, one in leaving.items():
            queue = self._queues.get(one.admission.cluster_queue)
            if queue is not None and key not in self._gone:
                gone = self._gone[key] = _Gone(one, one.places, queue, topology_cache.spots(one.places))
                self._sum.add(queue.node, one.usage, gone.spots, sign=-1)

    def overlay(self) -> UsageOverlay:
        """Return what is taken and given back in all."""
        return self._sum.overlay()

    def leaving(self) -> dict[WorkloadKey, tuple[QueueState, HeldWorkload]]:
        """Return who counts as gone, and of which queue."""
        return {key: (one.queue, one.held) for key, one in self._gone.items()}
