"""Usage sampling: brings the past usage of LocalQueues up to now, for admission fair sharing."""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.cache.workload_store import WorkloadStore


class UsageSampling:
    """Samples the past usage of LocalQueues. Without admission fair sharing nothing happens."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore) -> None:
        self._cache = cache
        self._workload_store = workload_store

    def sample(self, *, now: float) -> None:
        """Bring past usage up to now, once every sampling interval.

        That may change which Workload is the head of its queue.

        `now` is in Unix seconds. Usage decays by the half-life of the configuration between samples.
        Source: Kueue, KEP 4136, admission fair sharing.
        """
        ledger, at = self._cache.ledger, self.next_at()
        if ledger is None or at is None or at > now:
            # Called at every turn of the control loop, so a call too early has to be cheap.
            return
        local_queues = self._cache.sharing_local_queues()
        ledger.sample(local_queues, now=now)
        self._workload_store.touched.local_queues.update(local_queues)
        for queue in self._cache.queues.values():
            if queue.usage_of is not None:
                # A sample changes the order of the queue, which no event reports.
                self._workload_store.trees.settle_again(queue.tree)

    def next_at(self) -> float | None:
        """Return when past usage is next to be sampled (Unix seconds); None if no ClusterQueue uses it."""
        self._workload_store.see()
        ledger, queues = self._cache.ledger, self._cache.queues.values()
        if ledger is None or all(queue.usage_of is None for queue in queues):
            return None
        return ledger.next_sample_at()
