"""What an eviction has cost: counted in device-seconds and money, and reported to the owner of the work."""

from __future__ import annotations

import pytest

from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.metrics.eviction_metrics import EvictionMetrics
from admission.controller.metrics.labels import CLUSTER_QUEUE
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.events import EventReporter
from api.objects.common import Meta
from api.reasons import ConditionType
from tests.admission.controller.fakes import FakeRecorder
from tests.builders import make_condition, make_workload, reserved, with_conditions

NOW = 100_000.0
KEPT = "It resumes from its checkpoint of 1970-01-02T03:36:40Z"


def counting_in(metrics: Metrics, series: QueueSeries | None = None) -> EvictionMetrics:
    """Return what counts evictions of Workloads whose devices cost 36 an hour."""
    return EvictionMetrics(
        metrics,
        EventReporter(FakeRecorder()),
        series or QueueSeries(),
        saved_at=lambda *_: None,
        price_of=lambda *_: 36.0,
    )


@pytest.mark.covers("001_34")
@pytest.mark.parametrize(
    ("gpus", "saved_at", "seconds", "money", "want"),
    [
        pytest.param(
            4,
            NOW - 600,
            2400,
            24.0,
            f"{KEPT}; 600 s of work on 4 devices are lost, worth 24.00",
            id="priced",
        ),
        pytest.param(0, NOW - 600, 600, 0.0, f"{KEPT}; 600 s of work on 1 device are lost", id="no devices"),
        pytest.param(
            1,
            None,
            900,
            9.0,
            "It reported no checkpoint; 900 s of work on 1 device are lost, worth 9.00",
            id="silent",
        ),
        pytest.param(
            1,
            NOW + 5000,
            900,
            9.0,
            "It reported no checkpoint; 900 s of work on 1 device are lost, worth 9.00",
            id="of the future",
        ),
        pytest.param(
            2,
            NOW - 0.5,
            1,
            0.01,
            "It resumes from its checkpoint of 1970-01-02T03:46:39Z; nothing is lost",
            id="just saved",
        ),
    ],
)
def test_what_an_eviction_has_lost_is_counted_and_reported(
    gpus: int, saved_at: float | None, seconds: float, money: float, want: str
) -> None:
    metrics = Metrics(version="test")
    before = reserved(make_workload("w", gpus=gpus), at=NOW - 900)
    evicted = make_condition(ConditionType.EVICTED, reason="Preempted", at=NOW)

    lost = counting_in(metrics).note_loss(
        before, with_conditions(before, evicted), saved_at=saved_at, now=NOW
    )

    labels = {"replica_role": metrics.role, "cluster_queue": "queue", "reason": "Preempted"}
    counted = [
        metrics.registry.get_sample_value(f"berth_evicted_{name}_lost_total", labels)
        for name in ("device_seconds", "cost")
    ]
    assert counted == [pytest.approx(seconds), pytest.approx(money)]
    assert lost is not None
    assert lost.text() == want


def test_an_eviction_is_counted_once() -> None:
    before = reserved(make_workload("w", gpus=1), at=NOW - 900)
    after = with_conditions(before, make_condition(ConditionType.EVICTED, reason="Preempted", at=NOW))

    again = counting_in(Metrics(version="test")).note_loss(after, after, saved_at=None, now=NOW)

    assert again is None


def samples_of(metrics: Metrics) -> dict[str, float]:
    """Return the counters of evictions of the leader by the name and the last label."""
    return {
        f"{sample.name}/{sample.labels.get('reason') or sample.labels.get('outcome')}": sample.value
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name.startswith("berth_evict") and sample.name.endswith("_total")
    }


def test_a_queue_that_holds_a_workload_counts_from_zero() -> None:
    """The increase() of Prometheus does not see the first count of a series that begins with it."""
    metrics, series = Metrics(version="test"), QueueSeries()
    series.see(CLUSTER_QUEUE, Meta(name="queue", uid="1"))
    counting = counting_in(metrics, series)
    held = reserved(make_workload("w", gpus=1), at=NOW - 900)
    # As a new leader finds it: what it watched as a follower.
    counting.observe(WorkloadTransition(before=None, after=held, at=NOW))
    series.begin_scrape()
    assert not samples_of(metrics)

    metrics.role = "leader"
    series.begin_scrape()

    begun = samples_of(metrics)
    assert set(begun.values()) == {0}
    assert {"berth_evicted_cost_lost_total/Preempted", "berth_eviction_saves_total/missed"} <= begun.keys()
    evicted = with_conditions(held, make_condition(ConditionType.EVICTED, reason="Preempted", at=NOW))
    counting.observe(WorkloadTransition(before=held, after=evicted, at=NOW))
    assert samples_of(metrics).keys() == begun.keys()
    assert samples_of(metrics)["berth_evicted_device_seconds_lost_total/Preempted"] == 900


def test_the_counts_of_evictions_end_with_their_queue() -> None:
    metrics, series = Metrics(version="test"), QueueSeries()
    metrics.role, queue = "leader", Meta(name="queue", uid="1")
    series.see(CLUSTER_QUEUE, queue)
    held = reserved(make_workload("w", gpus=1), at=NOW - 900)
    counting_in(metrics, series).observe(WorkloadTransition(before=None, after=held, at=NOW))
    series.begin_scrape()

    series.forget(CLUSTER_QUEUE, queue)

    for _ in range(2):
        series.begin_scrape()
    assert not samples_of(metrics)
