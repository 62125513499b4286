"""Due queues: which ClusterQueues must be tried because a promise came due, moved, or no longer exists?

A Workload that waits for its promised start is not tried before it. One that was held back for a promise is
not tried until that promise changes. The schedule plan records what becomes of promises; this module derives
which queues to try.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from admission.snapshot.queue_state import QueueState
from api.workload import WorkloadKey
from queues.profile.planned_start import PlannedStart

# How long a Workload that fits beside all promises may be tried. The promises are checked in steps, and the
# cycle that may start it begins at a later instant than the check that found it.
_BESIDE_SECONDS = 1.0


@dataclass(slots=True)
class DueQueues:
    """What has become of promises since the queues to try were last taken.

    `freed` holds the names of ClusterQueues whose promises ended or moved. `_tried` holds the start for which
    a promised Workload was last tried, and `_beside` when one was let start early (both Unix seconds), so
    that each is tried once and not in every cycle.
    """

    # ClusterQueues that lost a promise, so that the next Workload in line may be given one.
    freed: set[str] = field(default_factory=set)
    # Promises that have come due and whose queues were woken for that, with the promised start.
    _tried: dict[WorkloadKey, float] = field(default_factory=dict)
    # Workloads that could start beside all promises at that instant, although not by their rank.
    _beside: dict[WorkloadKey, float] = field(default_factory=dict)
    # Whether a promise on nodes has moved or ended: trees may share nodes.
    _has_left_nodes: bool = False

    def forget(self, key: WorkloadKey) -> None:
        """Forget a Workload that no longer exists."""
        self._tried.pop(key, None)
        self._beside.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self.freed.clear()
        self._tried.clear()
        self._beside.clear()
        self._has_left_nodes = False

    def note_left(self, cluster_queue: str, *, is_on_nodes: bool) -> None:
        """Record that a promise of the ClusterQueue has ended: it was kept or withdrawn.

        `is_on_nodes`: the promise had nodes, which Workloads of other trees may have waited for.
        """
        self.freed.add(cluster_queue)
        self._has_left_nodes |= is_on_nodes

    def note_moved(self, *, is_on_nodes: bool) -> None:
        """Record that a promise has been moved."""
        self._has_left_nodes |= is_on_nodes

    def try_now(self, planned: PlannedStart, *, now: float) -> None:
        """Let a Workload be tried before its time because it fits beside all promises; its promise stays.

        Its queue is tried in the next cycle, in which the start check allows it to begin.
        """
        self._beside[planned.key] = now
        self.freed.add(planned.cluster_queue)

    def may_try(self, planned: PlannedStart, *, now: float) -> bool:
        """Return whether its promised start has come, or it was found to fit before that."""
        return planned.start_at <= now or now - self._beside.get(planned.key, -inf) < _BESIDE_SECONDS

    def take(
        self,
        changed: Mapping[WorkloadKey, PlannedStart | None],
        promised: Iterable[PlannedStart],
        queues: Mapping[str, QueueState],
        *,
        now: float,
        is_one_tree: bool,
    ) -> set[str]:
        """Return the ClusterQueues to be tried, and forget the reasons.

        `changed` holds the promises made, moved or withdrawn (None), and `promised` all that are in force.

        With `is_one_tree` all queues share quota, so waking one wakes all, and held-back Workloads need no
        look of their own. Names may be those of queues that no longer exist.
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
            # A Workload that was held back for it may be in any tree.
            names |= {name for name, queue in queues.items() if queue.pending.held_back}
        return names
