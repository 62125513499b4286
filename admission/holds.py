"""Room that was freed for a Workload is kept for it until it starts, for a while.

Evictions take time, and several of one need end one after another. What the first gives back lies idle
until the last has stopped, and is what everybody else waits for. Whoever is decided on together with the
preemptor meets its claim in the cycle itself; this keeps the claim against those that are decided on without
it: Workloads of another tree that want the same nodes, or of its own ClusterQueue where another is the head.

The claim is put onto the picture of a cycle as the evictions' cycle had it: the victims gone, their room and
what else the preemptor needs taken by it. A more important head of its own ClusterQueue passes it all the
same; it would evict the preemptor as soon as that has started.

Only under a policy (`spec.preemption.holdSeconds`), and kept in memory: the requests that stay on evicted
Workloads (`api.eviction`) tell a new leader who comes first, and with its first cycle the claim stands again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from admission.placement.fleet import Place
from admission.snapshot import Held, QueueState
from api.workload import WorkloadKey
from queues.pending import Pending
from queues.resources import Quantities

Head = tuple[QueueState, Pending]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What one Workload keeps, until when (Unix seconds), and who gives way for it."""

    key: WorkloadKey
    queue: str
    priority: int
    usage: Quantities
    places: tuple[Place, ...]
    victims: frozenset[WorkloadKey]
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A hold as a cycle meets it: whose usage in which queue, beside victims that still run."""

    queue: QueueState
    usage: Quantities
    places: tuple[Place, ...]
    victims: tuple[tuple[QueueState, Held], ...]


@dataclass(slots=True)
class Holds:
    """All holds, by who they are for."""

    _holds: dict[WorkloadKey, Hold] = field(default_factory=dict)

    def put(self, hold: Hold) -> None:
        """Keep room. Who holds some and evicts more keeps it for all of them."""
        known = self._holds.get(hold.key)
        if known is not None:
            victims = known.victims | hold.victims
            hold = Hold(
                key=hold.key,
                queue=hold.queue,
                priority=hold.priority,
                usage=hold.usage,
                places=hold.places,
                victims=victims,
                until=max(known.until, hold.until),
            )
        self._holds[hold.key] = hold

    def drop(self, key: WorkloadKey) -> None:
        """Keep nothing any more for a Workload that has started, or waits no longer."""
        self._holds.pop(key, None)

    def take_ended(self, now: float) -> list[Hold]:
        """Return the holds whose time is up, and forget them."""
        ended = [hold for hold in self._holds.values() if hold.until <= now]
        for hold in ended:
            del self._holds[hold.key]
        return ended

    def next_end_at(self) -> float | None:
        """Return when the next hold ends, None where there is none."""
        return min((hold.until for hold in self._holds.values()), default=None)

    def against(
        self, heads: Collection[Head], queues: dict[str, QueueState], held: dict[WorkloadKey, Held]
    ) -> Iterator[Claim]:
        """Yield what is to be kept from these heads, in order of who it is for."""
        trying = {pending.key for _, pending in heads}
        priorities = {queue.name: pending.workload.priority for queue, pending in heads}
        for key, hold in sorted(self._holds.items()):
            queue = queues.get(hold.queue)
            if queue is None or key in trying or key not in queue.pending:
                continue
            if priorities.get(hold.queue, hold.priority) > hold.priority:
                continue
            leaving = ((victim, held[victim]) for victim in sorted(hold.victims) if victim in held)
            victims = (
                (queues[one.admission.cluster_queue], one)
                for _, one in leaving
                if one.is_evicted and one.admission.cluster_queue in queues
            )
            yield Claim(queue=queue, usage=hold.usage, places=hold.places, victims=tuple(victims))
