"""Snapshots of queues and cohorts for the gauges. Amounts are in base units.

They are read again for every scrape, object by object, so that the caller can yield the event loop in
between. A deleted object is not read any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf, isinf, nan
from typing import NamedTuple

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.cluster_state.observers import SpecKey
from admission.controller.cluster_state.workload_counts import LocalQueueKey, Unadmitted
from admission.controller.gauges.admitted_by_labels import AdmittedByLabels
from admission.controller.metrics.labels import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD, MetricLabels
from admission.status.views import ClusterQueueView, FlavorUsages, LocalQueueView
from api.parsing.quantities import CPU
from api.queueing import ClusterQueue, Cohort
from queues.quota.resources import FlavorResource


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGauges:
    """Quota and usage of one resource of a flavor. A limit that is not set is infinite."""

    flavor: str
    resource: str
    nominal: float
    reserved: float
    used: float
    borrowing_limit: float = inf
    lending_limit: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGauges:
    """One ClusterQueue. `labels` are the values of its custom labels.

    `weighted_share` is None if fair sharing is off, `head_age_seconds` if no Workload waits. `admitted` is
    by the values of the custom labels of Workloads; without such labels, the only key is ().
    """

    name: str
    cohort: str
    root: str
    status: str
    pending_active: int
    pending_inadmissible: int
    active_shapes: int
    parked_shapes: int
    requested: Mapping[str, float]
    head_age_seconds: float | None
    reserving: int
    admitted: Mapping[tuple[str, ...], int]
    finished: int
    unadmitted: Mapping[Unadmitted, int]
    preemption_skips: int
    quotas: tuple[QuotaGauges, ...] = ()
    # By flavor, resource and the name of the open quota window.
    quotas_in_force: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    weighted_share: float | None = None
    labels: tuple[str, ...] = ()


class UsageGauges(NamedTuple):
    """How much of one resource of a flavor a LocalQueue has reserved and uses."""

    flavor: str
    resource: str
    reserved: float
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueueGauges:
    """One LocalQueue. `labels` are the values of its custom labels.

    `fair_usage` is None without admission fair sharing.
    """

    namespace: str
    name: str
    cluster_queue: str
    is_active: bool
    pending_active: int
    pending_inadmissible: int
    reserving: int
    admitted: int
    finished: int
    unadmitted: Mapping[Unadmitted, int]
    fair_usage: float | None = None
    usages: tuple[UsageGauges, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortGauges:
    """One Cohort. `labels` are the values of its custom labels."""

    name: str
    parent: str
    root: str
    admitted: int
    quota: Mapping[FlavorResource, float]
    reserved: Mapping[FlavorResource, float]
    weighted_share: float | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshots:
    """All queues and cohorts at about the same time."""

    cluster_queues: tuple[QueueGauges, ...] = ()
    local_queues: tuple[LocalQueueGauges, ...] = ()
    cohorts: tuple[CohortGauges, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeSettings:
    """Turns on gauges that have many series, or that mean nothing without a feature.

    `with_quotas`: a series for each flavor and resource. `with_shares`: fair sharing is on.
    """

    with_quotas: bool = False
    with_shares: bool = False


_FEW = GaugeSettings()


class GaugeReader:
    """Takes snapshots of queues and cohorts."""

    def __init__(
        self, cluster_state: ClusterState, labels: MetricLabels, *, settings: GaugeSettings = _FEW
    ) -> None:
        self._engine = cluster_state.engine
        self._specs = cluster_state.specs
        self._workload_counts = cluster_state.workload_counts
        self._labels = labels
        self._settings = settings
        # Cohorts that queues name although their object was deleted. As in Kueue their series begin again
        # once what is below them has changed.
        self._left: dict[str, CohortGauges | None] = {}
        cluster_state.observers.spec_gone.append(self._observe_gone)
        self._admitted_by_labels: AdmittedByLabels | None = None
        if labels.names(WORKLOAD):
            self._admitted_by_labels = AdmittedByLabels(labels)
            cluster_state.observers.workload_changed.append(self._admitted_by_labels.observe)

    def snapshots(self, *, now: float) -> Iterator[QueueGauges | LocalQueueGauges | CohortGauges]:
        """Yield one snapshot after the other, ordered by kind and name. `now` in Unix seconds."""
        specs = self._specs.cluster_queues
        # Built once for all queues: searching all LocalQueues for each queue would be quadratic.
        members = self._local_queues_of()
        active: set[str] = set()
        for name in sorted(specs):
            spec, view = specs.get(name), self._engine.queues.cluster_queue_view(name)
            # It may have been deleted meanwhile, because the caller yields the event
            # loop between two snapshots.
            if spec is not None and view is not None:
                active.update({name} if view.is_active else ())
                yield self._cluster_queue(spec, view, members.get(name, ()), now=now)
        for key in sorted(self._specs.local_queues):
            local = self._engine.queues.local_queue_view(*key)
            if local is not None and self._labels.shows(*key):
                yield self._local_queue(local, is_tried=self._specs.local_queues[key].cluster_queue in active)
        cohorts = self._engine.queues.cohorts()
        self._left = {name: self._left[name] for name in cohorts if name in self._left}
        for name in cohorts:
            yield from self._cohort(name)

    def _local_queues_of(self) -> dict[str, tuple[LocalQueueKey, ...]]:
        found: dict[str, tuple[LocalQueueKey, ...]] = {}
        for key, spec in self._specs.local_queues.items():
            found[spec.cluster_queue] = (*found.get(spec.cluster_queue, ()), key)
        return found

    def _cluster_queue(
        self,
        spec: ClusterQueue,
        view: ClusterQueueView,
        local_queues: tuple[LocalQueueKey, ...],
        *,
        now: float,
    ) -> QueueGauges:
        engine, workload_counts, by_labels = self._engine, self._workload_counts, self._admitted_by_labels
        waiting, above = engine.queues.backlog(spec.name), engine.queues.cohorts_above(spec.name)
        assert waiting is not None, "a queue with a view has a backlog"
        unadmitted: Counter[Unadmitted] = Counter()
        for key in local_queues:
            unadmitted.update(workload_counts.unadmitted(key))
        active, inadmissible = _pending(view.active_pending, view.parked_pending, is_tried=view.is_active)
        return QueueGauges(
            name=spec.name,
            cohort=spec.cohort or "",
            root=above[-1] if above else "",
            # Kueue's words. A queue that is being deleted and still admits Workloads is "active".
            status="active" if view.is_active else "terminating" if spec.is_terminating else "pending",
            pending_active=active,
            pending_inadmissible=inadmissible,
            active_shapes=waiting.active_shapes,
            parked_shapes=waiting.parked_shapes,
            requested={name: _to_number(name, amount) for name, amount in waiting.requested.items()},
            head_age_seconds=None if waiting.oldest_at is None else max(0.0, now - waiting.oldest_at),
            reserving=view.reserving,
            admitted=by_labels.of(spec.name) if by_labels is not None else {(): view.admitted},
            finished=sum(workload_counts.finished(key) for key in local_queues),
            unadmitted=unadmitted,
            preemption_skips=engine.tally.skips.get(spec.name, 0),
            quotas=tuple(_quotas(spec, view)) if self._settings.with_quotas else (),
            quotas_in_force={
                (pair.flavor, pair.resource, present.window): _to_number(pair.resource, present.amount)
                for pair, present in view.quotas_in_force.items()
            },
            weighted_share=_share(view.exact_share) if self._settings.with_shares else None,
            labels=self._labels.values(CLUSTER_QUEUE, "", spec.name),
        )

    def _local_queue(self, view: LocalQueueView, *, is_tried: bool) -> LocalQueueGauges:
        key, workload_counts = (view.namespace, view.name), self._workload_counts
        active, inadmissible = _pending(view.pending - view.parked, view.parked, is_tried=is_tried)
        return LocalQueueGauges(
            namespace=view.namespace,
            name=view.name,
            cluster_queue=self._specs.local_queues[key].cluster_queue,
            is_active=view.is_active,
            pending_active=active,
            pending_inadmissible=inadmissible,
            reserving=view.reserving,
            admitted=view.admitted,
            finished=workload_counts.finished(key),
            unadmitted=workload_counts.unadmitted(key),
            fair_usage=view.fair_usage,
            usages=tuple(_usages(view)) if self._settings.with_quotas else (),
            labels=self._labels.values(LOCAL_QUEUE, *key),
        )

    def _cohort(self, name: str) -> Iterator[CohortGauges]:
        view = self._engine.queues.cohort_view(name)
        if view is None:
            return
        found = CohortGauges(
            name=name,
            parent=view.above[0] if view.above else "",
            # A root is its own root.
            root=view.above[-1] if view.above else name,
            admitted=view.admitted,
            quota=_to_numbers(view.subtree),
            reserved=_to_numbers(view.reserved),
            weighted_share=_share(view.exact_share) if self._settings.with_shares else None,
            labels=self._labels.values(COHORT, "", name),
        )
        if name in self._left:
            # As when its object went: the first look after that is what later ones are compared with.
            if self._left[name] in (None, found):
                self._left[name] = found
                return
            del self._left[name]
        yield found

    def _observe_gone(self, kind: type, key: SpecKey) -> None:
        if kind is Cohort and isinstance(key, str):
            self._left[key] = None


def _pending(active: int, parked: int, *, is_tried: bool) -> tuple[int, int]:
    """Return how many pending Workloads are active, and how many inadmissible.

    A ClusterQueue that is not active tries none, so that all are inadmissible.
    Source: Kueue, pkg/cache/queue/metrics.go.
    """
    return (active, parked) if is_tried else (0, active + parked)


def _quotas(spec: ClusterQueue, view: ClusterQueueView) -> Iterator[QuotaGauges]:
    """Yield quota and use of each resource of each flavor that the ClusterQueue declares."""
    for flavor in (flavor for group in spec.resource_groups for flavor in group.flavors):
        for resource, quota in flavor.resources.items():
            # One unit for all numbers of the row.
            to_number = partial(_to_number, resource)
            yield QuotaGauges(
                flavor=flavor.name,
                resource=resource,
                nominal=to_number(quota.nominal),
                reserved=to_number(_total(view.flavors_reservation, flavor.name, resource)),
                used=to_number(_total(view.flavors_usage, flavor.name, resource)),
                borrowing_limit=to_number(quota.borrowing_limit),
                lending_limit=to_number(quota.lending_limit),
            )


def _usages(view: LocalQueueView) -> Iterator[UsageGauges]:
    for flavor, resources in view.flavors_reservation.items():
        for resource, reserved in resources.items():
            used = _to_number(resource, _total(view.flavors_usage, flavor, resource))
            yield UsageGauges(flavor, resource, _to_number(resource, reserved.total), used)


def _total(usages: FlavorUsages, flavor: str, resource: str) -> int:
    usage = usages.get(flavor, {}).get(resource)
    return usage.total if usage is not None else 0


def _to_numbers(amounts: Mapping[FlavorResource, int]) -> dict[FlavorResource, float]:
    return {pair: _to_number(pair.resource, amount) for pair, amount in amounts.items()}


def _to_number(resource: str, amount: int | None) -> float:
    """Return an amount in the unit of the metrics: cores, bytes or devices; infinite if there is no limit."""
    if amount is None:
        return inf
    # Prometheus uses whole cores as the base unit, quota counts in thousandths.
    return amount / 1000 if resource == CPU else float(amount)


def _share(share: float) -> float:
    """Return the weighted share with its fraction; NaN for a queue of weight 0 that borrows."""
    # NaN as in Kueue's gauge, and neither infinity nor the largest number.
    return nan if isinf(share) else share
