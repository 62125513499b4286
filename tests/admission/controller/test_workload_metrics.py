"""What is counted of Workloads, by ClusterQueue and LocalQueue, from one version of an object to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from admission.controller.metrics import Metrics, QueueGauges, QuotaGauges
from admission.controller.workload_metrics import WorkloadMetrics
from api.objects import WirePriorityClassRef
from api.reasons import ConditionType
from api.workload import Admission, Condition, Workload, WorkloadKey

QUEUE = {"replica_role": "leader", "cluster_queue": "queue", "priority_class": "high"}
LOCAL = {"replica_role": "leader", "name": "main", "namespace": "default", "priority_class": "high"}
PENDING = Workload(
    key=WorkloadKey("default", "w"),
    uid="1",
    created_at=100.0,
    pod_sets=(),
    queue_name="main",
    priority_class=WirePriorityClassRef(name="high"),
)


def true(type_: ConditionType, at: float, reason: str = "") -> dict[str, Condition]:
    return {type_.value: Condition(type=type_, status=True, reason=reason, at=at)}


RESERVED = replace(
    PENDING,
    admission=Admission(cluster_queue="queue", pod_sets=()),
    conditions=true(ConditionType.QUOTA_RESERVED, 103.0),
)
ADMITTED = replace(RESERVED, conditions={**RESERVED.conditions, **true(ConditionType.ADMITTED, 105.0)})
READY = replace(ADMITTED, conditions={**ADMITTED.conditions, **true(ConditionType.PODS_READY, 107.0)})
FINISHED = replace(ADMITTED, conditions={**ADMITTED.conditions, **true(ConditionType.FINISHED, 125.0)})
EVICTED = replace(
    READY,
    conditions={**READY.conditions, **true(ConditionType.EVICTED, 110.0, "DeactivatedDueToLimit")},
    evictions={("Deactivated", "Limit"): 1},
)
RELEASED = replace(EVICTED, admission=None)


def leading() -> Metrics:
    metrics = Metrics(version="1")
    metrics.role = "leader"
    return metrics


def sample(metrics: Metrics, name: str, labels: dict[str, str]) -> float | None:
    """Return a sample of the text that Prometheus reads."""
    families = text_string_to_metric_families(metrics.render().decode())
    found = (one for family in families for one in family.samples)
    return next((one.value for one in found if (one.name, one.labels) == (name, labels)), None)


@pytest.mark.parametrize(
    ("before", "after", "at", "name", "want"),
    [
        pytest.param(PENDING, RESERVED, 103.5, "quota_reserved_workloads_total", 1, id="a reservation"),
        pytest.param(PENDING, RESERVED, 103.5, "quota_reserved_wait_time_seconds_sum", 3.5, id="its wait"),
        pytest.param(RESERVED, ADMITTED, 105.0, "admitted_workloads_total", 1, id="an admission"),
        pytest.param(PENDING, ADMITTED, 105.0, "admission_wait_time_seconds_sum", 5.0, id="both at once"),
        pytest.param(ADMITTED, READY, 107.0, "ready_wait_time_seconds_sum", 7.0, id="pods ready"),
        pytest.param(
            ADMITTED, READY, 107.0, "admitted_until_ready_wait_time_seconds_sum", 2.0, id="the start of pods"
        ),
        pytest.param(ADMITTED, FINISHED, 125.0, "finished_workloads_total", 1, id="an end"),
        pytest.param(ADMITTED, FINISHED, 125.0, "execution_time_seconds_sum", 20.0, id="its execution time"),
        pytest.param(ADMITTED, ADMITTED, 110.0, "admitted_workloads_total", None, id="no step at all"),
    ],
)
def test_a_step_is_counted_for_both_queues(
    before: Workload, after: Workload, at: float, name: str, want: float | None
) -> None:
    metrics = leading()

    WorkloadMetrics(metrics).note(before, after, now=at)

    assert sample(metrics, f"kueue_{name}", QUEUE) == want
    assert sample(metrics, f"kueue_local_queue_{name}", LOCAL) == want


def test_an_eviction_is_counted_by_reason_and_cause_and_its_first_once() -> None:
    metrics = leading()
    counting = WorkloadMetrics(metrics)
    again = replace(EVICTED, evictions={("Deactivated", "Limit"): 2})

    counting.note(READY, EVICTED, now=110.0)
    counting.note(replace(READY, evictions=EVICTED.evictions), again, now=110.0)

    labels = {**QUEUE, "reason": "Deactivated", "underlying_cause": "Limit"}
    assert sample(metrics, "kueue_evicted_workloads_total", labels) == 2
    assert sample(metrics, "kueue_evicted_workloads_once_total", labels) == 1
    del labels["priority_class"]
    assert sample(metrics, "kueue_pods_ready_to_evicted_time_seconds_sum", labels) == 6


def test_the_time_until_an_evicted_workload_has_stopped_is_measured() -> None:
    metrics = leading()

    WorkloadMetrics(metrics).note(EVICTED, RELEASED, now=114.0)

    labels = {"replica_role": "leader", "cluster_queue": "queue", "reason": "Deactivated"}
    assert sample(metrics, "kueue_workload_eviction_latency_seconds_sum", labels) == 4


def test_without_metrics_of_local_queues_there_are_none() -> None:
    metrics = leading()

    WorkloadMetrics(metrics, with_local_queues=False).note(PENDING, ADMITTED, now=105.0)

    assert sample(metrics, "kueue_admitted_workloads_total", QUEUE) == 1
    assert "local_queue" not in metrics.render().decode()


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("kueue_quota_reserved_wait_time_seconds", 10240, id="the wait for quota"),
        pytest.param("kueue_admission_wait_time_seconds", 40960, id="the wait for admission"),
        pytest.param("kueue_local_queue_admission_wait_time_seconds", 10240, id="the same by LocalQueue"),
        pytest.param("kueue_execution_time_seconds", 40960, id="execution"),
    ],
)
def test_buckets_end_where_dashboards_expect_it(name: str, want: float) -> None:
    metrics = leading()

    WorkloadMetrics(metrics).note(PENDING, FINISHED, now=125.0)

    labels = LOCAL if "local_queue" in name else QUEUE
    assert sample(metrics, f"{name}_bucket", {**labels, "le": f"{want:.1f}"}) == 1
    assert sample(metrics, f"{name}_bucket", {**labels, "le": f"{2 * want:.1f}"}) is None


def test_quota_is_shown_in_base_units_and_a_missing_limit_as_infinite() -> None:
    metrics = leading()
    quota = QuotaGauges(
        flavor="default", resource="cpu", nominal=4.0, reserved=2.5, used=1.5, borrowing_limit=1.0
    )
    queue = QueueGauges(
        name="queue",
        cohort="all",
        pending_active=0,
        pending_inadmissible=0,
        reserving=1,
        admitted=1,
        status="active",
        quotas=(quota,),
        weighted_share=12.0,
    )
    metrics.observe_queues(lambda: (queue,), lambda: ())

    place = {"replica_role": "leader", "cohort": "all", "cluster_queue": "queue"}
    labels = {**place, "flavor": "default", "resource": "cpu"}
    names = ("nominal_quota", "resource_reservation", "resource_usage", "borrowing_limit", "lending_limit")
    shown = [sample(metrics, f"kueue_cluster_queue_{name}", labels) for name in names]
    assert shown == [4.0, 2.5, 1.5, 1.0, float("inf")]
    assert sample(metrics, "kueue_cluster_queue_weighted_share", place) == 12
