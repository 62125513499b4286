"""ClusterQueues, LocalQueues and Cohorts as items of a list, with quota that is used, lent and borrowed."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from msgspec import structs

from admission.answers.items import (
    AmountItem,
    ClusterQueueItem,
    CohortItem,
    LocalQueueItem,
    QuotaInForceItem,
    QuotaItem,
    ReservationItem,
    UsageItem,
    Usages,
)
from admission.answers.sight import Sight
from admission.calendar.advance_reservations import ReservedCapacity
from admission.calendar.quota_windows import QuotaInForce
from admission.engine.engine import Engine
from admission.status.quota_use import QuotaUse
from admission.status.views import FlavorUsages
from api.parsing.quantities import to_text
from api.parsing.times import to_rfc3339
from queues.quota.resources import FlavorResource


def cluster_queue_items(engine: Engine) -> Iterator[ClusterQueueItem]:
    """Yield all ClusterQueues with all of their reservations, by name."""
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
            flavors_reservation=_usages(view.flavors_reservation),
            flavors_usage=_usages(view.flavors_usage),
            quotas_in_force=tuple(
                _in_force(pair, present) for pair, present in sorted(view.quotas_in_force.items())
            ),
            reservations=tuple(_reservation(kept, has_begun) for kept, has_begun in view.reservations),
        )


def as_seen(item: ClusterQueueItem, sight: Sight) -> ClusterQueueItem:
    """Return the ClusterQueue without reservations of namespaces that the caller may not see."""
    seen = tuple(one for one in item.reservations if sight.sees(one.namespace))
    return structs.replace(item, reservations=seen)


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


def _usages(usages: FlavorUsages) -> Usages:
    return {
        flavor: {
            resource: UsageItem(
                total=to_text(resource, usage.total), borrowed=to_text(resource, usage.borrowed)
            )
            for resource, usage in by_resource.items()
        }
        for flavor, by_resource in usages.items()
    }


def _in_force(pair: FlavorResource, present: QuotaInForce) -> QuotaInForceItem:
    return QuotaInForceItem(
        flavor=pair.flavor,
        resource=pair.resource,
        nominal_quota=to_text(pair.resource, present.amount),
        instead_of=to_text(pair.resource, present.nominal),
        window=present.window,
        until=to_rfc3339(present.closes_at) if present.closes_at < inf else None,
    )


def _reservation(kept: ReservedCapacity, has_begun: bool) -> ReservationItem:
    return ReservationItem(
        name=kept.id.name,
        policy=kept.id.policy,
        namespace=kept.local_queue[0],
        local_queue_name=kept.local_queue[1],
        start=to_rfc3339(kept.start_at),
        end=to_rfc3339(kept.end_at),
        has_begun=has_begun,
        domain=kept.domain.name if kept.domain is not None else None,
        nodes=kept.domain.hosts if kept.domain is not None else None,
        resources=tuple(
            AmountItem(flavor=pair.flavor, resource=pair.resource, amount=to_text(pair.resource, amount))
            for pair, amount in sorted(kept.usage.items())
        ),
    )
