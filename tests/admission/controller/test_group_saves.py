"""A group of pods is asked to save before preemption, and preempted once, whatever fails at which step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.decisions.api_writes import Purpose
from tests.admission.controller.grouped import MEMBERS, GroupVictims
from tests.admission.controller.victims import TROUBLES, Trouble


@pytest.fixture
def scene() -> Iterator[GroupVictims]:
    """Give a scene in which the group `low` has run for a hundred seconds."""
    victims = GroupVictims()
    victims.submit_group()
    victims.run_for(100)
    assert victims.is_running("low")
    yield victims
    victims.close()


def test_all_its_pods_are_asked_and_the_first_report_ends_the_wait(scene: GroupVictims) -> None:
    scene.submit("high", priority="high")
    scene.run_for(30)
    assert set(scene.asked("low")) == {"checkpoint-requested-at", "checkpoint-deadline"}
    assert scene.is_running("low")

    scene.save("low")
    scene.run_for(10)

    assert scene.is_running("high")
    assert scene.members() == []
    assert scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome="kept") == 1


def test_a_group_that_does_not_save_is_stopped_at_its_deadline(scene: GroupVictims) -> None:
    scene.submit("high", priority="high")
    scene.run_for(118)
    assert scene.is_running("low")

    scene.run_for(12)

    assert scene.is_running("high")
    assert scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome="missed") == 1


STEPS = [
    pytest.param(Purpose.REQUEST_EVICTION, id="the request is on the Workload"),
    pytest.param(Purpose.REQUEST_CHECKPOINT, id="the first pod is asked"),
    pytest.param(Purpose.EVICT, id="it is evicted"),
    pytest.param(Purpose.SET_POD_CONDITION, id="the first pod gets the reason why it ends"),
    pytest.param(Purpose.STOP_POD, id="the first pod is deleted"),
    pytest.param(Purpose.RELEASE, id="its quota is given back"),
    pytest.param(Purpose.CLEAR_EVICTION, id="the request is taken off"),
]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("step", STEPS)
def test_it_is_preempted_once_though_the_controller_fails_when(
    step: Purpose, trouble: Trouble, scene: GroupVictims
) -> None:
    scene.preempt_through(trouble, step)

    assert scene.starts == {**dict.fromkeys(MEMBERS, 1), "high": 1}


def test_no_pod_is_left_with_a_request_that_was_taken_back(scene: GroupVictims) -> None:
    scene.dies_after = Purpose.CANCEL_EVICTION
    scene.submit("high", priority="high")
    scene.run_for(30)
    assert scene.asked("low")

    scene.delete("high")
    scene.run_for(100)

    assert scene.dies_after is None
    assert (scene.asked("low"), scene.request("low")) == ({}, "")
    assert scene.is_running("low")
    assert scene.evictions.get("low", 0) == 0
