"""A StatefulSet of inference is preempted whole, and its quota comes free when its pods are gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.decisions.api_writes import Purpose, Write
from tests.admission.controller.grouped import MEMBERS
from tests.admission.controller.serving import ShardVictims

ALLOWED = "berth.dev/DisruptionAllowed"


@pytest.fixture
def scene() -> Iterator[ShardVictims]:
    """Give a scene in which the two replicas of `low` have served for a hundred seconds."""
    victims = ShardVictims()
    victims.submit_group()
    victims.run_for(100)
    assert victims.serving() == 2
    yield victims
    victims.close()


def test_the_quota_of_an_evicted_group_comes_free_though_its_pods_are_not_created_again(
    scene: ShardVictims,
) -> None:
    scene.recreates = False

    scene.submit("high", priority="high")
    scene.run_for(20)

    assert scene.members() == []
    assert scene.is_running("high")
    # It waits for pods, and not for quota: no other Workload could use it.
    assert scene.condition("WaitingForReplacementPods")["status"] == "True"
    for name in MEMBERS:
        scene.cluster.create(scene.make_member(name))
    scene.finish("high")
    scene.run_for(20)
    assert scene.serving() == 2
    assert scene.condition("WaitingForReplacementPods")["status"] == "False"


# --- budgets that tighten between the decision and the evictions -------------------------------------------


def tighten(scene: ShardVictims, purpose: Purpose, *, allowed: int, unready: str = "") -> None:
    """Let the budget allow no more than this as soon as a write for the purpose has been made.

    `unready`: a pod that is ready no longer at that moment.
    """
    scene.allow(2)

    def act(write: Write) -> None:
        if write.purpose is purpose:
            scene.on_write = None
            scene.allow(allowed)
            if unready:
                scene.lose_readiness(unready)

    scene.on_write = act


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_group_whose_budget_tightens_after_the_decision_stays_whole_and_says_so(
    scene: ShardVictims, allowed: int
) -> None:
    uids = scene.uids()
    tighten(scene, Purpose.EVICT, allowed=allowed)

    scene.submit("high", priority="high")
    scene.run_for(50)

    assert (scene.serving(), scene.uids()) == (2, uids)
    condition = scene.condition(ALLOWED)
    assert (condition["status"], condition["reason"]) == ("False", "InsufficientPods")
    assert (
        f"PodDisruptionBudget team/low allows {allowed} of the group's 2 ready pods" in condition["message"]
    )
    assert "EvictionHeldBack" in scene.events()

    scene.allow(2)
    scene.run_for(10)
    assert scene.is_running("high")
    assert scene.uids().isdisjoint(uids)
    assert scene.condition(ALLOWED) == {}


@pytest.mark.parametrize("trouble", [False, True], ids=["", "though the controller dies meanwhile"])
def test_a_preemption_that_a_budget_holds_back_for_a_minute_is_taken_back(
    scene: ShardVictims, trouble: bool
) -> None:
    uids = scene.uids()
    tighten(scene, Purpose.EVICT, allowed=1)
    scene.submit("high", priority="high")
    scene.run_for(30)
    assert scene.condition("Evicted")["status"] == "True"
    if trouble:
        scene.replace_leader()

    scene.run_for(60)

    assert (scene.serving(), scene.uids()) == (2, uids)
    assert scene.is_running("low")
    assert [scene.condition(one)["status"] for one in ("Evicted", "Preempted")] == ["False", "False"]
    assert scene.condition(ALLOWED) == {}
    assert "EvictionCancelled" in scene.events()
    # Its condition says what keeps it waiting, and no victim leaves for it.
    (condition,) = (
        one for one in scene.workload("high")["status"]["conditions"] if one["type"] == "QuotaReserved"
    )
    assert condition["reason"] == "WaitingForQuota"
    assert "1 candidate for preemption is kept by a PodDisruptionBudget" in condition["message"]
    scene.run_for(100)
    assert scene.evictions["low"] == 1

    scene.allow(2)
    scene.run_for(20)
    assert scene.is_running("high")
    assert scene.uids().isdisjoint(uids)


def test_a_preemption_that_a_budget_held_back_is_not_taken_back_under_pods_that_end_slowly(
    scene: ShardVictims, monkeypatch: pytest.MonkeyPatch
) -> None:
    tighten(scene, Purpose.EVICT, allowed=1)
    scene.submit("high", priority="high")
    scene.run_for(30)
    assert scene.condition(ALLOWED)["status"] == "False"

    # Longer than the minute for which a preemption waits for its budgets.
    monkeypatch.setattr("tests.admission.controller.grouped.STOPPING_SECONDS", 90.0)
    scene.delete_members()
    scene.run_for(120)

    assert scene.is_running("high")
    assert "EvictionCancelled" not in scene.events()
    assert scene.evictions["low"] == 1


def test_a_drained_queue_does_not_take_back_what_a_budget_holds_back(scene: ShardVictims) -> None:
    scene.allow(1)
    scene.cluster.edit(("ClusterQueue", "", "cq"), lambda one: one["spec"].update(stopPolicy="HoldAndDrain"))
    scene.run_for(200)

    assert scene.serving() == 2
    assert scene.condition("Evicted")["status"] == "True"
    assert scene.evictions["low"] == 1
    scene.allow(2)
    scene.run_for(20)
    assert scene.members() == []


def test_a_group_that_the_server_refuses_as_a_whole_serves_on(scene: ShardVictims) -> None:
    uids = scene.uids()
    # After the last look at the budget, and before the first eviction.
    tighten(scene, Purpose.ALLOW_EVICTION, allowed=0)

    scene.submit("high", priority="high")
    scene.run_for(50)

    assert (scene.serving(), scene.uids()) == (2, uids)
    assert scene.condition(ALLOWED)["status"] == "False"


STEPS = [
    pytest.param(Purpose.EVICT, id="it is evicted"),
    pytest.param(Purpose.ALLOW_EVICTION, id="its pods may go"),
    pytest.param(Purpose.EVICT_POD, id="the first pod is evicted"),
    pytest.param(Purpose.RELEASE, id="its quota is given back"),
]


@pytest.mark.parametrize("is_flushed", [False, True], ids=["dies", "loses its store"])
@pytest.mark.parametrize("step", STEPS)
def test_a_group_under_a_budget_is_preempted_once_though_the_controller_fails_when(
    scene: ShardVictims, step: Purpose, is_flushed: bool
) -> None:
    scene.allow(2)
    if is_flushed:
        scene.flushes_after = step
    else:
        scene.dies_after = step

    scene.submit("high", priority="high")
    scene.run_for(50)

    assert (scene.dies_after, scene.flushes_after) == (None, None), "the step was never reached"
    assert scene.is_running("high")
    assert scene.evictions["low"] == 1
    # Two evictions were enough: the budget had no more.
    assert scene.ended_by() == [Purpose.EVICT_POD] * 2


@pytest.mark.parametrize("is_restarted", [False, True], ids=["", "though the controller dies meanwhile"])
def test_once_a_pod_of_a_group_has_gone_the_others_follow(scene: ShardVictims, is_restarted: bool) -> None:
    uids = scene.uids()
    # Not before the first has gone: a budget that lets only one of them go keeps both.
    tighten(scene, Purpose.EVICT_POD, allowed=0)
    if is_restarted:
        scene.dies_after = Purpose.EVICT_POD

    scene.submit("high", priority="high")
    scene.run_for(50)

    assert scene.is_running("high")
    assert scene.uids().isdisjoint(uids)
    assert sorted(scene.ended_by()) == [Purpose.EVICT_POD, Purpose.STOP_POD]


def test_a_pod_created_again_while_a_budget_keeps_its_group_serves_with_the_others(
    scene: ShardVictims,
) -> None:
    tighten(scene, Purpose.EVICT, allowed=1)
    scene.submit("high", priority="high")
    scene.run_for(20)

    scene.drain("low-1")
    scene.run_for(20)

    assert scene.serving() == 2
    assert scene.condition(ALLOWED)["status"] == "False"
    assert not scene.is_running("high")


def test_a_pod_of_a_group_that_another_client_evicts_is_created_again_with_the_groups_quota(
    scene: ShardVictims,
) -> None:
    uids = scene.uids()

    scene.drain("low-1")
    scene.run_for(20)

    assert scene.serving() == 2
    assert len(scene.uids() & uids) == 1
    assert scene.is_running("low")


def test_a_budget_that_counts_a_pod_which_is_not_ready_keeps_no_pod_for_it(scene: ShardVictims) -> None:
    tighten(scene, Purpose.EVICT, allowed=1, unready="low-1")

    scene.submit("high", priority="high")
    scene.run_for(50)

    assert scene.is_running("high")
