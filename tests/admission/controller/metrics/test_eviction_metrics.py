"""What an eviction has cost: counted in device-seconds and money, and reported to the owner of the work."""

from __future__ import annotations

import pytest

from admission.controller.metrics.eviction_metrics import EvictionMetrics
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.events import EventReporter
from api.reasons import ConditionType
from tests.admission.controller.fakes import FakeRecorder
from tests.builders import make_condition, make_workload, reserved, with_conditions

NOW = 100_000.0
KEPT = "It resumes from its checkpoint of 1970-01-02T03:36:40Z"


def counting_in(metrics: Metrics) -> EvictionMetrics:
    """Return what counts evictions of Workloads whose devices cost 36 an hour."""
    return EvictionMetrics(
        metrics,
        EventReporter(FakeRecorder()),
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
