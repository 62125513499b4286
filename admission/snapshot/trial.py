"""The trial: reversible changes of usage, applied in place to the state that a snapshot has borrowed.

Theory of operation. Every change (this Workload gone, that usage added) is applied to the state itself and
recorded in an undo log:

    undo log   [ overlay | reserve | evict | ... | add | remove | add ]
                └ decided in this cycle (`_firm`) ┘ └ a trial         ┘ ◀─ `rollback(mark)` undoes from here

Invariant: the state equals what it was when the cycle began plus the entries of the log, in order. Undoing is
exact because adding and removing usage are mirror images (`queues.quota.quota_tree`); the entries are undone
in reverse. `suspend` and `resume` undo and redo the whole log, so that a cycle can pause while others read
the true state. A trial costs as much as it touches, however large the cluster is, and nothing is ever copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from admission.placement.topology.place import Place
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.usage_overlay import UsageOverlay
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import Quantities

# The ClusterQueue, the usage, and the places on the nodes.
Taken = tuple[QueueState, Quantities, tuple[Place, ...]]
# The node of the quota tree, the usage, the places, and whether these were added (else removed).
_Change = tuple[QuotaNode, Quantities, tuple[Place, ...], bool]


class Trial:
    """The changes of usage that a cycle has decided or tries. Every one is undone by `rollback`."""

    __slots__ = ("_firm", "_is_suspended", "_topology_cache", "_undo_log", "decided")

    def __init__(self, topology_cache: TopologyCache) -> None:
        self._topology_cache = topology_cache
        self._undo_log: list[_Change | UsageOverlay] = []
        self._is_suspended = False
        # How many entries of the log are decisions of this cycle; the entries above are a trial.
        self._firm = 0
        # How many times usage was reserved or a Workload evicted for the rest of the cycle.
        self.decided = 0

    @property
    def is_open(self) -> bool:
        """Whether the state differs from what was decided in this cycle."""
        return len(self._undo_log) != self._firm

    def mark(self) -> int:
        """Return the present length of the undo log, for `rollback`."""
        return len(self._undo_log)

    def rollback(self, mark: int = 0) -> None:
        """Undo everything since `mark`; without one the cycle is over and all of it is undone."""
        # A suspended log is already undone, and must not be undone twice.
        self.resume()
        # In reverse, so that each change is undone on the very state that it made. The numbers do not depend
        # on the order, since usage is a function of the leaves.
        while len(self._undo_log) > mark:
            self._play(self._undo_log.pop(), is_undone=True)
        if not self._undo_log:
            self._firm = self.decided = 0

    def suspend(self) -> None:
        """Show the state without this cycle's changes; `resume` brings them back.

        Questions and changes of the state in between see it as if the cycle did not exist. O(changes).
        """
        # A second call does nothing: callers need not know of each other.
        if not self._is_suspended:
            self._is_suspended = True
            for change in reversed(self._undo_log):
                self._play(change, is_undone=True)

    def resume(self) -> None:
        """Redo what `suspend` has undone, if anything; after a change of the state roll back instead."""
        if self._is_suspended:
            self._is_suspended = False
            for change in self._undo_log:
                self._play(change, is_undone=False)

    def _play(self, change: _Change | UsageOverlay, *, is_undone: bool) -> None:
        """Do a change again, or undo it."""
        if isinstance(change, UsageOverlay):
            (change.negated() if is_undone else change).put_on(self._topology_cache)
            return
        node, usage, places, was_added = change
        # Undoing an addition removes, undoing a removal adds.
        is_adding = was_added is not is_undone
        if is_adding:
            node.add(usage)
        else:
            node.remove(usage)
        if places:
            self._topology_cache.usage.use(places, sign=1 if is_adding else -1)

    def add(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Count `usage` in `queue`, and the places as taken, until rolled back.

        The usage need not fit. O(pairs · depth), and the nodes of the places.
        """
        queue.node.add(usage)
        if places:
            self._topology_cache.usage.use(places, sign=1)
        # Recorded after the change: a change that raises leaves no entry in the log.
        self._undo_log.append((queue.node, usage, places, True))

    def remove(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Subtract `usage` from `queue`, and count the places as free, until rolled back.

        The exact inverse of `add` with the same arguments.
        """
        queue.node.remove(usage)
        if places:
            self._topology_cache.usage.use(places, sign=-1)
        self._undo_log.append((queue.node, usage, places, False))

    def lay(self, overlay: UsageOverlay) -> None:
        """Apply the overlay until rolled back."""
        overlay.put_on(self._topology_cache)
        self._undo_log.append(overlay)

    def decide(self) -> None:
        """Make everything in the log so far a decision of this cycle; later entries are a trial.

        `decided` counts decisions: what was computed from usage is valid as long as the number is the same.
        """
        self.decided += 1
        self._firm = len(self._undo_log)

    def reserve(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Count `usage` and the places as taken for the rest of the cycle."""
        self.add(queue, usage, places)
        self.decide()

    def release(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Count `usage` and the places as free for the rest of the cycle."""
        self.remove(queue, usage, places)
        self.decide()

    @contextmanager
    def without_usage(self, taken: Iterable[Taken]) -> Iterator[None]:
        """Count the reserved usage as free while in the block.

        Also after an exception everything is as before. Blocks may be nested.
        """
        mark = self.mark()
        for queue, usage, places in taken:
            self.remove(queue, usage, places)
        try:
            yield
        finally:
            self.rollback(mark)

    @contextmanager
    def without(self, victims: Iterable[tuple[QueueState, HeldWorkload]]) -> Iterator[None]:
        """Count the victims' usage as free while in the block."""
        mark = self.mark()
        for queue, held in victims:
            self.remove(queue, held.usage, held.places)
        try:
            yield
        finally:
            self.rollback(mark)
