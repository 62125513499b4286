"""ClusterQueues, LocalQueues and Cohorts as items of a list, with quota that is used, lent and borrowed."""

from __future__ import annotations

from collections.abc import Iterator

from admission.answers.items import ClusterQueueItem, CohortItem, LocalQueueItem, QuotaItem
from admission.engine.engine import Engine
from admission.status.quota_use import QuotaUse
from api.parsing.quantities import to_text
from queues.quota.resources import FlavorResource


def cluster_queue_items(engine: Engine) -> Iterator[ClusterQueueItem]:
    """Yield all ClusterQueues, by name."""
    for name in engine.queues.cluster_queues():
        view, spec = engine.queues.cluster_queue_view(name), engine.queues.spec(name)
        if view is None or spec is None:
            continue
        yield ClusterQueueItem(
            name=name,
            cohort=spec.cohort,
            strategy=spec.queueing_strategy,
            policy=engine.queues.policy_of(name).name,
            is_active=view.is_active,
            reason=view.reason or "Ready",
            message=view.message,
            pending=view.pending,
            inadmissible=view.parked_pending,
            reserving=view.reserving,
            admitted=view.admitted,
            weighted_share=view.weighted_share,
            quotas=tuple(_quota(pair, use) for pair, use in engine.queues.quota_use(name).items()),
        )


def local_queue_items(engine: Engine) -> Iterator[LocalQueueItem]:
    """Yield all LocalQueues, by namespace and name."""
    for spec in engine.queues.all_local_queues():
        view = engine.queues.local_queue_view(spec.namespace, spec.name)
        if view is None:
            continue
        yield LocalQueueItem(
            namespace=spec.namespace,
            name=spec.name,
            cluster_queue=spec.cluster_queue,
            is_active=view.is_active,
            reason=view.reason or "Ready",
            message=view.message,
            pending=view.pending,
            inadmissible=view.parked,
            reserving=view.reserving,
            admitted=view.admitted,
            used={
                flavor: {resource: to_text(resource, usage.total) for resource, usage in by_resource.items()}
                for flavor, by_resource in view.flavors_reservation.items()
            },
        )


def cohort_items(engine: Engine) -> Iterator[CohortItem]:
    """Yield all Cohorts, by name."""
    for name in engine.queues.cohorts():
        view = engine.queues.cohort_view(name)
        if view is None:
            continue
        yield CohortItem(
            name=name,
            parent=view.above[0] if view.above else None,
            cluster_queues=view.cluster_queues,
            cohorts=view.cohorts,
            admitted=view.admitted,
            weighted_share=view.weighted_share,
            quotas=tuple(_quota(pair, use) for pair, use in engine.queues.cohort_quota_use(name).items()),
        )


def _quota(pair: FlavorResource, use: QuotaUse) -> QuotaItem:
    def text(amount: int) -> str:
        return to_text(pair.resource, amount)

    return QuotaItem(
        flavor=pair.flavor,
        resource=pair.resource,
        nominal=text(use.nominal),
        used=text(use.used),
        borrowed=text(use.borrowed),
        lent=text(use.lent),
        over=text(use.over),
        available=text(use.available),
        borrowing_limit=None if use.borrowing_limit is None else text(use.borrowing_limit),
        lending_limit=None if use.lending_limit is None else text(use.lending_limit),
    )
