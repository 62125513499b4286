"""Which ClusterQueues are to be tried because of promises: one has come due, has moved, or stands no longer.

The timekeeper notes what becomes of promises; here it is told what follows for those who wait. Who waits for
its promised time is not tried before, and who was held back for a promise not before that has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.snapshot.snapshot import QueueState
from api.workload import WorkloadKey
from queues.profile.planned_start import PlannedStart


@dataclass(slots=True)
class DueQueues:
    """What has become of promises since it was last asked who is to be tried."""

    # ClusterQueues where a promise came free, so that the next in line may have one.
    freed: set[str] = field(default_factory=set)
    # Promises whose time had come, and whose queues were woken for it.
    _tried: dict[WorkloadKey, float] = field(default_factory=dict)
    # Who could start beside all promises at that instant, though not by the rank of its own.
    _beside: dict[WorkloadKey, float] = field(default_factory=dict)
    # Whether a promise on nodes has moved or is none any more: trees may share these.
    _has_left_nodes: bool = False

    def forget(self, key: WorkloadKey) -> None:
        """Forget a Workload that is gone."""
        self._tried.pop(key, None)
        self._beside.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self.freed.clear()
        self._tried.clear()
        self._beside.clear()
        self._has_left_nodes = False

    def note_left(self, cluster_queue: str, *, is_on_nodes: bool) -> None:
        """Note that a promise of the ClusterQueue is none any more: kept, or taken back."""
        self.freed.add(cluster_queue)
        self._has_left_nodes |= is_on_nodes

    def note_moved(self, *, is_on_nodes: bool) -> None:
        """Note that a promise has been moved."""
        self._has_left_nodes |= is_on_nodes

    def try_now(self, planned: PlannedStart, *, now: float) -> None:
        """Let one be tried before its time, which could start now in nobody's way; its promise stays."""
        self._beside[planned.key] = now
        self.freed.add(planned.cluster_queue)

    def may_try(self, planned: PlannedStart, *, now: float) -> bool:
        """Return whether its time has come, or it could start all the same."""
        return planned.start_at <= now or self._beside.get(planned.key) == now

    def take(
        self,
        changed: Mapping[WorkloadKey, PlannedStart | None],
        promised: Iterable[PlannedStart],
        queues: Mapping[str, QueueState],
        *,
        now: float,
        is_one_tree: bool,
    ) -> set[str]:
        """Return the ClusterQueues to be tried, and forget why.

        `changed` are the promises made, moved or (None) withdrawn, `promised` all that stand.
        """
        names, self.freed = self.freed, set()
        for key, planned in changed.items():
            if planned is not None:
                names.add(planned.cluster_queue)
            self._tried.pop(key, None)
        for planned in promised:
            if planned.start_at <= now and self._tried.get(planned.key) != planned.start_at:
                self._tried[planned.key] = planned.start_at
                names.add(planned.cluster_queue)
        has_left, self._has_left_nodes = self._has_left_nodes, False
        if has_left and not is_one_tree:
            # Whoever was held back for it may be of any tree.
            names |= {name for name, queue in queues.items() if queue.pending.held_back}
        return names
