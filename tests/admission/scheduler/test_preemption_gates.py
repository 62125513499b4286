"""A Workload whose preemption gates are closed has no others evicted for it, and blocks none behind it.

Source: Kueue, pkg/scheduler/scheduler.go, markPreemptionGated, and its case "Queue head is preemption gated".
"""

from __future__ import annotations

from dataclasses import replace

from admission.decisions.decision import Wait
from admission.engine.engine import EngineSettings
from api.queueing import Preemption, PreemptionPolicy, QueueingStrategy
from api.reasons import PREEMPTION_GATED, PendingReason
from api.workload import Workload
from tests.builders import World, admits, evicts, make_cluster_queue, make_workload, reserved

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
CLOSED = frozenset({"example.com/gate"})


def make_world(*, heeds_gates: bool = True, strategy: QueueingStrategy | None = None) -> World:
    """Return a world with 4 GPUs, 3 of them held by a Workload of low priority."""
    world = World(settings=EngineSettings(heeds_gates=heeds_gates))
    queue = make_cluster_queue(quota=4, preemption=LOWER)
    world.put(queue if strategy is None else replace(queue, queueing_strategy=strategy))
    return world.put(reserved(make_workload("low", gpus=3, priority=1)))


def make_gated(gpus: int) -> Workload:
    """Return a Workload of high priority whose gate is closed."""
    return make_workload("high", gpus=gpus, priority=9, closed_gates=CLOSED)


def test_a_gated_workload_evicts_none_and_those_behind_it_start() -> None:
    world = make_world().put(make_gated(2), make_workload("small", gpus=1, priority=1))

    decisions = world.settle()

    assert evicts(decisions) == {}
    assert admits(decisions) == ["small"]
    (wait,) = [one for one in decisions if isinstance(one, Wait) and one.key.name == "high"]
    assert (wait.reason, wait.message) == (PendingReason.ADMISSION_GATED, PREEMPTION_GATED)
    assert wait.is_preemption_gated


def test_a_gated_workload_that_needs_no_eviction_starts() -> None:
    assert admits(make_world().put(make_gated(1)).settle()) == ["high"]


def test_a_gate_that_opens_lets_the_eviction_happen() -> None:
    world = make_world().put(make_gated(2))
    assert evicts(world.settle()) == {}

    world.put(make_workload("high", gpus=2, priority=9))

    assert evicts(world.settle()) == {"low": "InClusterQueue"}


def test_without_the_feature_gates_of_kueue_no_preemption_is_held_back() -> None:
    assert evicts(make_world(heeds_gates=False).put(make_gated(2)).settle()) == {"low": "InClusterQueue"}


def test_a_gated_head_of_a_strict_queue_is_not_tried_for_ever() -> None:
    world = make_world(strategy=QueueingStrategy.STRICT_FIFO).put(make_gated(2))

    assert evicts(world.settle()) == {}
