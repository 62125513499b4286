"""The evictions of a cycle: the Workloads that are gone on the snapshot, decided or by capacity holds.

Capacity that is held for a preemptor counts as if the Workloads that leave for it were gone already. That is
one overlay for the whole cycle (`admission.snapshot.hold_totals`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from admission.placement.topology.place import Place
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.trial import Taken, Trial
from admission.snapshot.usage_overlay import UsageOverlay
from api.workload import WorkloadKey
from queues.quota.resources import FlavorResource


class CycleEvictions:
    """The Workloads that are gone in this cycle; their usage is taken off by the trial."""

    __slots__ = ("_evicted", "_handed_over", "_in_overlay", "_overlay", "_trial")

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._evicted: dict[WorkloadKey, tuple[QueueState, HeldWorkload]] = {}
        # Slices whose usage has passed to the slice that replaces them: nothing has to stop for it.
        self._handed_over: set[WorkloadKey] = set()
        # The overlay of capacity holds, and the Workloads in `_evicted` whose removal is a part of it.
        self._overlay = UsageOverlay()
        self._in_overlay: Collection[WorkloadKey] = ()

    def clear(self) -> None:
        """Forget the evictions at the end of the cycle, after the trial was rolled back."""
        # What the cycle decided is either assumed by the cache or dropped.
        self._evicted.clear()
        self._handed_over.clear()
        self._overlay, self._in_overlay = UsageOverlay(), ()

    def apply_holds(
        self, overlay: UsageOverlay, leaving: Mapping[WorkloadKey, tuple[QueueState, HeldWorkload]]
    ) -> None:
        """Apply the capacity holds for the whole cycle, as if their victims were evicted before all else.

        To be called once, before any head is tried. Counts as a decision of the cycle, so it stays until the
        rollback.
        """
        self._overlay, self._in_overlay = overlay, leaving.keys()
        self._evicted.update(leaving)
        self._trial.lay(overlay)
        self._trial.decide()

    def evict(self, queue: QueueState, held: HeldWorkload) -> None:
        """Remove a Workload and its usage for the rest of the cycle; it is no longer a candidate.

        The eviction itself is decided by the caller; here only the snapshot changes.
        """
        # By key, so that it is no candidate for any other preemptor of this cycle either.
        self._evicted[held.key] = (queue, held)
        self._trial.release(queue, held.usage, held.places)

    def readmit(self, queue: QueueState, held: HeldWorkload) -> None:
        """Bring back a Workload that was evicted in this cycle. Raises KeyError where it was not."""
        del self._evicted[held.key]
        self._trial.reserve(queue, held.usage, held.places)

    def hand_over(self, queue: QueueState, held: HeldWorkload) -> None:
        """Remove a slice whose successor is admitted: it takes over the usage, and the pods run on."""
        self._handed_over.add(held.key)
        self._trial.release(queue, held.usage, held.places)

    @contextmanager
    def handed_over(
        self, queue: QueueState, held: HeldWorkload | None, *, with_places: bool = True
    ) -> Iterator[None]:
        """Remove a slice while in the block, in which its successor is tried; nothing if `held` is None.

        Without `with_places` its pods keep their places: they stay where they are in its successor.
        """
        if held is None:
            yield
            return
        self._handed_over.add(held.key)
        try:
            with self._trial.without_usage(((queue, held.usage, held.places if with_places else ()),)):
                yield
        finally:
            self._handed_over.discard(held.key)

    def usage(self, queue: QueueState, pair: FlavorResource) -> int:
        """Return how much of `pair` the queue's Workloads hold that were evicted in this cycle."""
        return sum(held.usage.get(pair, 0) for one, held in self._evicted.values() if one is queue)

    @contextmanager
    def counted_again(self) -> Iterator[None]:
        """Count the evicted Workloads' usage again while in the block: they still run.

        For questions about the present, such as whether a Workload would fit beside those that are still
        stopping.
        """
        # With a mark of its own, so that blocks may be nested.
        mark = self._trial.mark()
        for queue, held in self._evicted.values():
            self._trial.add(queue, held.usage, held.places)
        try:
            yield
        finally:
            self._trial.rollback(mark)

    @contextmanager
    def taken_back(self, expected: Iterable[Taken], places: Iterable[Place]) -> Iterator[None]:
        """Return to the state before this cycle's evictions while in the block.

        Evicted Workloads count as running; the capacity holds (`apply_holds`) and the `expected` usage count
        as free. Quota is restored in full, nodes only those of `places`: no others may be read in the block.
        """
        # Called for head after head: places on other nodes are skipped, and quota is added up first.
        nodes = {domain.values[-1] for place in places for domain in place.assignment.domains}
        mark = self._trial.mark()
        self._trial.lay(self._overlay.negated(nodes))
        gone = (
            (queue, held.usage, held.places)
            for key, (queue, held) in self._evicted.items()
            if key not in self._in_overlay
        )
        for taken in _summed(gone, nodes):
            self._trial.add(*taken)
        for taken in _summed(expected, nodes):
            self._trial.remove(*taken)
        try:
            yield
        finally:
            self._trial.rollback(mark)

    @property
    def gone(self) -> frozenset[WorkloadKey]:
        """The Workloads that were evicted in this cycle, or count as gone by a hold or a successor."""
        return frozenset(self._evicted) | self._handed_over

    @property
    def has_gone(self) -> bool:
        """Whether any Workload is gone, which every head asks that starts."""
        return bool(self._evicted or self._handed_over)

    def leaving(self) -> Iterator[tuple[QueueState, HeldWorkload]]:
        """Yield the Workloads that are gone in this cycle, with their queues, in the order of eviction."""
        return iter(self._evicted.values())

    def is_gone(self, held: HeldWorkload) -> bool:
        """Return whether the Workload is gone in this cycle."""
        return held.key in self._evicted or held.key in self._handed_over


def _summed(some: Iterable[Taken], nodes: Collection[str]) -> Iterator[Taken]:
    """Yield the total usage by queue; of the places only those on one of the nodes."""
    sums: dict[str, tuple[QueueState, dict[FlavorResource, int], list[Place]]] = {}
    for queue, usage, places in some:
        _, total, near = sums.setdefault(queue.name, (queue, {}, []))
        for pair, amount in usage.items():
            total[pair] = total.get(pair, 0) + amount
        # The last value is the hostname, however many levels an assignment has above it.
        near += (one for one in places if any(at.values[-1] in nodes for at in one.assignment.domains))
    for queue, total, near in sums.values():
        yield queue, total, tuple(near)
