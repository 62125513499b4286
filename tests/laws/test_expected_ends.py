"""Where no Job declares its run time, the order of the recommended policy is Kueue's.

However the Workloads came to wait: new, preempted, back after a failed node, or by their own doing (pods that
did not become ready, a check that asked for a retry).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import given
from hypothesis import strategies as st

from admission.engine.engine import EngineSettings
from api.objects.policies import AdmissionPolicyObject
from api.policy import AdmissionPolicy
from api.policy_objects import to_admission_policy
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload
from queues.pending.ordering import RequeuingTimestamp
from tests.builders import World, make_cluster_queue, make_condition, make_workload, with_conditions
from tests.examples import trying

RECOMMENDED = Path(__file__).parents[2] / "deploy" / "policies" / "recommended.yaml"


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


def recommended() -> AdmissionPolicy:
    """Return the shipped policy."""
    text = msgspec.json.encode(yaml.safe_load(RECOMMENDED.read_text(encoding="utf-8")))
    return to_admission_policy(msgspec.json.decode(text, type=AdmissionPolicyObject))


def order(workloads: tuple[Workload, ...], timestamp: RequeuingTimestamp, *policies: Any) -> list[str]:
    """Return the Workloads in the order in which they are tried."""
    world = World(EngineSettings(requeuing_timestamp=timestamp))
    return world.put(*policies, make_cluster_queue(quota=1), *workloads).active()


@trying()
@given(waiting(), st.sampled_from(RequeuingTimestamp))
def test_without_run_times_the_recommended_order_is_kueues(
    workloads: tuple[Workload, ...], timestamp: RequeuingTimestamp
) -> None:
    assert order(workloads, timestamp, recommended()) == order(workloads, timestamp)
