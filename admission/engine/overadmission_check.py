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
from admission.snapshot.held_workload import HeldWorkload

# How many seconds after its begin a term checks the admissions that it began with. A watch may still show a
# Workload that is gone already, and waiting costs nothing: its quota is not given to any other.
INHERITED_SETTLING_SECONDS = 5.0


class OveradmissionCheck:
    """Checks admissions that no decision of this term made against the quota.

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
        # The admissions that the term began with, until they are checked, and when that is.
        self._inherited: tuple[HeldWorkload, ...] = ()
        self._inherited_due_at: float | None = None

    def begin_term(self, *, now: float) -> None:
        """Take every admission that is known now as decided by an earlier leader.

        To be called when a term begins, after all that the cluster shows has been put in. They are checked
        once, by what is recorded of them, since earlier leaders may not have known of each other's.
        """
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        self._workload_store.admitted.unweighed.clear()
        self._inherited = tuple(self._cache.held.values())
        self._inherited_due_at = now + INHERITED_SETTLING_SECONDS

    def evict_excess(self, *, now: float) -> tuple[Evict, ...]:
        """Return the evictions of what other writers have admitted beyond the quota.

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
        self._doubt_inherited(now)
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
        due_at = overadmission.due_at(self._cache, self._workload_store.admitted.unweighed)
        if due_at is None or self._inherited_due_at is None:
            return self._inherited_due_at if due_at is None else due_at
        return min(due_at, self._inherited_due_at)

    def _doubt_inherited(self, now: float) -> None:
        """Have the admissions checked that this term began with, where more is admitted than the quota."""
        if self._inherited_due_at is None or self._inherited_due_at > now:
            return
        inherited, self._inherited, self._inherited_due_at = self._inherited, (), None
        for key in overadmission.doubtful(self._cache, inherited):
            # They have been known for long enough.
            self._workload_store.admitted.unweighed[key] = now - overadmission.SETTLING_SECONDS
