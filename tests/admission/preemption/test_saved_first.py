"""A preempted Workload that reports checkpoints goes before others of equal priority until it runs again.

older     waits since 10 and has never run
victim    came at 20, was preempted at 10,000 and reported a checkpoint 100 s before that
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from api import keys
from api.parsing.times import to_rfc3339
from api.policy import AdmissionPolicy, Backfill, Ordering, OrderingMode, PreemptionRules
from api.queueing import Preemption, PreemptionPolicy
from api.reasons import ConditionType
from api.workload import Workload
from tests.builders import (
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_condition,
    make_workload,
    with_conditions,
)

EVICTED_AT = 10_000.0
INTERVAL = {keys.CHECKPOINT_INTERVAL_SECONDS: "600"}


def reported(at: float) -> Mapping[str, str]:
    """Return what is said of a checkpoint of this instant."""
    return INTERVAL | {keys.CHECKPOINT_TIME: to_rfc3339(at)}


def victim(annotations: Mapping[str, str], *, reason: str = "Preempted", priority: int = 0) -> Workload:
    workload = make_workload("victim", at=20, priority=priority, annotations=dict(annotations))
    return with_conditions(workload, make_condition(ConditionType.EVICTED, reason=reason, at=EVICTED_AT))


def make_world(policy: AdmissionPolicy | None = None, **section: Any) -> World:
    named = policy or AdmissionPolicy(name="policy", preemption=PreemptionRules(**section))
    # One place, so that the first one has it.
    return World(now=50_000.0).put(named, make_cluster_queue(quota=1), make_workload("older", at=10))


@pytest.mark.parametrize(
    ("workload", "first"),
    [
        pytest.param(victim(reported(9900)), "victim", id="that had saved shortly before"),
        pytest.param(victim(reported(10_030)), "victim", id="that saved on its way out"),
        pytest.param(victim(reported(90_000)), "older", id="that reports a checkpoint to come"),
        pytest.param(victim({}), "older", id="that reports nothing"),
        pytest.param(victim(INTERVAL), "older", id="that has never saved"),
        pytest.param(victim({keys.CHECKPOINT_TIME: "noon"}), "older", id="that reports an unreadable time"),
        pytest.param(victim(reported(8700)), "older", id="whose checkpoints had stopped"),
        pytest.param(
            victim(reported(9900), reason="PodsReadyTimeout"), "older", id="evicted for another reason"
        ),
        pytest.param(victim(reported(9900), priority=-1), "older", id="of a lower priority"),
    ],
)
def test_a_victim_comes_back_first(workload: Workload, first: str) -> None:
    assert admits(make_world().put(workload).settle()) == [first]


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(AdmissionPolicy(name="policy"), id="without rules of preemption, as in Kueue"),
        pytest.param(
            AdmissionPolicy(name="policy", preemption=PreemptionRules(saved_first=False)), id="switched off"
        ),
        pytest.param(
            AdmissionPolicy(name="policy", preemption=PreemptionRules(), backfill=Backfill()),
            id="beside promised starts",
        ),
        pytest.param(
            AdmissionPolicy(
                name="policy",
                preemption=PreemptionRules(),
                ordering=Ordering(mode=OrderingMode.SHORTEST_PREDICTED),
            ),
            id="ordered by something else than age",
        ),
    ],
)
def test_its_age_alone_counts(policy: AdmissionPolicy) -> None:
    assert admits(make_world(policy).put(victim(reported(9900))).settle()) == ["older"]


def test_its_age_alone_counts_where_the_older_would_stop_it_again() -> None:
    by_age = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
    world = make_world().put(make_cluster_queue(quota=1, preemption=by_age), victim(reported(9900)))

    decisions = world.settle()

    assert (admits(decisions), evicts(decisions)) == (["older"], {})


def test_its_queues_preemption_counts_as_soon_as_it_says_so() -> None:
    by_age = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
    world = make_world().put(make_cluster_queue(quota=0, preemption=by_age), victim(reported(9900)))
    world.settle()

    world.put(make_cluster_queue(quota=1))

    assert admits(world.settle()) == ["victim"]


def test_a_checkpoint_that_is_reported_while_it_waits_counts_at_once() -> None:
    world = make_world().put(make_cluster_queue(quota=0), victim(INTERVAL))
    world.settle()

    world.put(victim(reported(10_030)), make_cluster_queue(quota=1))

    assert admits(world.settle()) == ["victim"]


def test_the_policy_counts_as_soon_as_it_says_so() -> None:
    world = make_world(saved_first=False).put(make_cluster_queue(quota=0), victim(reported(9900)))
    world.settle()

    world.put(AdmissionPolicy(name="policy", preemption=PreemptionRules()), make_cluster_queue(quota=1))

    assert admits(world.settle()) == ["victim"]
