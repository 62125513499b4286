"""Capacity holds: capacity freed for a Workload is kept for it until it starts, for a limited time.

Evictions take time, and the several victims of one preemptor end one after another. What the first one frees
is idle until the last has stopped, and all other pending Workloads compete for it. Workloads decided on in
the same cycle as the preemptor already see its claim in that cycle. A hold keeps the claim against Workloads
that are decided on without the preemptor: Workloads of another quota tree that want the same nodes, or the
next head of its own ClusterQueue.

A hold changes the snapshot of later cycles as the preempting cycle did: the victims are gone, and what they
free and what else the preemptor needs is taken by it (`admission.snapshot.hold_totals`). A head of higher
priority in the preemptor's own ClusterQueue ignores the hold, because it would evict the preemptor as soon as
that has started. The other heads of that cycle still respect it.

Holds exist only under a policy with `spec.preemption.holdSeconds`. They are part of the plan
(`queues.reservations.plan`), which is written before the evictions are sent: a leader that dies between two
of them leaves a record of which Workload the freed capacity is for. The record names no capacity. That is
computed again from the admission and the nodes as they are then. Where the store is lost as well, the save
requests on the victims (`api.eviction`) still name the preemptor that comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from admission.placement.topology.place import Place
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.hold_totals import HeldRoom, HoldTotals
from admission.snapshot.queue_state import QueueState
from admission.snapshot.usage_overlay import UsageOverlay
from api.policy import AdmissionPolicy
from api.workload import WorkloadKey
from queues.pending.pending_queue import Pending
from queues.profile.holds import Hold
from queues.quota.resources import Quantities
from queues.tracked import Tracked

Head = tuple[QueueState, Pending]


class HoldClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that a head of its queue ignores: its usage and places, and its victims that still run.

    The places are those on the nodes as they are now. Victims that have ended already are left out.
    """

    queue: QueueState
    usage: Quantities
    places: tuple[Place, ...]
    victims: tuple[tuple[QueueState, HeldWorkload], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldClaims:
    """All holds as one cycle sees them.

    `overlay` is the sum of the holds that all heads respect, `leaving` their victims, which count as gone.
    `passed` are the holds that some head ignores, in order of their Workloads' keys.
    """

    overlay: UsageOverlay = field(default_factory=UsageOverlay)
    leaving: Mapping[WorkloadKey, tuple[QueueState, HeldWorkload]] = field(default_factory=dict)
    passed: tuple[HoldClaim, ...] = ()

    @property
    def holds_any(self) -> bool:
        """Whether any capacity is kept from all heads."""
        return bool(self.leaving) or not self.overlay.is_empty


NO_CLAIMS = HoldClaims()


def holds_room(policy: AdmissionPolicy) -> bool:
    """Return whether this policy keeps capacity that is freed for a Workload."""
    return policy.preemption is not None and policy.preemption.hold_seconds > 0


class CapacityHolds:
    """All holds, by the Workload that each is for."""

    def __init__(self) -> None:
        self.kept: Tracked[WorkloadKey, HeldRoom] = Tracked()
        # Holds that have expired while their victims still ran.
        self._spent: dict[WorkloadKey, Hold] = {}
        # Workloads that may no longer be pending, because they have just been tried or have left their queue.
        self._unsure: dict[WorkloadKey, None] = {}
        # The queues in which all other Workloads were last seen pending.
        self._queues: Mapping[str, QueueState] = {}
        self._totals = HoldTotals()
        # The earliest end, and the version of `kept` that it was computed from.
        self._first_end: tuple[int, float | None] = (-1, None)

    @property
    def is_empty(self) -> bool:
        """Whether there is no hold, and no expired hold whose Workload still waits."""
        return not self.kept and not self._spent

    def put(self, room: HeldRoom, *, is_fresh: bool = False) -> bool:
        """Keep a hold. A Workload that has one and evicts more extends it to the last of all its victims.

        A Workload that evicts no further victim extends nothing, and gets no second hold when the first has
        expired: else a victim that never stops would block other Workloads for ever. `is_fresh`: the
        Workload has evicted victims in this cycle. Returns whether the hold is kept.
        """
        hold = room.hold
        if is_fresh:
            self._spent.pop(hold.key, None)
        if self.is_spent(hold.key, hold.uid, hold.victims):
            return False
        known = self.kept.get(hold.key)
        if known is not None and known.hold.uid == hold.uid:
            victims = {*known.hold.victims, *hold.victims}
            # Only a further victim prolongs the hold; trying the same Workload again must not renew it.
            is_more = len(victims) > len(known.hold.victims)
            until = max(known.hold.until, hold.until) if is_more else known.hold.until
            hold = replace(hold, victims=tuple(sorted(victims)), until=until)
        self.kept[hold.key] = replace(room, hold=hold)
        self._unsure[hold.key] = None
        return True

    def is_spent(self, key: WorkloadKey, uid: str, victims: Iterable[WorkloadKey]) -> bool:
        """Return whether the Workload's hold for these victims has expired, so that it gets no further one.

        True where every one of `victims` was a victim of the expired hold: that is the same need again.

        Otherwise a Workload that cannot start could keep capacity from others for ever, one hold after the
        other.
        """
        spent = self._spent.get(key)
        return spent is not None and spent.uid == uid and set(victims) <= set(spent.victims)

    def drop(self, key: WorkloadKey) -> None:
        """Drop the hold of a Workload that has started or is no longer pending."""
        self.kept.pop(key, None)
        self._spent.pop(key, None)

    def note_left(self, key: WorkloadKey) -> None:
        """Note that a Workload has left its queue; `take_ended` then checks whether it still waits."""
        if key in self.kept or key in self._spent:
            self._unsure[key] = None

    def take_ended(self, queues: Mapping[str, QueueState], *, now: float) -> list[HeldRoom]:
        """Return and drop the holds that have expired or whose Workload is no longer pending.

        Must be called between cycles: during a cycle the head that is being tried is in no queue.

        `now` is in Unix seconds. Usually nothing has ended, which costs one comparison.
        """
        self._see(queues)
        unsure, self._unsure = self._unsure, {}
        for key in unsure:
            if (spent := self._spent.get(key)) is not None and not self._is_waiting(spent):
                del self._spent[key]
        first_end = self.next_end_at()
        # Called before every cycle, when usually no hold has expired: then only the unsure
        # ones can have ended.
        is_time_up = first_end is not None and first_end <= now
        ended = []
        for key in self.kept if is_time_up else [one for one in unsure if one in self.kept]:
            room = self.kept[key]
            is_waiting = key not in unsure or self._is_waiting(room.hold)
            if room.hold.until <= now or not is_waiting:
                ended.append(room)
            # Remembered while its Workload waits, which must not claim the same capacity again at once.
            if room.hold.until <= now and is_waiting:
                self._spent[key] = room.hold
        for room in ended:
            del self.kept[room.hold.key]
        return ended

    def _see(self, queues: Mapping[str, QueueState]) -> None:
        """Mark every hold as unsure where the queues have been rebuilt."""
        if queues is not self._queues:
            self._queues = queues
            self._unsure = dict.fromkeys((*self.kept, *self._spent))

    def _is_waiting(self, hold: Hold) -> bool:
        """Return whether its Workload still waits: a new one of the same name has no claim to the hold."""
        queue = self._queues.get(hold.cluster_queue)
        pending = queue.pending.members.get(hold.key) if queue is not None else None
        return pending is not None and pending.workload.uid == hold.uid

    def is_awaiting(self, key: WorkloadKey, held: Mapping[WorkloadKey, HeldWorkload]) -> bool:
        """Return whether a victim of the Workload's hold that has been evicted still runs.

        False without a hold.
        """
        room = self.kept.get(key)
        if room is None:
            return False
        leaving = (held.get(victim) for victim in room.hold.victims)
        return any(one is not None and one.is_evicted for one in leaving)

    def next_end_at(self) -> float | None:
        """Return when the next hold expires (Unix seconds), None where there is none."""
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
        """Return the claims that a cycle with these heads has to respect.

        Holds of the heads themselves are left out, and so are those that a head of higher priority of the
        same queue ignores; these are `passed`.
        """
        self._see(queues)
        trying = {pending.key for _, pending in heads}
        priorities = {queue.name: pending.workload.priority for queue, pending in heads}
        shown: dict[WorkloadKey, HeldRoom] = {}
        passed = []
        for key, room in self.kept.items():
            # A head takes its own held capacity, so its hold is left out of this cycle.
            if key in trying or (key in self._unsure and not self._is_waiting(room.hold)):
                continue
            hold = room.hold
            if priorities.get(hold.cluster_queue, hold.priority) > hold.priority:
                passed.append(room)
            else:
                shown[key] = room
        self._totals.bring_up(shown, queues=queues, held=held, topology_cache=topology_cache)
        passed.sort(key=lambda room: room.hold.key)
        return HoldClaims(
            overlay=self._totals.overlay(),
            leaving=self._totals.leaving(),
            # Sorted, because where claims overlap the first one counts.
            passed=tuple(self._claim(room, held) for room in passed),
        )

    def _claim(self, room: HeldRoom, held: Mapping[WorkloadKey, HeldWorkload]) -> HoldClaim:
        """Return a hold with its queue and those of its victims that still run."""
        leaving = [held[victim] for victim in room.hold.victims if victim in held]
        victims = [
            (self._queues[one.admission.cluster_queue], one)
            for one in leaving
            if one.is_evicted and one.admission.cluster_queue in self._queues
        ]
        queue = self._queues[room.hold.cluster_queue]
        return HoldClaim(queue=queue, usage=room.usage, places=room.places, victims=tuple(victims))
