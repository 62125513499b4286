"""Room that was freed for a Workload is kept for it until it starts, for a while.

Evictions take time, and several of one need end one after another. What the first gives back lies idle
until the last has stopped, and is what everybody else waits for. Whoever is decided on together with the
preemptor meets its claim in the cycle itself; this keeps the claim against those that are decided on without
it: Workloads of another tree that want the same nodes, or of its own ClusterQueue where another is the head.

The claim is put onto the picture of a cycle as the evictions' cycle had it: the victims gone, their room and
what else the preemptor needs taken by it. A more important head of its own ClusterQueue passes it all the
same; it would evict the preemptor as soon as that has started. The other heads of that cycle do not.

Only under a policy (`spec.preemption.holdSeconds`). A part of the plan (`queues.plan`): written before the
evictions are sent, so that a leader that dies between two of them leaves behind for whom the room comes free,
and nobody slips in. The room itself is worked out anew from the admission, by the nodes as they are then.
With the store lost as well, the requests that stay on Workloads that were asked to save (`api.eviction`)
still tell who comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from admission.placement.place import Place
from admission.snapshot import Held, QueueState
from api.policy import AdmissionPolicy
from api.workload import WorkloadKey
from queues.holds import Hold
from queues.pending import Pending
from queues.resources import Quantities
from queues.tracked import Tracked

Head = tuple[QueueState, Pending]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRoom:
    """A hold with what it amounts to on the flavors and nodes as they are."""

    hold: Hold
    usage: Quantities
    places: tuple[Place, ...]


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A hold as a cycle meets it: whose usage in which queue, beside victims that still run.

    `is_passed`: the head of its own queue need not heed it.
    """

    queue: QueueState
    usage: Quantities
    places: tuple[Place, ...]
    victims: tuple[tuple[QueueState, Held], ...]
    is_passed: bool = False


def holds_room(policy: AdmissionPolicy) -> bool:
    """Return whether room that comes free for a Workload is kept under this policy."""
    return policy.preemption is not None and policy.preemption.hold_seconds > 0


class Holds:
    """All holds, by who they are for."""

    def __init__(self) -> None:
        self.kept: Tracked[WorkloadKey, KeptRoom] = Tracked()
        # Holds whose time was up while those who leave for them still ran.
        self._spent: dict[WorkloadKey, Hold] = {}

    @property
    def is_empty(self) -> bool:
        """Whether room is kept for nobody, and nobody waits whose time was up."""
        return not self.kept and not self._spent

    def put(self, room: KeptRoom, *, is_fresh: bool = False) -> bool:
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

    def take_ended(self, queues: Mapping[str, QueueState], *, now: float) -> list[KeptRoom]:
        """Return the holds whose time is up, or for whom nobody waits any more, and forget them.

        To be asked between cycles: whoever is being tried is in no queue.
        """
        ended = []
        for room in self.kept.values():
            is_waiting = _is_waiting(room.hold, queues.get(room.hold.cluster_queue))
            if room.hold.until <= now or not is_waiting:
                ended.append(room)
            # Remembered as long as it waits, so that it cannot ask for the same room at once.
            if room.hold.until <= now and is_waiting:
                self._spent[room.hold.key] = room.hold
        for room in ended:
            del self.kept[room.hold.key]
        for key, hold in tuple(self._spent.items()):
            if not _is_waiting(hold, queues.get(hold.cluster_queue)):
                del self._spent[key]
        return ended

    def is_awaiting(self, key: WorkloadKey, held: Mapping[WorkloadKey, Held]) -> bool:
        """Return whether somebody who leaves for the Workload, and has been told to, still runs."""
        room = self.kept.get(key)
        if room is None:
            return False
        leaving = (held.get(victim) for victim in room.hold.victims)
        return any(one is not None and one.is_evicted for one in leaving)

    def next_end_at(self) -> float | None:
        """Return when the next hold ends, None where there is none."""
        return min((room.hold.until for room in self.kept.values()), default=None)

    def against(
        self, heads: Collection[Head], queues: dict[str, QueueState], held: dict[WorkloadKey, Held]
    ) -> Iterator[Claim]:
        """Yield what is to be kept from these heads, in order of who it is for."""
        trying = {pending.key for _, pending in heads}
        priorities = {queue.name: pending.workload.priority for queue, pending in heads}
        # In one order, since where claims overlap the first is the one that stands.
        for key, room in sorted(self.kept.items()):
            hold, queue = room.hold, queues.get(room.hold.cluster_queue)
            # Who is tried itself takes its own room.
            if key in trying or queue is None or not _is_waiting(hold, queue):
                continue
            leaving = [held[victim] for victim in hold.victims if victim in held]
            victims = [
                (queues[one.admission.cluster_queue], one)
                for one in leaving
                if one.is_evicted and one.admission.cluster_queue in queues
            ]
            yield Claim(
                queue=queue,
                usage=room.usage,
                places=room.places,
                victims=tuple(victims),
                is_passed=priorities.get(hold.cluster_queue, hold.priority) > hold.priority,
            )


def _is_waiting(hold: Hold, queue: QueueState | None) -> bool:
    """Return whether the Workload still waits: one of the same name that was made anew is owed nothing."""
    pending = queue.pending.get(hold.key) if queue is not None else None
    return pending is not None and pending.workload.uid == hold.uid
