"""What evictions cost, and how those ended that waited for a checkpoint.

As for all counters of Workloads, the input is two versions of an object. A step is counted once, when the
object shows it, whichever client made it.

Prometheus' increase() does not see the first count of a series that begins with it. So each queue that holds
a Workload is served with 0 for every reason and outcome, before one of its Workloads is evicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.metrics.labels import CLUSTER_QUEUE
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Counter, Metrics
from admission.controller.runtime.events import EventReporter
from admission.controller.runtime.logs import Log
from admission.decisions.api_writes import Event, workload_ref
from admission.preemption.checkpoint_before_eviction import (
    SaveOutcome,
    is_saving_at_sigterm,
    outcome_of,
    outcome_of_stop,
)
from admission.preemption.device_price import PriceOf, device_money
from admission.preemption.eviction_cost import devices_of
from admission.preemption.lost_work import lost_work
from api.eviction import eviction_request, has_request
from api.jobs.checkpoint_annotations import CLOCK_SKEW_SECONDS, reports_checkpoints
from api.object_events import EventType
from api.parsing.times import to_rfc3339
from api.reasons import EvictionReason
from api.workload import Workload
from queues.quota.resources import to_quantities

log = Log("berth.evictions")


@dataclass(frozen=True, slots=True, kw_only=True)
class LostWork:
    """What an eviction has lost. `saved_at` is the checkpoint that the work resumes from; None for none."""

    device_seconds: float
    devices: int
    money: float
    saved_at: float | None

    def text(self) -> str:
        """Return the sentence for the owner of the work."""
        if self.saved_at is None:
            kept = "It reported no checkpoint"
        else:
            kept = f"It resumes from its checkpoint of {to_rfc3339(self.saved_at)}"
        # Checkpoint times have whole seconds.
        if self.device_seconds < self.devices:
            return f"{kept}; nothing is lost"
        # A loss of less than a cent is not worth reporting.
        price = f", worth {self.money:.2f}" if self.money >= 0.01 else ""
        seconds = self.device_seconds / self.devices
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        return f"{kept}; {seconds:.0f} s of work on {devices} are lost{price}"


# When the last checkpoint of a Workload was complete, asked at a time; both in Unix seconds.
SavedAt = Callable[[Workload, float], float | None]


class EvictionMetrics:
    """Counts evictions that wait for a checkpoint, their outcomes, and the work that evictions lose."""

    def __init__(
        self,
        metrics: Metrics,
        events: EventReporter,
        series: QueueSeries,
        *,
        saved_at: SavedAt,
        price_of: PriceOf,
    ) -> None:
        """`saved_at` returns when the last checkpoint of a Workload was complete; None if none is known."""
        self._series = series
        # The ClusterQueues that have held a Workload.
        self._queues: set[str] = set()
        self._metrics = metrics
        self._events = events
        self._saved_at = saved_at
        self._price_of = price_of
        self._saves = self._counter(
            "berth_eviction_saves",
            "Evictions that wait for a checkpoint, by what became of them",
            "outcome",
        )
        self._lost = self._counter(
            "berth_evicted_device_seconds_lost", "Work since the last checkpoint lost by evictions", "reason"
        )
        self._lost_money = self._counter(
            "berth_evicted_cost_lost", "What that work cost, by the prices of nodes and flavors", "reason"
        )
        series.at_scrape.append(self._begin)

    def _counter(self, name: str, text: str, label: str) -> Counter:
        counter = self._metrics.counter(name, text, ("cluster_queue", label))
        return self._series.keep(("cluster_queue",), counter)

    def _begin(self) -> None:
        """Begin the series of all queues that hold Workloads, for their next scrape."""
        if self._metrics.is_follower:
            return
        role = self._metrics.role
        self._queues = {queue for queue in self._queues if self._series.knows(CLUSTER_QUEUE, queue)}
        for queue in self._queues:
            for reason in EvictionReason:
                self._lost.labels(role, queue, reason.value)
                self._lost_money.labels(role, queue, reason.value)
            for outcome in SaveOutcome:
                self._saves.labels(role, queue, outcome.value)

    def observe(self, change: WorkloadTransition) -> None:
        """Count what an eviction between two versions of a Workload has led to. A follower counts nothing.

        The Workload gets an Event about work that it loses if it reports checkpoints.
        """
        before, after = change.before, change.after
        if after is not None and after.admission is not None:
            # A follower as well: it may lead when the Workload is evicted.
            self._queues.add(after.admission.cluster_queue)
        if self._metrics.is_follower or before is None or after is None:
            return
        # Most changes are of Workloads that are not evicted: they cost no search for a checkpoint.
        if not (after.is_evicted or has_request(before) or has_request(after)):
            return
        saved_at = self._saved_at(after, change.at)
        self._note_save(before, after, saved_at)
        lost = self.note_loss(before, after, saved_at=saved_at, now=change.at)
        # Only for a Workload that uses checkpoints: otherwise there are no Events besides Kueue's.
        if lost is not None and reports_checkpoints(after):
            self._events.send(_work_lost(after, lost))

    def note_loss(
        self, before: Workload, after: Workload, *, saved_at: float | None, now: float
    ) -> LostWork | None:
        """Count and return what an eviction between two versions has lost; None if there was none.

        If the pods save at SIGTERM, the loss is known once they have ended: it is the work
        up to the eviction.
        """
        evicted, admission = after.eviction, before.admission
        if evicted is None or admission is None:
            return None
        if outcome_of_stop(before, after, saved_at=saved_at) is not None:
            if saved_at is not None and saved_at <= now + CLOCK_SKEW_SECONDS:
                # It saved all of its work while it was terminating.
                saved_at = min(saved_at, evicted.at)
            now = evicted.at
        elif before.is_evicted or is_saving_at_sigterm(after):
            return None
        labels = (self._metrics.role, admission.cluster_queue, evicted.reason)
        lost = lost_work(before, saved_at=saved_at, now=now)
        self._lost.labels(*labels).inc(lost)
        money = device_money(admission, lost, self._price_of)
        self._lost_money.labels(*labels).inc(money)
        # A checkpoint further in the future than clocks differ is not believed.
        is_believed = saved_at is not None and saved_at <= now + CLOCK_SKEW_SECONDS
        return LostWork(
            device_seconds=lost,
            devices=devices_of(to_quantities(admission.pod_sets)),
            money=money,
            saved_at=saved_at if is_believed else None,
        )

    def _note_save(self, before: Workload, after: Workload, saved_at: float | None) -> None:
        """Count the outcome of an eviction that waited for a checkpoint."""
        request = eviction_request(before)
        if has_request(before) and request is None and not has_request(after):
            self._metrics.unreadable.labels(self._metrics.role, "berth.dev/eviction").inc()
        outcome = outcome_of(before, after, saved_at=saved_at)
        outcome = outcome or outcome_of_stop(before, after, saved_at=saved_at)
        if outcome is None:
            return
        admission = after.admission or before.admission
        queue = admission.cluster_queue if admission is not None else ""
        self._saves.labels(self._metrics.role, queue, outcome.value).inc()
        log.info("eviction-save", workload=after.key, outcome=outcome)


def _work_lost(workload: Workload, lost: LostWork) -> Event:
    return Event(
        regarding=workload_ref(workload.key.namespace, workload.key.name, workload.uid),
        type=EventType.NORMAL,
        reason="WorkLost",
        note=lost.text(),
        action="Evict",
    )
