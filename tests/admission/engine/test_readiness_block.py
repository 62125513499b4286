"""`waitForPodsReady.blockAdmission`: one admission at a time, each once the pods of all others are ready.

The rule is Kueue's: pkg/scheduler/scheduler.go, waitForPodsReadyIfNeeded.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from admission.engine.engine import EngineSettings
from admission.engine.settings import engine_settings
from api.config.loading import load_config
from api.queueing import Preemption, PreemptionPolicy, QueueingStrategy
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    evicts,
    finished,
    make_cluster_queue,
    make_condition,
    make_workload,
    messages,
    released,
    waits,
    with_conditions,
)


def make_world(*values: object) -> World:
    return World(settings=EngineSettings(blocks_admission=True)).put(*values)


def become_ready(world: World, name: str, *, is_ready: bool = True) -> None:
    condition = make_condition(ConditionType.PODS_READY, is_ready, at=world.now)
    world.put(with_conditions(world.get(name), condition))


def admit(world: World, *names: str) -> None:
    decisions = world.settle()
    world.confirm(decisions)
    assert admits(decisions) == [*names]


def test_the_next_workload_waits_until_the_pods_of_the_first_are_ready() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload("a"), make_workload("b", at=1))

    decisions = world.settle()
    world.confirm(decisions)

    assert admits(decisions) == ["a"]
    assert waits(decisions) == {"b": "WaitingForPodsReady"}
    assert messages(decisions) == {"b": "waiting for all admitted workloads to be in PodsReady condition"}
    become_ready(world, "a")
    admit(world, "b")


def test_without_the_setting_both_are_admitted() -> None:
    world = World().put(make_cluster_queue(quota=4), make_workload("a"), make_workload("b", at=1))

    assert admits(world.settle()) == ["a", "b"]


def test_one_of_two_heads_of_a_cycle_is_admitted() -> None:
    world = make_world(
        make_cluster_queue("q1", cohort="all", quota=4),
        make_cluster_queue("q2", cohort="all", quota=4),
        make_workload("a", queue="q1"),
        make_workload("b", queue="q2", at=1),
    )

    decisions = world.cycle()

    assert admits(decisions) == ["a"]
    assert waits(decisions) == {"b": "WaitingForPodsReady"}


@pytest.mark.parametrize("strategy", list(QueueingStrategy), ids=str)
def test_the_workload_that_has_waited_comes_before_one_of_higher_priority(strategy: QueueingStrategy) -> None:
    world = make_world(make_cluster_queue(quota=4, queueing_strategy=strategy), make_workload("a"))
    admit(world, "a")
    world.put(make_workload("b", at=1))
    assert waits(world.settle()) == {"b": "WaitingForPodsReady"}

    world.put(make_workload("c", priority=100, at=2))
    assert world.settle() == []
    become_ready(world, "a")
    admit(world, "b")

    become_ready(world, "b")
    admit(world, "c")


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda world: world.put(finished(world.get("a"))), id="it has finished"),
        pytest.param(lambda world: world.put(released(world.get("a"))), id="it gave its quota back"),
        pytest.param(
            lambda world: world.remove(Workload, WorkloadKey(NAMESPACE, "a")),
            id="it was deleted",
        ),
    ],
)
def test_a_workload_without_quota_blocks_nothing(end: Callable[[World], object]) -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload("a"))
    admit(world, "a")
    world.put(make_workload("b", at=-1))
    world.settle()

    end(world)

    assert admits(world.settle())[:1] == ["b"]


def test_pods_that_fail_again_block_admission_again() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload("a"))
    admit(world, "a")
    become_ready(world, "a")
    become_ready(world, "a", is_ready=False)

    world.put(make_workload("b", at=1))

    assert waits(world.settle()) == {"b": "WaitingForPodsReady"}


def test_when_the_one_that_waits_is_deleted_the_next_waits() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload("a"))
    admit(world, "a")
    world.put(make_workload("b", at=1), make_workload("c", at=2))
    world.settle()

    world.remove(Workload, WorkloadKey(NAMESPACE, "b"))

    assert waits(world.settle()) == {"c": "WaitingForPodsReady"}
    become_ready(world, "a")
    admit(world, "c")


def test_what_has_waited_and_no_longer_fits_does_not_keep_others_back() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload("a"))
    admit(world, "a")
    world.put(make_workload("b", gpus=3, at=1))
    assert waits(world.settle()) == {"b": "WaitingForPodsReady"}

    world.put(make_cluster_queue(quota=2), make_workload("c", at=2))
    become_ready(world, "a")

    decisions = world.settle()
    assert admits(decisions) == ["c"]
    assert waits(decisions)["b"] == "ExceedsMaxQuota"


def test_the_one_that_blocks_may_be_preempted() -> None:
    preemption = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = make_world(make_cluster_queue(quota=4, preemption=preemption), make_workload("a", gpus=4))
    admit(world, "a")

    world.put(make_workload("b", gpus=4, priority=100, at=1))

    assert list(evicts(world.settle())) == ["a"]


def test_nothing_is_evicted_for_one_that_comes_after_the_one_that_waits() -> None:
    preemption = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = make_world(
        make_cluster_queue("q1", quota=4),
        make_cluster_queue("q2", quota=4, preemption=preemption),
        make_workload("a", queue="q2", gpus=4, priority=-5),
    )
    admit(world, "a")

    world.put(make_workload("b", queue="q1", priority=10, at=1), make_workload("c", queue="q2", gpus=4, at=2))

    decisions = world.settle()
    assert not evicts(decisions)
    assert waits(decisions) == {"b": "WaitingForPodsReady", "c": "WaitingForPodsReady"}


def test_an_interrupted_cycle_leaves_the_one_that_has_waited_first() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload("a"))
    admit(world, "a")
    world.put(make_workload("b", at=1))
    world.settle()
    become_ready(world, "a")

    world.engine.begin_cycle(now=world.now).step()
    world.put(make_workload("c", priority=100, at=2))

    admit(world, "b")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("waitForPodsReady: {blockAdmission: true}", True, id="on"),
        pytest.param("waitForPodsReady: {timeout: 5m}", False, id="off by default"),
        pytest.param(
            "waitForPodsReady: {blockAdmission: true}\nfeatureGates: {DisableWaitForPodsReady: true}",
            False,
            id="off with waitForPodsReady",
        ),
    ],
)
def test_the_configuration_file_switches_it_on(text: str, want: bool) -> None:
    document = f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}\n"
    config = load_config(document, source="f.yaml")

    assert engine_settings(config).blocks_admission is want
    assert not any("blockAdmission" in said for said in config.unused())
