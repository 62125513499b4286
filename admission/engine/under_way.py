"""What is under way in the engine, and how a change of what is known ends it.

A cycle and a check of promises work on the state itself and pause between two steps. A change of that state
begins with `begin_change`, which takes back the trial of an unfinished cycle and drops the check.
"""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.cache.trees_to_try import TreesToTry
from admission.scheduler.resumable_cycle import Cycle
from queues.steps import Steps


class UnderWay:
    """The unfinished cycle and check of promises."""

    def __init__(self, cache: Cache, trees: TreesToTry) -> None:
        self._cache = cache
        self._trees = trees
        self.cycle: Cycle | None = None
        # The check of promises, and the generation of the schedule plan that the last one since the last
        # change was completed for.
        self.settling: Steps[None] | None = None
        self.settled: int | None = None

    def begin_change(self, now: float) -> None:
        """Prepare for a change of what is known: a cycle under way ends first.

        Every method that changes the state calls it first. `now` is in Unix seconds.
        """
        self._cache.schedule_plan.now = now
        if now >= self._cache.next_boundary_at:
            # A quota window begins or ends, which has the effect of an edited ClusterQueue; or a reservation
            # does, which may let other Workloads start.
            self._cache.specs.invalidate()
        # Removed first: an interrupt may apply decisions, and those must not find a cycle under way.
        cycle, self.cycle = self.cycle, None
        looking, self.settling, self.settled = self.settling, None, None
        if looking is not None:
            looking.close()
        if cycle is not None:
            for queue in cycle.interrupt():
                self._trees.settle_again(queue.tree)
