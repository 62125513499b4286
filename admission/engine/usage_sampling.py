"""Usage sampling: brings the past usage of LocalQueues up to now, for admission fair sharing."""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.cache.workload_store import WorkloadStore
from queues.pending.admission_fair_sharing import UsageLedger


class UsageSampling:
    """Samples the past usage of LocalQueues. Without admission fair sharing nothing happens."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore) -> None:
        self._cache = cache
        self._workload_store = workload_store
        # The queues that were looked at last: by the identity of the ClusterQueues, which are built again
        # with each change, and the number of changes of LocalQueues.
        self._seen: tuple[object, int] | None = None

    def sample(self, *, now: float) -> None:
        """Bring past usage up to now, once every sampling interval.

        That may change which Workload is the head of its queue.

        `now` is in Unix seconds. Usage decays by the half-life of the configuration between samples.
        Source: Kueue, KEP 4136, admission fair sharing.
        """
        ledger, at = self._cache.ledger, self.next_at()
        # Called at every turn of the control loop, so a call without effect has to be cheap.
        if ledger is None or at is None:
            return
        if at > now:
            self._open(ledger, now)
            return
        local_queues = self._cache.local_queue_resources()
        ledger.sample(local_queues, now=now)
        self._workload_store.touched.local_queues.update(local_queues)
        for queue in self._cache.queues.values():
            if queue.usage_of is not None:
                # A sample changes the order of the queue, which no event reports.
                self._workload_store.trees.settle_again(queue.tree)

    def _open(self, ledger: UsageLedger, now: float) -> None:
        """Begin the accounts of new LocalQueues, whose status then shows that nothing is used."""
        queues, changes = self._cache.queues, self._cache.specs.local_queue_changes
        if self._seen is not None and self._seen[0] is queues and self._seen[1] == changes:
            return
        self._seen = queues, changes
        opened = ledger.open(self._cache.local_queue_resources(), now=now)
        self._workload_store.touched.local_queues.update(opened)

    def next_at(self) -> float | None:
        """Return when past usage is next to be sampled (Unix seconds); None without the setting."""
        self._workload_store.see()
        ledger = self._cache.ledger
        return ledger.next_sample_at() if ledger is not None else None
