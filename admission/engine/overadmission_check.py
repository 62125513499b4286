"""The over-admission check: evicts what other writers have admitted beyond the quota, each decided once.

Which admissions those are is decided by `admission.cache.overadmission`.
"""

from __future__ import annotations

from admission.cache import overadmission
from admission.cache.cache import Cache
from admission.cache.workload_store import WorkloadStore
from admission.decisions.decision import Evict
from admission.engine.under_way import UnderWay
from admission.scheduler.cycle_statistics import CycleStatistics


class OveradmissionCheck:
    """Checks admissions that no decision of this engine made against the quota.

    Two leaders, or a user who writes a status by hand, can admit more than the quota holds. Such an admission
    is kept if it fits beside all others, and evicted otherwise.
    """

    def __init__(
        self, cache: Cache, workload_store: WorkloadStore, under_way: UnderWay, tally: CycleStatistics
    ) -> None:
        self._cache = cache
        self._workload_store = workload_store
        self._under_way = under_way
        self._tally = tally

    def accept_all(self, *, now: float) -> None:
        """Take every admission that is known now as checked against the quota by an earlier leader.

        To be called when a term begins, after all that the cluster shows has been put in.

        Otherwise a new leader would weigh every admission of its predecessor as if another program had made
        it.
        """
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        self._workload_store.admitted.unweighed.clear()

    def evict_excess(self, *, now: float) -> tuple[Evict, ...]:
        """Return the evictions of what other writers have admitted beyond the quota since `accept_all`.

        Each is returned once; use `Engine.forget` if it could not be written.

        The reason is OverAdmitted. Empty before `next_at`.
        """
        unweighed = self._workload_store.admitted.unweighed
        # Checked before anything is refreshed, since nearly every call has nothing to do.
        due_at = self.next_at()
        if due_at is None or due_at > now:
            return ()
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        fitting, evictions = overadmission.judge(self._cache, unweighed, now=now)
        for key in fitting:
            # It is within the quota, and from here on treated as if this engine had admitted it.
            del unweighed[key]
        for eviction in evictions:
            # It holds its quota until it has stopped, but cannot be chosen as a preemption target again.
            self._cache.held[eviction.key].is_evicting = True
        self._tally.evicts += len(evictions)
        return tuple(evictions)

    def next_at(self) -> float | None:
        """Return when `evict_excess` next has something to check (Unix seconds), None for never."""
        return overadmission.due_at(self._cache, self._workload_store.admitted.unweighed)
