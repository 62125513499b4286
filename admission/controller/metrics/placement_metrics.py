"""Results and durations of placement by topology, and how full the domains are.

The names are those of the article on the topology scheduler. This is what each one measures here:

    latency_seconds             from the start of the deciding cycle until the placement is in the status
    placement_duration_seconds  the deciding cycle alone, which searched the placement
    placement_decisions_total   placed | no_place, by strategy; `kueue` is a pod set's own topology request
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.large_reads import LargeReads
from admission.decisions.decision import Admit, Decision, Wait
from admission.placement.topology.domain_usage import DomainUsage

# Doubling from a millisecond to 16 s: a cycle takes the first few, a slow API server the last.
_BUCKETS = tuple(0.001 * 2**i for i in range(15))
# Caps the decisions whose write is awaited. More than this are never in flight.
_MOST_AWAITED = 10_000


class PlacementMetrics:
    """Counts placements. `DecisionRecorder` calls it with cycles and writes."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._decisions = metrics.counter(
            "topology_placement_decisions",
            "Placements found and not found, by strategy",
            ("strategy", "result"),
        )
        self._cycle_seconds = metrics.histogram(
            "topology_scheduler_placement_duration_seconds",
            "The scheduling cycle that found a placement",
            ("strategy",),
            _BUCKETS,
        )
        self._latency = metrics.histogram(
            "topology_scheduler_latency_seconds",
            "From the start of that cycle until the status has the placement",
            ("strategy",),
            _BUCKETS,
        )
        self._awaited: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()

    def note_cycle(self, decisions: Iterable[Decision], seconds: float, *, monotonic: float) -> None:
        """Count the placements of one cycle, which took `seconds` and ended at `monotonic`."""
        role = self._metrics.role
        for decision in decisions:
            if isinstance(decision, Admit) and decision.strategy:
                self._decisions.labels(role, decision.strategy, "placed").inc()
                self._cycle_seconds.labels(role, decision.strategy).observe(seconds)
                self._awaited[decision.key.namespace, decision.key.name] = (
                    decision.strategy,
                    monotonic - seconds,
                )
                if len(self._awaited) > _MOST_AWAITED:
                    self._awaited.popitem(last=False)
            elif isinstance(decision, Wait) and decision.strategy:
                self._decisions.labels(role, decision.strategy, "no_place").inc()

    def note_written(self, namespace: str, name: str, *, monotonic: float) -> None:
        """Record that a Workload's admission has been written."""
        awaited = self._awaited.pop((namespace, name), None)
        if awaited is not None:
            strategy, began = awaited
            self._latency.labels(self._metrics.role, strategy).observe(monotonic - began)


class DomainCollector(Collector):
    """Serves how full the domains are, as of the last `refresh`."""

    def __init__(
        self, metrics: Metrics, usages: Callable[[], Iterator[DomainUsage]], reads: LargeReads
    ) -> None:
        self._metrics = metrics
        self._usages = usages
        self._reads = reads
        self._latest: tuple[DomainUsage, ...] = ()
        metrics.registry.register(self)

    async def refresh(self) -> None:
        """Read all domains again, and yield the event loop between slices."""
        self._latest = tuple(await self._reads.collect(self._usages()))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the three gauges."""
        yield self._family(
            "topology_domain_utilization_ratio", "Nodes in use", lambda usage: usage.utilization
        )
        yield self._family("topology_gpu_allocation_ratio", "GPUs in use", lambda usage: usage.gpu_allocation)
        yield self._family(
            "topology_scheduler_domain_fragmentation_ratio",
            "Nodes in use in part",
            lambda usage: usage.fragmentation,
        )

    def _family(
        self, name: str, text: str, value: Callable[[DomainUsage], float | None]
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=("replica_role", "flavor", "domain"))
        for usage in self._latest:
            ratio = value(usage)
            if ratio is not None:
                family.add_metric((self._metrics.role, usage.flavor, usage.domain), ratio)
        return family
