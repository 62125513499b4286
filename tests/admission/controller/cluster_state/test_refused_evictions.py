"""Evictions that the API server refuses though every budget allows them, by a StatefulSet of inference."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from api.kube.errors import KubeError, ServerError
from tests.admission.controller.grouped import MEMBERS
from tests.admission.controller.serving import ShardVictims

ALLOWED = "berth.dev/DisruptionAllowed"
# Ten minutes from the refusal, by which the preemption has been taken back.
SPARED_SECONDS = 600


@pytest.fixture
def scene() -> Iterator[ShardVictims]:
    """Give a scene in which the two replicas of `low` serve, and no budget keeps them."""
    victims = ShardVictims()
    victims.submit_group()
    victims.run_for(100)
    assert victims.serving() == 2
    yield victims
    victims.close()


def waits_for(scene: ShardVictims) -> str:
    """Return the message of the Workload of `high`."""
    conditions = scene.workload("high")["status"]["conditions"]
    return str(next(one for one in conditions if one["type"] == "QuotaReserved")["message"])


@pytest.mark.parametrize(
    ("error", "says"),
    [
        pytest.param(
            None, 'admission webhook "w" denied the request: it drains', id="a webhook that denies it"
        ),
        pytest.param(
            KubeError("move it first", status=429), "move it first", id="a webhook that asks for patience"
        ),
        pytest.param(
            ServerError("failed calling webhook", status=500),
            "failed calling webhook",
            id="a webhook that cannot be asked",
        ),
    ],
)
def test_a_group_serves_on_and_says_what_keeps_it_by(
    scene: ShardVictims, error: KubeError | None, says: str
) -> None:
    uids = scene.uids()
    scene.refuse(*MEMBERS, error=error)

    scene.submit("high", priority="high")
    scene.run_for(30)

    assert (scene.serving(), scene.uids()) == (2, uids)
    condition = scene.condition(ALLOWED)
    assert (condition["status"], condition["reason"]) == ("False", "EvictionRefused")
    assert re.fullmatch(f"The API server refuses to evict Pod team/low-[01]: {says}", condition["message"])
    assert "EvictionHeldBack" in scene.events()


def test_a_group_goes_as_soon_as_it_is_refused_no_more(scene: ShardVictims) -> None:
    scene.refuse(*MEMBERS)
    scene.submit("high", priority="high")
    scene.run_for(20)

    scene.refuse()
    scene.run_for(40)

    assert scene.is_running("high")
    assert scene.evictions["low"] == 1
    assert scene.condition(ALLOWED) == {}


@pytest.mark.parametrize("trouble", [False, True], ids=["", "though the controller dies meanwhile"])
def test_a_preemption_that_is_refused_for_a_minute_is_taken_back(scene: ShardVictims, trouble: bool) -> None:
    uids = scene.uids()
    scene.refuse(*MEMBERS)
    scene.submit("high", priority="high")
    scene.run_for(30)
    assert scene.condition("Evicted")["status"] == "True"
    if trouble:
        scene.replace_leader()

    scene.run_for(60)

    assert (scene.serving(), scene.uids()) == (2, uids)
    assert scene.is_running("low")
    assert scene.condition("Evicted")["status"] == "False"
    assert scene.condition(ALLOWED)["reason"] == "EvictionRefused"
    assert "EvictionCancelled" in scene.events()
    assert "1 candidate for preemption is kept by the API server" in waits_for(scene)


def test_a_refused_victim_is_spared_for_some_minutes_and_tried_again_then(scene: ShardVictims) -> None:
    scene.refuse(*MEMBERS)
    scene.submit("high", priority="high")
    scene.run_for(SPARED_SECONDS - 60)
    assert scene.evictions["low"] == 1

    scene.refuse()
    scene.run_for(180)

    assert scene.is_running("high")
    assert scene.evictions["low"] == 2
    assert scene.condition(ALLOWED) == {}


def test_a_drained_queue_does_not_take_back_what_is_refused(scene: ShardVictims) -> None:
    scene.refuse(*MEMBERS)
    scene.cluster.edit(("ClusterQueue", "", "cq"), lambda one: one["spec"].update(stopPolicy="HoldAndDrain"))
    scene.run_for(200)

    assert scene.serving() == 2
    assert scene.condition("Evicted")["status"] == "True"
    scene.refuse()
    # The rest between two tries has grown meanwhile.
    scene.run_for(200)
    assert scene.members() == []
    assert scene.evictions["low"] == 1


def test_once_a_pod_of_a_group_has_gone_the_refused_ones_follow(scene: ShardVictims) -> None:
    uids = scene.uids()
    scene.refuse("low-1")

    scene.submit("high", priority="high")
    scene.run_for(30)

    assert scene.is_running("high")
    assert scene.uids().isdisjoint(uids)
