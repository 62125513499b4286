"""Room that was freed for a Workload is kept for it until it starts, for a while.

Evictions take time, and several of one need end one after another. What the first gives back lies idle
until the last has stopped, and is what everybody else waits for. Whoever is decided on together with the
preemptor meets its claim in the cycle itself; this keeps the claim against those that are decided on without
it: Workloads of another tree that want the same nodes, or of its own ClusterQueue where another is the head.

The claim stands on the picture of a cycle as the evictions' cycle had it: the victims gone, their room and
what else the preemptor needs taken by it (`admission.snapshot.hold_totals`). A more important head of its own
ClusterQueue passes it all the same; it would evict the preemptor as soon as that has started. The other heads
of that cycle do not.

Only under a policy (`spec.preemption.holdSeconds`). A part of the plan (`queues.reservations.plan`): written
before the evictions are sent, so that a leader that dies between two of them leaves behind for whom the room
comes free, and nobody slips in. The room itself is worked out anew from the admission, by the nodes as they
are then. With the store lost as well, the requests that stay on Workloads that were asked to save
(`api.eviction`) still tell who comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from admission.placement.topology.place import Place
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.hold_totals import HeldRoom, HoldTotals
from admission.snapshot.snapshot import HeldWorkload, QueueState
from admission.snapshot.usage_overlay import UsageOverlay
from api.policy import AdmissionPolicy
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.holds import Hold
from queues.quota.resources import Quantities
from queues.tracked import Tracked

Head = tuple[QueueState, Pending]


class HoldClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that a head of its queue passes: whose usage in which queue, beside victims that still run."""

    queue: QueueState
    usage: Quantities
    places: tuple[Place, ...]
    victims: tuple[tuple[QueueState, HeldWorkload], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldClaims:
    """All holds as a cycle meets them.

    Those kept from all of its heads in one sum, with whom it shows as gone; apart those that a head passes.
    """

    overlay: UsageOverlay = field(default_factory=UsageOverlay)
    leaving: Mapping[WorkloadKey, tuple[QueueState, HeldWorkload]] = field(default_factory=dict)
    passed: tuple[HoldClaim, ...] = ()

    @property
    def is_standing(self) -> bool:
        """Whether anything is kept from all heads."""
        return bool(self.leaving) or not self.overlay.is_empty


NO_CLAIMS = HoldClaims()


def holds_room(policy: AdmissionPolicy) -> bool:
    """Return whether room that comes free for a Workload is kept under this policy."""
    return policy.preemption is not None and policy.preemption.hold_seconds > 0


class CapacityHolds:
    """All holds, by who they are for."""

    def __init__(self) -> None:
        self.kept: Tracked[WorkloadKey, HeldRoom] = Tracked()
        # Holds whose time was up while those who leave for them still ran.
        self._spent: dict[WorkloadKey, Hold] = {}
        # Of whom it is not known that they wait, as they have just been tried or have left their queue.
        self._unsure: dict[WorkloadKey, None] = {}
        # The queues by which all others were seen to wait.
        self._queues: Mapping[str, QueueState] = {}
        self._standing = HoldTotals()
        # The earliest end, and the version of the holds that it was read of.
        self._first_end: tuple[int, float | None] = (-1, None)

    @property
    def is_empty(self) -> bool:
        """Whether room is kept for nobody, and nobody waits whose time was up."""
        return not self.kept and not self._spent

    def put(self, room: HeldRoom, *, is_fresh: bool = False) -> bool:
        """Keep room. Who holds some and evicts more keeps it for all of them, and until the last has gone.

        Whoever only looks again keeps it no longer than was said first, and not once more when that time is
        up: a victim that never stops would keep others out for ever. `is_fresh`: it has evicted somebody now.
        Returns whether it is kept.
        """
        hold = room.hold
        if is_fresh:
            self._spent.pop(hold.key, None)
        if self.is_spent(hold.key, hold.uid, hold.victims):
            return False
        known = self.kept.get(hold.key)
        if known is not None and known.hold.uid == hold.uid:
            victims = {*known.hold.victims, *hold.victims}
            # Only who evicts somebody more gets more time; looking again must not renew it.
            is_more = len(victims) > len(known.hold.victims)
            until = max(known.hold.until, hold.until) if is_more else known.hold.until
            hold = replace(hold, victims=tuple(sorted(victims)), until=until)
        self.kept[hold.key] = replace(room, hold=hold)
        self._unsure[hold.key] = None
        return True

    def is_spent(self, key: WorkloadKey, uid: str, victims: Iterable[WorkloadKey]) -> bool:
        """Return whether room is kept for the Workload no longer while these leave, as its time was up.

        No victim more than it had: that is the same need once again.
        """
        spent = self._spent.get(key)
        return spent is not None and spent.uid == uid and set(victims) <= set(spent.victims)

    def drop(self, key: WorkloadKey) -> None:
        """Keep nothing any more for a Workload that has started, or waits no longer."""
        self.kept.pop(key, None)
        self._spent.pop(key, None)

    def note_left(self, key: WorkloadKey) -> None:
        """Note that a Workload has left its queue."""
        if key in self.kept or key in self._spent:
            self._unsure[key] = None

    def take_ended(self, queues: Mapping[str, QueueState], *, now: float) -> list[HeldRoom]:
        """Return the holds whose time is up, or for whom nobody waits any more, and forget them.

        To be asked between cycles: whoever is being tried is in no queue.
        """
        self._see(queues)
        unsure, self._unsure = self._unsure, {}
        for key in unsure:
            if (spent := self._spent.get(key)) is not None and not self._is_waiting(spent):
                del self._spent[key]
        first_end = self.next_end_at()
        # Asked before every cycle, and as a rule nobody's time is up: then only these may have left.
        is_time_up = first_end is not None and first_end <= now
        ended = []
        for key in self.kept if is_time_up else [one for one in unsure if one in self.kept]:
            room = self.kept[key]
            is_waiting = key not in unsure or self._is_waiting(room.hold)
            if room.hold.until <= now or not is_waiting:
                ended.append(room)
            # Remembered as long as it waits, so that it cannot ask for the same room at once.
            if room.hold.until <= now and is_waiting:
                self._spent[key] = room.hold
        for room in ended:
            del self.kept[room.hold.key]
        return ended

    def _see(self, queues: Mapping[str, QueueState]) -> None:
        """Be sure of nobody where the queues are others than they were."""
        if queues is not self._queues:
            self._queues = queues
            self._unsure = dict.fromkeys((*self.kept, *self._spent))

    def _is_waiting(self, hold: Hold) -> bool:
        """Return whether its Workload still waits: a new one of the same name is owed nothing."""
        queue = self._queues.get(hold.cluster_queue)
        pending = queue.pending.get(hold.key) if queue is not None else None
        return pending is not None and pending.workload.uid == hold.uid

    def is_awaiting(self, key: WorkloadKey, held: Mapping[WorkloadKey, HeldWorkload]) -> bool:
        """Return whether somebody who leaves for the Workload, and has been told to, still runs."""
        room = self.kept.get(key)
        if room is None:
            return False
        leaving = (held.get(victim) for victim in room.hold.victims)
        return any(one is not None and one.is_evicted for one in leaving)

    def next_end_at(self) -> float | None:
        """Return when the next hold ends, None where there is none."""
        if self._first_end[0] != self.kept.version:
            ends = (room.hold.until for room in self.kept.values())
            self._first_end = self.kept.version, min(ends, default=None)
        return self._first_end[1]

    def against(
        self,
        heads: Collection[Head],
        queues: Mapping[str, QueueState],
        held: Mapping[WorkloadKey, HeldWorkload],
        topology_cache: TopologyCache,
    ) -> HoldClaims:
        """Return what is to be kept from these heads."""
        self._see(queues)
        trying = {pending.key for _, pending in heads}
        priorities = {queue.name: pending.workload.priority for queue, pending in heads}
        standing: dict[WorkloadKey, HeldRoom] = {}
        passed = []
        for key, room in self.kept.items():
            # Who is tried itself takes its own room.
            if key in trying or (key in self._unsure and not self._is_waiting(room.hold)):
                continue
            hold = room.hold
            if priorities.get(hold.cluster_queue, hold.priority) > hold.priority:
                passed.append(room)
            else:
                standing[key] = room
        self._standing.bring_up(standing, queues=queues, held=held, topology_cache=topology_cache)
        passed.sort(key=lambda room: room.hold.key)
        return HoldClaims(
            overlay=self._standing.overlay(),
            leaving=self._standing.leaving(),
            # In one order, since where claims overlap the first is the one that stands.
            passed=tuple(self._claim(room, held) for room in passed),
        )

    def _claim(self, room: HeldRoom, held: Mapping[WorkloadKey, HeldWorkload]) -> HoldClaim:
        leaving = [held[victim] for victim in room.hold.victims if victim in held]
        victims = [
            (self._queues[one.admission.cluster_queue], one)
            for one in leaving
            if one.is_evicted and one.admission.cluster_queue in self._queues
        ]
        queue = self._queues[room.hold.cluster_queue]
        return HoldClaim(queue=queue, usage=room.usage, places=room.places, victims=tuple(victims))
