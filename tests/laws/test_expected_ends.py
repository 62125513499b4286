"""Where no Job declares its run time, the earliest expected end first is Kueue's order.

However the Workloads came to wait: new, preempted, back after a failed node, or by their own doing (pods that
did not become ready, a check that asked for a retry).
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admission.engine.engine import EngineSettings
from api.policy import AdmissionPolicy, Ordering, OrderingMode
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload
from queues.pending.ordering import RequeuingTimestamp
from tests.builders import World, make_cluster_queue, make_condition, make_workload, with_conditions
from tests.examples import trying

EARLIEST_END = Ordering(mode=OrderingMode.EARLIEST_EXPECTED_END, age_seconds=604_800)


@st.composite
def waiting(draw: st.DrawFn) -> tuple[Workload, ...]:
    """Draw pending Workloads without run times; several were created or evicted in the same second."""
    found = []
    for number in range(draw(st.integers(2, 6))):
        created_at = draw(st.integers(0, 5))
        workload = make_workload(f"w{number}", at=created_at, priority=draw(st.integers(0, 1)))
        reason = draw(st.sampled_from([None, None, *EvictionReason]))
        if reason is not None:
            evicted_at = created_at + draw(st.integers(0, 5))
            evicted = make_condition(ConditionType.EVICTED, reason=reason, at=evicted_at)
            workload = with_conditions(workload, evicted)
        found.append(workload)
    return tuple(found)


def order(workloads: tuple[Workload, ...], timestamp: RequeuingTimestamp, *policies: Any) -> list[str]:
    """Return the Workloads in the order in which they are tried."""
    world = World(EngineSettings(requeuing_timestamp=timestamp))
    return world.put(*policies, make_cluster_queue(quota=1), *workloads).active()


@trying()
@given(waiting(), st.sampled_from(RequeuingTimestamp))
def test_without_run_times_the_earliest_expected_end_first_is_kueues_order(
    workloads: tuple[Workload, ...], timestamp: RequeuingTimestamp
) -> None:
    policy = AdmissionPolicy(name="policy", ordering=EARLIEST_END)

    assert order(workloads, timestamp, policy) == order(workloads, timestamp)
