"""What evictions cost, and what became of those that waited for a checkpoint.

Fed like all counters of Workloads by what an object says that its former version did not: so a step is
counted when it has come about, once, whoever made it.
"""

from __future__ import annotations

from admission.controller.logs import Log
from admission.controller.metrics import Metrics
from admission.preemption.loss import lost_work
from admission.preemption.saves import Outcome, is_saving_at_sigterm, outcome_of, outcome_of_stop
from admission.prices import PriceOf, lost_money
from api.checkpoint_facts import CLOCK_SKEW_SECONDS
from api.eviction import eviction_request, has_request
from api.reasons import ConditionType
from api.workload import Workload

log = Log("berth.evictions")


class EvictionMetrics:
    """Counts requests to save and their outcomes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.saves = metrics.counter(
            "berth_eviction_saves",
            "Evictions that wait for a checkpoint, by what became of them",
            ("cluster_queue", "outcome"),
        )

        labels = ("cluster_queue", "reason")
        self.lost = metrics.counter(
            "berth_evicted_device_seconds_lost", "Work since the last checkpoint that evictions lost", labels
        )
        self.lost_money = metrics.counter(
            "berth_evicted_cost_lost", "What that work cost, by the prices of nodes and flavors", labels
        )

    def note_loss(
        self, before: Workload, after: Workload, *, saved_at: float | None, now: float, price_of: PriceOf
    ) -> None:
        """Count what an eviction that has come about loses; nothing where there is none.

        Of one that saves at SIGTERM that is known when its pods have ended: what it did until it was told to.
        """
        evicted, admission = after.conditions.get(ConditionType.EVICTED), before.admission
        if evicted is None or not evicted.status or admission is None:
            return
        if outcome_of_stop(before, after, saved_at=saved_at) is not None:
            if saved_at is not None and saved_at <= now + CLOCK_SKEW_SECONDS:
                # On its way out it saved all that it had done.
                saved_at = min(saved_at, evicted.at)
            now = evicted.at
        elif before.is_evicted or is_saving_at_sigterm(after):
            return
        labels = (self._metrics.role, admission.cluster_queue, evicted.reason)
        lost = lost_work(before, saved_at=saved_at, now=now)
        self.lost.labels(*labels).inc(lost)
        self.lost_money.labels(*labels).inc(lost_money(admission, lost, price_of))

    def note(self, before: Workload, after: Workload, *, saved_at: float | None) -> Outcome | None:
        """Count what has come about between two versions. Returns it, None for nothing.

        `saved_at` is when the Workload's last checkpoint was complete, as far as anybody has told.
        """
        if has_request(before) and eviction_request(before) is None and not has_request(after):
            self._metrics.unreadable.labels(self._metrics.role, "berth.dev/eviction").inc()
        outcome = outcome_of(before, after, saved_at=saved_at)
        outcome = outcome or outcome_of_stop(before, after, saved_at=saved_at)
        if outcome is None:
            return None
        admission = after.admission or before.admission
        queue = admission.cluster_queue if admission is not None else ""
        self.saves.labels(self._metrics.role, queue, outcome.value).inc()
        log.info("eviction-save", workload=after.key, outcome=outcome)
        return outcome
