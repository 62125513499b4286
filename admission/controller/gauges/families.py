"""The gauges of queues and cohorts: name, labels, and how a snapshot becomes samples. Names are Kueue's.

They are made from snapshots at scrape time, so they cost nothing in between, cannot drift, and end with their
object. A new gauge needs one entry in a table here and one line in docs/metrics.md.
Source of names and labels: Kueue, pkg/metrics/metrics.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from admission.controller.gauges.reader import (
    CohortGauges,
    LocalQueueGauges,
    QueueGauges,
    QuotaGauges,
)

G = TypeVar("G", bound=QueueGauges | LocalQueueGauges | CohortGauges)
Row = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family(Generic[G]):
    """One metric. `rows` returns, for one snapshot, the values of `labels` with the number.

    `by_workload`: the values of the custom labels of Workloads follow those of `labels`.
    """

    name: str
    text: str
    labels: tuple[str, ...]
    rows: Callable[[G], Iterable[Row]]
    by_workload: bool = False


def _one(value: Callable[[QueueGauges], float]) -> Callable[[QueueGauges], Iterator[Row]]:
    def rows(queue: QueueGauges) -> Iterator[Row]:
        yield (queue.name,), value(queue)

    return rows


def _local(value: Callable[[LocalQueueGauges], float]) -> Callable[[LocalQueueGauges], Iterator[Row]]:
    def rows(queue: LocalQueueGauges) -> Iterator[Row]:
        yield (queue.name, queue.namespace), value(queue)

    return rows


def _quota(value: Callable[[QuotaGauges], float]) -> Callable[[QueueGauges], Iterator[Row]]:
    def rows(queue: QueueGauges) -> Iterator[Row]:
        for quota in queue.quotas:
            yield (queue.cohort, queue.name, quota.flavor, quota.resource), value(quota)

    return rows


def _quotas_in_force(queue: QueueGauges) -> Iterator[Row]:
    for (flavor, resource, window), amount in queue.quotas_in_force.items():
        yield (queue.name, flavor, resource, window), amount


def _pending(queue: QueueGauges) -> Iterator[Row]:
    yield (queue.name, "active"), queue.pending_active
    yield (queue.name, "inadmissible"), queue.pending_inadmissible


def _shapes(queue: QueueGauges) -> Iterator[Row]:
    yield (queue.name, "active"), queue.active_shapes
    yield (queue.name, "inadmissible"), queue.parked_shapes


def _status(queue: QueueGauges) -> Iterator[Row]:
    for word in ("pending", "active", "terminating"):
        yield (queue.name, word), float(word == queue.status)


def _unadmitted(queue: QueueGauges) -> Iterator[Row]:
    for why, count in queue.unadmitted.items():
        yield (queue.name, *why), count


def _requested(queue: QueueGauges) -> Iterator[Row]:
    for resource, amount in queue.requested.items():
        yield (queue.name, resource), amount


def _admitted(queue: QueueGauges) -> Iterator[Row]:
    for values, count in queue.admitted.items():
        yield (queue.name, *values), count


def _head_age(queue: QueueGauges) -> Iterator[Row]:
    if queue.head_age_seconds is not None:
        yield (queue.name,), queue.head_age_seconds


def _queue_share(queue: QueueGauges) -> Iterator[Row]:
    if queue.weighted_share is not None:
        yield (queue.name, queue.cohort), queue.weighted_share


def _queue_info(queue: QueueGauges) -> Iterator[Row]:
    yield (queue.name, queue.cohort, queue.root), 1.0


_QUOTA = ("cohort", "cluster_queue", "flavor", "resource")
CLUSTER_QUEUE_FAMILIES: tuple[Family[QueueGauges], ...] = (
    Family("kueue_pending_workloads", "Waiting Workloads", ("cluster_queue", "status"), _pending),
    Family(
        "kueue_pending_scheduling_hashes",
        "Different requests among waiting Workloads",
        ("cluster_queue", "status"),
        _shapes,
    ),
    Family(
        "kueue_reserving_active_workloads",
        "With quota, not finished",
        ("cluster_queue",),
        _one(lambda queue: queue.reserving),
    ),
    Family(
        "kueue_admitted_active_workloads",
        "Admitted, not finished",
        ("cluster_queue",),
        _admitted,
        by_workload=True,
    ),
    Family(
        "kueue_finished_workloads",
        "Finished Workloads that still exist",
        ("cluster_queue",),
        _one(lambda queue: queue.finished),
    ),
    Family(
        "kueue_unadmitted_workloads",
        "Workloads that are not admitted, by the reasons of Admitted and QuotaReserved",
        ("cluster_queue", "reason", "underlying_cause"),
        _unadmitted,
    ),
    Family("kueue_cluster_queue_status", "One-hot status", ("cluster_queue", "status"), _status),
    Family(
        "kueue_cluster_queue_resource_pending",
        "Requests of pending Workloads",
        ("cluster_queue", "resource"),
        _requested,
    ),
    Family(
        "kueue_admission_cycle_preemption_skips",
        "1 if the head of the last cycle had victims and another head conflicted with it",
        ("cluster_queue",),
        _one(lambda queue: queue.preemption_skips),
    ),
    Family(
        "kueue_cluster_queue_info",
        "1, to join queues with their cohorts",
        ("cluster_queue", "parent_cohort", "root_cohort"),
        _queue_info,
    ),
    Family(
        "berth_head_of_line_age_seconds",
        "How long the first waiting Workload has been queued",
        ("cluster_queue",),
        _head_age,
    ),
    Family(
        "berth_cluster_queue_quota_in_force",
        "Quota that an open window has put in place of the nominal one",
        ("cluster_queue", "flavor", "resource", "window"),
        _quotas_in_force,
    ),
    Family("kueue_cluster_queue_nominal_quota", "Nominal quota", _QUOTA, _quota(lambda quota: quota.nominal)),
    Family(
        "kueue_cluster_queue_borrowing_limit",
        "What may be borrowed at most",
        _QUOTA,
        _quota(lambda quota: quota.borrowing_limit),
    ),
    Family(
        "kueue_cluster_queue_lending_limit",
        "What is lent at most",
        _QUOTA,
        _quota(lambda quota: quota.lending_limit),
    ),
    Family(
        "kueue_cluster_queue_resource_reservation",
        "Quota reserved",
        _QUOTA,
        _quota(lambda quota: quota.reserved),
    ),
    Family(
        "kueue_cluster_queue_resource_usage",
        "Quota of admitted Workloads",
        _QUOTA,
        _quota(lambda quota: quota.used),
    ),
    Family(
        "kueue_cluster_queue_weighted_share",
        "Dominant resource share",
        ("cluster_queue", "cohort"),
        _queue_share,
    ),
)


def _local_pending(queue: LocalQueueGauges) -> Iterator[Row]:
    yield (queue.name, queue.namespace, "active"), queue.pending_active
    yield (queue.name, queue.namespace, "inadmissible"), queue.pending_inadmissible


def _local_status(queue: LocalQueueGauges) -> Iterator[Row]:
    # Kueue also has Unknown. A queue that Berth has seen is never in that state.
    for word, is_so in (("True", queue.is_active), ("False", not queue.is_active), ("Unknown", False)):
        yield (queue.name, queue.namespace, word), float(is_so)


def _local_unadmitted(queue: LocalQueueGauges) -> Iterator[Row]:
    for why, count in queue.unadmitted.items():
        yield (queue.name, queue.namespace, queue.cluster_queue, *why), count


def _local_reserved(queue: LocalQueueGauges) -> Iterator[Row]:
    for flavor, resource, reserved, _ in queue.usages:
        yield (queue.name, queue.namespace, flavor, resource), reserved


def _local_used(queue: LocalQueueGauges) -> Iterator[Row]:
    for flavor, resource, _, used in queue.usages:
        yield (queue.name, queue.namespace, flavor, resource), used


def _past_usage(queue: LocalQueueGauges) -> Iterator[Row]:
    if queue.fair_usage is not None:
        yield (queue.name, queue.namespace, queue.cluster_queue), queue.fair_usage


_NAMES = ("name", "namespace")
LOCAL_QUEUE_FAMILIES: tuple[Family[LocalQueueGauges], ...] = (
    Family("kueue_local_queue_pending_workloads", "Waiting Workloads", (*_NAMES, "status"), _local_pending),
    Family(
        "kueue_local_queue_reserving_active_workloads",
        "With quota, not finished",
        _NAMES,
        _local(lambda queue: queue.reserving),
    ),
    Family(
        "kueue_local_queue_admitted_active_workloads",
        "Admitted, not finished",
        _NAMES,
        _local(lambda queue: queue.admitted),
    ),
    Family(
        "kueue_local_queue_finished_workloads",
        "Finished Workloads that still exist",
        _NAMES,
        _local(lambda queue: queue.finished),
    ),
    Family(
        "kueue_local_queue_unadmitted_workloads",
        "Workloads that are not admitted, by the reasons of Admitted and QuotaReserved",
        (*_NAMES, "cluster_queue", "reason", "underlying_cause"),
        _local_unadmitted,
    ),
    Family("kueue_local_queue_status", "One-hot status", (*_NAMES, "active"), _local_status),
    Family(
        "kueue_local_queue_resource_reservation",
        "Quota reserved",
        (*_NAMES, "flavor", "resource"),
        _local_reserved,
    ),
    Family(
        "kueue_local_queue_resource_usage",
        "Quota of admitted Workloads",
        (*_NAMES, "flavor", "resource"),
        _local_used,
    ),
    Family(
        "kueue_local_queue_admission_fair_sharing_usage",
        "Past usage by weight",
        (*_NAMES, "cluster_queue"),
        _past_usage,
    ),
)


def _cohort_quota(cohort: CohortGauges) -> Iterator[Row]:
    for pair, amount in cohort.quota.items():
        yield (cohort.name, pair.flavor, pair.resource), amount


def _cohort_reserved(cohort: CohortGauges) -> Iterator[Row]:
    for pair, amount in cohort.reserved.items():
        yield (cohort.name, pair.flavor, pair.resource), amount


def _cohort_admitted(cohort: CohortGauges) -> Iterator[Row]:
    yield (cohort.name,), cohort.admitted


def _cohort_share(cohort: CohortGauges) -> Iterator[Row]:
    if cohort.weighted_share is not None:
        yield (cohort.name,), cohort.weighted_share


def _cohort_info(cohort: CohortGauges) -> Iterator[Row]:
    yield (cohort.name, cohort.parent, cohort.root), 1.0


COHORT_FAMILIES: tuple[Family[CohortGauges], ...] = (
    Family(
        "kueue_cohort_info",
        "1, to join cohorts with those above",
        ("cohort", "parent_cohort", "root_cohort"),
        _cohort_info,
    ),
    Family(
        "kueue_cohort_subtree_quota",
        "Quota of the cohort and all below",
        ("cohort", "flavor", "resource"),
        _cohort_quota,
    ),
    Family(
        "kueue_cohort_subtree_resource_reservations",
        "Quota reserved in the cohort and all below",
        ("cohort", "flavor", "resource"),
        _cohort_reserved,
    ),
    Family(
        "kueue_cohort_subtree_admitted_active_workloads",
        "Admitted in the cohort and all below, not finished",
        ("cohort",),
        _cohort_admitted,
    ),
    Family("kueue_cohort_weighted_share", "Dominant resource share", ("cohort",), _cohort_share),
)
