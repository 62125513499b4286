"""What is counted of Workloads, by ClusterQueue and LocalQueue, from one version of an object to the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.metrics.labels import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, CustomLabel, MetricLabels
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.metrics.workload_metrics import WorkloadMetrics
from api.objects.common import Meta
from api.objects.templates import WirePodTemplate
from api.objects.workloads import WirePriorityClassRef
from api.reasons import ConditionType
from api.workload import Admission, Condition, PodSet, Workload, WorkloadKey

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


def changed(before: Workload, after: Workload, at: float) -> WorkloadTransition:
    return WorkloadTransition(before=before, after=after, at=at)


def counting_in(metrics: Metrics, *cohorts: str, series: QueueSeries | None = None) -> WorkloadMetrics:
    """Return what counts the steps of Workloads whose ClusterQueue is below these cohorts."""
    return WorkloadMetrics(metrics, series or QueueSeries(), cohorts_above=lambda _: cohorts)


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

    counting_in(metrics).observe(changed(before, after, at))

    assert sample(metrics, f"kueue_{name}", QUEUE) == want
    assert sample(metrics, f"kueue_local_queue_{name}", LOCAL) == want


def test_an_eviction_is_counted_by_reason_and_cause_and_its_first_once() -> None:
    metrics = leading()
    counting = counting_in(metrics)
    again = replace(EVICTED, evictions={("Deactivated", "Limit"): 2})

    counting.observe(changed(READY, EVICTED, 110.0))
    counting.observe(changed(replace(READY, evictions=EVICTED.evictions), again, 110.0))

    labels = {**QUEUE, "reason": "Deactivated", "underlying_cause": "Limit"}
    assert sample(metrics, "kueue_evicted_workloads_total", labels) == 2
    assert sample(metrics, "kueue_evicted_workloads_once_total", labels) == 1
    del labels["priority_class"]
    assert sample(metrics, "kueue_pods_ready_to_evicted_time_seconds_sum", labels) == 6


def test_the_time_until_an_evicted_workload_has_stopped_is_measured() -> None:
    metrics = leading()

    counting_in(metrics).observe(changed(EVICTED, RELEASED, 114.0))

    labels = {"replica_role": "leader", "cluster_queue": "queue", "reason": "Deactivated"}
    assert sample(metrics, "kueue_workload_eviction_latency_seconds_sum", labels) == 4


def test_without_metrics_of_local_queues_there_are_none() -> None:
    metrics = leading()

    series = QueueSeries(MetricLabels(local_queues=False))
    counting_in(metrics, series=series).observe(changed(PENDING, ADMITTED, 105.0))

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

    counting_in(metrics).observe(changed(PENDING, FINISHED, 125.0))

    labels = LOCAL if "local_queue" in name else QUEUE
    assert sample(metrics, f"{name}_bucket", {**labels, "le": f"{want:.1f}"}) == 1
    assert sample(metrics, f"{name}_bucket", {**labels, "le": f"{2 * want:.1f}"}) is None


def test_an_admission_is_counted_in_every_cohort_above() -> None:
    metrics = leading()

    counting_in(metrics, "team", "org").observe(changed(PENDING, ADMITTED, 105.0))

    for cohort in ("team", "org"):
        labels = {"replica_role": "leader", "cohort": cohort, "priority_class": "high"}
        assert sample(metrics, "kueue_cohort_subtree_admitted_workloads_total", labels) == 1


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "gone", "left"),
    [
        (CLUSTER_QUEUE, "", "queue", "cluster_queue=", "local_queue_admitted"),
        (LOCAL_QUEUE, "default", "main", 'name="main"', "cluster_queue="),
        (COHORT, "", "team", "cohort=", "cluster_queue="),
    ],
)
def test_the_counters_of_an_object_end_with_it(
    kind: str, namespace: str, name: str, gone: str, left: str
) -> None:
    metrics = leading()
    series = QueueSeries()
    counting_in(metrics, "team", series=series).observe(changed(PENDING, ADMITTED, 105.0))

    series.drop(kind, namespace, name)

    text = metrics.render().decode()
    assert gone not in text
    assert left in text


def test_the_counters_of_an_object_that_is_created_again_begin_at_zero() -> None:
    metrics, series = leading(), QueueSeries()
    counting = counting_in(metrics, series=series)
    counting.observe(changed(PENDING, ADMITTED, 105.0))
    series.drop(CLUSTER_QUEUE, "", "queue")

    for _ in range(2):
        counting.observe(changed(PENDING, ADMITTED, 105.0))

    labels = {"replica_role": "leader", "cluster_queue": "queue", "priority_class": "high"}
    assert sample(metrics, "kueue_admitted_workloads_total", labels) == 2


def test_the_counters_of_a_queue_that_is_gone_are_served_once_more() -> None:
    """What was counted since the last scrape is not lost, also of a queue that lived between two scrapes."""
    metrics, name = leading(), "kueue_admitted_workloads_total"
    series, queue = QueueSeries(), Meta(name="queue", uid="1")
    series.see(CLUSTER_QUEUE, queue)
    counting_in(metrics, series=series).observe(changed(PENDING, ADMITTED, 105.0))

    series.forget(CLUSTER_QUEUE, queue)

    series.begin_scrape()
    assert sample(metrics, name, QUEUE) == 1
    series.begin_scrape()
    assert sample(metrics, name, QUEUE) is None


def test_a_queue_that_takes_the_name_of_another_counts_from_zero_before_any_scrape() -> None:
    """Kueue ends the series of a queue with its object."""
    metrics = leading()
    series = QueueSeries()
    counting = counting_in(metrics, series=series)
    series.see(CLUSTER_QUEUE, Meta(name="queue", uid="1"))
    counting.observe(changed(PENDING, ADMITTED, 105.0))
    series.forget(CLUSTER_QUEUE, Meta(name="queue", uid="1"))

    series.see(CLUSTER_QUEUE, Meta(name="queue", uid="2"))
    counting.observe(changed(PENDING, ADMITTED, 105.0))

    for _ in range(2):
        series.begin_scrape()
    assert sample(metrics, "kueue_admitted_workloads_total", QUEUE) == 1


def test_custom_labels_hold_the_values_of_each_kind_of_object() -> None:
    labels = MetricLabels(
        (
            CustomLabel(name="custom_team", kind="ClusterQueue", key="example.com/team"),
            CustomLabel(name="custom_cost", kind="LocalQueue", key="cost", is_annotation=True),
            CustomLabel(name="custom_tier", kind="Workload", key="tier", tracked=frozenset({"gold"})),
        )
    )
    labels.see("ClusterQueue", Meta(name="queue", labels={"example.com/team": "vision"}))
    labels.see("LocalQueue", Meta(namespace="default", name="main", annotations={"cost": "42"}))
    metrics = leading()
    counting = counting_in(metrics, series=QueueSeries(labels))

    for tier in ("gold", "lead"):
        counting.observe(changed(PENDING, replace(RESERVED, labels={"tier": tier}), 105.0))

    untracked = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
    for tier in ("gold", untracked):
        name = "quota_reserved_workloads_total"
        of_queue = {**QUEUE, "custom_team": "vision", "custom_tier": tier}
        assert sample(metrics, f"kueue_{name}", of_queue) == 1
        of_local = {**LOCAL, "custom_cost": "42", "custom_tier": tier}
        assert sample(metrics, f"kueue_local_queue_{name}", of_local) == 1


@pytest.mark.covers("001_40")
def test_the_wait_of_a_gang_is_reported_by_its_job_for_the_last_hundred_gangs() -> None:
    metrics = leading()
    counting = counting_in(metrics)
    gang = (PodSet(name="main", count=4, template=WirePodTemplate()),)

    for number in range(101):
        before = replace(PENDING, owner_name=f"job-{number}", pod_sets=gang)
        after = replace(ADMITTED, owner_name=f"job-{number}", pod_sets=gang)
        counting.observe(changed(before, after, 145.0))

    def bucket(job: str, seconds: str) -> float | None:
        labels = {"replica_role": "leader", "job_name": job, "namespace": "default", "local_queue": "main"}
        return sample(metrics, "gang_scheduling_wait_seconds_bucket", {**labels, "le": seconds})

    assert [bucket("job-100", le) for le in ("10.0", "30.0", "60.0", "300.0", "600.0")] == [0, 0, 1, 1, 1]
    assert (bucket("job-1", "60.0"), bucket("job-0", "60.0")) == (1, None)
