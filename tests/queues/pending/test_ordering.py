"""By which instant a Workload queues. Source of the rules: Kueue, Ordering.GetQueueOrderTimestamp."""

from __future__ import annotations

import pytest

from api.reasons import ConditionType
from queues.pending.ordering import RequeuingTimestamp, queued_at
from tests.builders import make_condition, make_workload, with_conditions

CREATED, EVICTED = 100.0, 500.0


@pytest.mark.parametrize(
    ("reason", "timestamp", "want"),
    [
        pytest.param("Preempted", "Eviction", CREATED, id="preemption leaves it its place"),
        pytest.param("NodeFailures", "Eviction", CREATED, id="a failed node leaves it its place"),
        pytest.param("AdmissionCheck", "Creation", EVICTED, id="a check that asks for a retry moves it back"),
        pytest.param("PodsReadyTimeout", "Eviction", EVICTED, id="pods that did not get ready move it back"),
        pytest.param("PodsReadyTimeout", "Creation", CREATED, id="unless the configuration says otherwise"),
    ],
)
def test_an_eviction_moves_a_workload_back_only_where_it_was_its_own_doing(
    reason: str, timestamp: str, want: float
) -> None:
    evicted = make_condition(ConditionType.EVICTED, reason=reason, at=EVICTED)
    workload = with_conditions(make_workload(at=CREATED), evicted)

    assert queued_at(workload, RequeuingTimestamp(timestamp)) == want


def test_an_eviction_that_is_over_does_not_count() -> None:
    over = make_condition(ConditionType.EVICTED, False, reason="AdmissionCheck", at=EVICTED)

    assert queued_at(with_conditions(make_workload(at=CREATED), over)) == CREATED
