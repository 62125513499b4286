"""The snapshot that a cycle decides on: ClusterQueues, the Workloads that hold quota, reversible trials.

Kueue copies its cache for every cycle. Here the snapshot is the cache's own state, borrowed while the one
task that owns it decides: nothing else can change it meanwhile. Every change that a cycle tries is applied in
place and can be undone (`admission.snapshot.trial`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admission.placement.topology_cache import TopologyCache
from admission.snapshot.cycle_evictions import CycleEvictions
from admission.snapshot.queue_state import QueueState
from admission.snapshot.recent_moves import RecentMoves
from admission.snapshot.trial import Trial
from api.disruption_budget import DisruptionBudget
from api.queueing import ResourceFlavor


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencedObjects:
    """The objects that queues and rules refer to.

    The flavors by name, the labels of each namespace, and the PodDisruptionBudgets by namespace and name.
    """

    flavors: Mapping[str, ResourceFlavor]
    namespaces: Mapping[str, Mapping[str, str]]
    budgets: Mapping[tuple[str, str], DisruptionBudget]


class Snapshot:
    """Borrowed state, the `trial` of changes on it, and the `evictions` of this cycle.

    `queues` is by name of the ClusterQueue. `now` is the time of the cycle in Unix seconds, 0 where no time
    is needed. Only one snapshot may be in use at a time, because all of them work on the same state.
    """

    __slots__ = ("evictions", "moves", "now", "objects", "queues", "topology_cache", "trial")

    def __init__(
        self,
        *,
        queues: Mapping[str, QueueState],
        objects: ReferencedObjects,
        topology_cache: TopologyCache,
        moves: RecentMoves,
        now: float,
    ) -> None:
        """Borrow the state.

        `topology_cache` holds the nodes, `moves` the Workloads that were moved recently. `now` is the instant
        of the decisions (Unix seconds), for rules that depend on how long a Workload has run.
        """
        self.queues = queues
        self.objects = objects
        self.topology_cache = topology_cache
        self.moves = moves
        self.now = now
        self.trial = Trial(topology_cache)
        self.evictions = CycleEvictions(self.trial)

    def rollback(self) -> None:
        """End the cycle: undo all that was decided or tried on the state.

        What the cycle decided is applied to the state afterwards, by `admission.engine.apply_outcomes`.
        """
        self.trial.rollback()
        self.evictions.clear()
