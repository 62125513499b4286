"""A victim is asked to save before it is stopped: the whole controller on virtual time, faults at every step.

The grace is two minutes. A pod learns of a request by its annotations, and reports a checkpoint by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from admission.decisions.api_writes import Purpose
from api.eviction import read_request
from api.parsing.times import to_rfc3339
from tests.admission.controller.victims import TROUBLES, Trouble, Victims, running_low


@pytest.fixture
def scene() -> Iterator[Victims]:
    """Give a scene in which `low` has run for a hundred seconds."""
    victims = running_low()
    yield victims
    victims.close()


def test_a_victim_is_asked_through_its_pod_and_keeps_running_and_its_quota(scene: Victims) -> None:
    scene.submit("high", priority="high")
    scene.run_for(30)

    request = read_request(scene.request("low"))
    assert request.deadline - request.requested_at == 120
    assert request.preemptor is not None
    assert "job-high" in request.preemptor.name
    assert set(scene.asked("low")) == {"requested-at", "deadline"}
    assert scene.is_running("low")
    assert "high" not in scene.starts
    assert scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome="requested") == 1


@pytest.mark.parametrize("on_pod", [pytest.param(True, id="pod"), pytest.param(False, id="Job")])
def test_it_is_preempted_as_soon_as_a_checkpoint_is_reported_on_its(on_pod: bool, scene: Victims) -> None:
    scene.submit("high", priority="high")
    scene.run_for(30)

    scene.save("low", on_pod=on_pod)
    scene.run_for(10)

    assert scene.is_running("high")
    assert scene.evictions["low"] == 1
    assert scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome="kept") == 1
    assert scene.request("low") == ""


def test_one_that_does_not_save_is_stopped_at_its_deadline(scene: Victims) -> None:
    scene.submit("high", priority="high")
    scene.run_for(118)
    assert scene.is_running("low")

    scene.run_for(12)

    assert scene.is_running("high")
    assert scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome="missed") == 1


def test_a_checkpoint_from_before_the_request_is_no_answer(scene: Victims) -> None:
    scene.save("low")
    scene.run_for(60)
    scene.submit("high", priority="high")

    scene.run_for(60)

    assert scene.asked("low")
    assert scene.is_running("low")


def test_it_runs_on_when_the_preemptor_goes(scene: Victims) -> None:
    scene.submit("high", priority="high")
    scene.run_for(30)
    assert scene.asked("low")

    scene.delete("high")
    scene.run_for(200)

    assert scene.is_running("low")
    assert (scene.asked("low"), scene.request("low")) == ({}, "")
    assert scene.evictions["low"] == 0
    assert scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome="cancelled") == 1


@pytest.mark.parametrize("priority", ["high", "higher"])
def test_a_second_preemptor_joins_the_wait_and_inherits_it_when_the_first_goes(
    priority: str, scene: Victims
) -> None:
    scene.add_priority_class("higher", 19)
    scene.submit("high", priority="high")
    scene.run_for(30)
    first, asked = read_request(scene.request("low")), scene.asked("low")
    scene.submit("second", priority=priority)
    scene.run_for(30)
    assert read_request(scene.request("low")) == first

    scene.delete("high")
    scene.run_for(30)

    passed_on = read_request(scene.request("low"))
    assert passed_on.preemptor is not None
    assert "job-second" in passed_on.preemptor.name
    assert (passed_on.requested_at, passed_on.deadline) == (first.requested_at, first.deadline)
    # No pod sees anything new, nor for a moment a request to stop saving: the pods save for any preemptor.
    assert scene.asked("low") == asked
    assert [write.purpose for write in scene.cluster.written].count(Purpose.REQUEST_CHECKPOINT) == 1
    assert "EvictionCancelled" not in scene.events()
    scene.run_for(45)
    assert scene.is_running("second")
    assert (scene.evictions["low"], scene.starts["low"]) == (1, 1)
    assert scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome="requested") == 1


def test_it_runs_on_when_the_last_of_two_preemptors_goes(scene: Victims) -> None:
    for name in ("high", "second"):
        scene.submit(name, priority="high")
        scene.run_for(10)

    for name in ("high", "second"):
        scene.delete(name)
        scene.run_for(10)
    scene.run_for(200)

    assert scene.is_running("low")
    assert (scene.asked("low"), scene.request("low"), scene.evictions["low"]) == ({}, "", 0)
    assert scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome="cancelled") == 1


def test_it_runs_on_when_the_remaining_preemptor_may_not_take_its_quota(scene: Victims) -> None:
    scene.submit("high", priority="high")
    scene.submit("equal")
    scene.run_for(30)

    scene.delete("high")
    scene.run_for(200)

    assert scene.is_running("low")
    assert (scene.asked("low"), scene.request("low"), scene.evictions["low"]) == ({}, "", 0)


@pytest.mark.parametrize(
    "is_flushed", [pytest.param(False, id="dies"), pytest.param(True, id="loses its store")]
)
def test_a_wait_that_was_passed_on_ends_once_though_the_controller(is_flushed: bool, scene: Victims) -> None:
    if is_flushed:
        scene.flushes_after = Purpose.PASS_ON_EVICTION
    else:
        scene.dies_after = Purpose.PASS_ON_EVICTION
    for name in ("high", "second"):
        scene.submit(name, priority="high")
        scene.run_for(10)
    deadline = read_request(scene.request("low")).deadline

    scene.delete("high")
    scene.run_for(60)

    assert (scene.dies_after, scene.flushes_after) == (None, None), "the step was never reached"
    assert read_request(scene.request("low")).deadline == deadline
    scene.run_for(60)
    assert scene.is_running("second")
    assert (scene.evictions["low"], scene.starts["second"]) == (1, 1)


def test_one_need_takes_no_second_victim_while_the_first_saves() -> None:
    scene = Victims()
    for name in ("one", "two"):
        scene.submit(name, cpus=1, checkpoint_save_seconds=10)
    scene.run_for(100)

    scene.submit("high", priority="high", cpus=1)
    scene.run_for(60)

    assert sorted(bool(scene.asked(name)) for name in ("one", "two")) == [False, True]
    scene.run_for(120)
    assert scene.is_running("high")
    assert sum(scene.evictions.values()) == 1
    scene.close()


@pytest.mark.parametrize(
    ("preemption", "own"),
    [
        pytest.param({"graceSeconds": 0}, {"checkpoint_save_seconds": 10}, id="the policy gives no grace"),
        pytest.param({"graceSeconds": 60}, {"checkpoint_save_seconds": 10}, id="pods would notice too late"),
        pytest.param({}, {}, id="it says nothing of checkpoints"),
        pytest.param({}, {"checkpoint_save_seconds": 130}, id="it cannot save within the grace"),
        pytest.param(
            {},
            {"checkpoint_save_seconds": 10, "workload_type": "inference"},
            id="inference keeps no progress",
        ),
    ],
)
def test_it_is_stopped_at_once_where(preemption: dict[str, int], own: dict[str, Any]) -> None:
    scene = Victims(**preemption)
    scene.submit("low", **own)
    scene.run_for(100)

    scene.submit("high", priority="high")
    scene.run_for(10)

    assert scene.is_running("high")
    scene.close()


def test_one_that_has_just_saved_is_stopped_at_once(scene: Victims) -> None:
    scene.save("low", on_pod=False)
    scene.run_for(5)

    scene.submit("high", priority="high")
    scene.run_for(10)

    assert scene.is_running("high")


@pytest.mark.parametrize("is_kept", [pytest.param(True, id="comes"), pytest.param(False, id="does not come")])
def test_one_whose_next_checkpoint_is_near_is_spared_until_it(is_kept: bool) -> None:
    scene = Victims()
    scene.submit("low", checkpoint_save_seconds=5, checkpoint_interval_seconds=300)
    scene.run_for(100)
    scene.save("low", on_pod=False)
    scene.run_for(280)

    scene.submit("high", priority="high")
    scene.run_for(20)
    assert (scene.asked("low"), scene.is_running("low")) == ({}, True)
    if is_kept:
        scene.save("low", on_pod=False)
    scene.run_for(20)

    # One that does not keep to its interval is asked with what is left of the time.
    assert scene.is_running("high") is is_kept
    assert is_kept or scene.asked("low")
    scene.run_for(100)
    assert scene.is_running("high")
    assert scene.evictions["low"] == 1
    scene.close()


def test_lost_work_is_counted_in_seconds_and_money(scene: Victims) -> None:
    price = {"berth.dev/cost-per-device-hour": "36"}
    scene.annotate(("ResourceFlavor", "", "default"), price)
    scene.save("low")
    scene.run_for(60)
    scene.submit("high", priority="high")
    scene.run_for(130)

    labels = {"cluster_queue": "cq", "reason": "Preempted"}
    assert 170 < scene.count("berth_evicted_device_seconds_lost_total", **labels) < 200
    # It has no devices: its work counts as one, and costs nothing.
    assert scene.count("berth_evicted_cost_lost_total", **labels) == 0


def test_a_victim_that_reports_checkpoints_gets_an_event_with_its_loss(scene: Victims) -> None:
    scene.save("low", on_pod=False)
    scene.run_for(60)
    saved_at = scene.workload("low")["metadata"]["annotations"]["berth.dev/checkpoint-time"]
    scene.submit("high", priority="high")
    scene.run_for(130)

    assert scene.events().count("WorkLost") == 1
    note = scene.leader.recorder.notes["WorkLost"]
    lost = scene.count("berth_evicted_device_seconds_lost_total", cluster_queue="cq", reason="Preempted")
    assert note == f"It resumes from its checkpoint of {saved_at}; {lost:.0f} s of work on 1 device are lost"


def test_a_victim_without_checkpoints_gets_no_event_of_its_loss() -> None:
    scene = Victims()
    scene.submit("low")
    scene.run_for(100)
    scene.submit("high", priority="high")
    scene.run_for(10)

    assert scene.is_running("high")
    assert "WorkLost" not in scene.events()
    scene.close()


def test_a_price_that_is_none_is_named_on_the_flavor(scene: Victims) -> None:
    scene.annotate(("ResourceFlavor", "", "default"), {"berth.dev/cost-per-device-hour": "cheap"})
    scene.run_for(5)

    assert ("default", "InvalidSpec") in scene.leader.recorder.events


def test_a_deadline_that_an_administrator_moves_reaches_the_pod(scene: Victims) -> None:
    scene.submit("high", priority="high")
    scene.run_for(30)
    request = json.loads(scene.request("low"))
    request["deadline"] = to_rfc3339(scene.loop.now() + 40)

    scene.annotate_workload("low", json.dumps(request))
    scene.run_for(5)

    assert scene.asked("low")["deadline"] == request["deadline"]


def test_the_preemptor_is_recorded_on_the_victim_until_the_hold_is_over(scene: Victims) -> None:
    scene.submit("high", priority="high")
    scene.run_for(30)

    def stop(queue: Any) -> None:
        queue["spec"]["stopPolicy"] = "Hold"

    scene.cluster.edit(("ClusterQueue", "", "cq"), stop)
    scene.save("low")
    scene.run_for(60)
    assert not scene.is_running("low")
    assert read_request(scene.request("low")).preemptor is not None

    scene.run_for(300)

    assert scene.request("low") == ""


STEPS = [
    pytest.param(Purpose.REQUEST_EVICTION, id="the request is on the Workload"),
    pytest.param(Purpose.REQUEST_CHECKPOINT, id="the pod is asked"),
    pytest.param(Purpose.EVICT, id="it is evicted"),
    pytest.param(Purpose.STOP_JOB, id="its Job is suspended"),
    pytest.param(Purpose.RELEASE, id="its quota is given back"),
    pytest.param(Purpose.CLEAR_EVICTION, id="the request is taken off"),
]


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("step", STEPS)
def test_an_eviction_ends_once_though_the_controller_fails_when(
    step: Purpose, trouble: Trouble, scene: Victims
) -> None:
    scene.preempt_through(trouble, step)

    assert (scene.starts["low"], scene.starts["high"]) == (1, 1)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Purpose.REQUEST_EVICTION, id="the request is on the Workload"),
        pytest.param(Purpose.REQUEST_CHECKPOINT, id="the pod is asked"),
        pytest.param(Purpose.CANCEL_EVICTION, id="the request is taken back"),
    ],
)
def test_no_request_that_was_taken_back_is_left_though_the_controller_dies_when(
    step: Purpose, scene: Victims
) -> None:
    scene.dies_after = step
    scene.submit("high", priority="high")
    scene.run_for(30)

    scene.delete("high")
    scene.run_for(100)

    assert scene.dies_after is None
    assert (scene.asked("low"), scene.request("low")) == ({}, "")
    assert scene.is_running("low")
    assert scene.evictions["low"] == 0


@pytest.mark.parametrize(
    "value",
    ["", "{", "[]", '{"reason": "Preempted"}', '{"reason": 1}', '{"reason": "Hunger", "requestedAt": "now"}'],
)
def test_a_request_that_cannot_be_read_asks_nothing_and_is_named(value: str, scene: Victims) -> None:
    scene.annotate_workload("low", value)
    scene.run_for(5)

    assert scene.request("low") == ""
    assert scene.is_running("low")
    assert "EvictionUnreadable" in scene.events()
    assert scene.count("berth_unreadable_objects_total", kind="berth.dev/eviction") == 1


def test_a_checkpoint_that_a_pod_reports_itself_reaches_its_workload(scene: Victims) -> None:
    scene.save("low", on_pod=False)
    scene.run_for(60)

    scene.save("low", on_pod=True)
    scene.run_for(5)

    pod = scene.cluster.objects["Pod", "team", "low-pod"]["metadata"]["annotations"]
    annotations = scene.workload("low")["metadata"]["annotations"]
    assert annotations["berth.dev/checkpoint-time"] == pod["berth.dev/checkpoint-time"]


def saving_at_sigterm() -> Victims:
    victims = Victims()
    victims.submit("low", checkpoint_save_seconds=10, checkpoint_on_sigterm="true")
    victims.run_for(100)
    victims.submit("high", priority="high")
    victims.run_for(1)
    return victims


@pytest.mark.parametrize(
    ("is_kept", "lost"),
    [pytest.param(True, 0, id="saves on the way out"), pytest.param(False, 100, id="reports no checkpoint")],
)
def test_one_that_saves_at_sigterm_is_evicted_without_being_asked_and(is_kept: bool, lost: float) -> None:
    scene = saving_at_sigterm()
    assert (scene.evictions["low"], scene.request("low"), scene.asked("low")) == (1, "", {})
    if is_kept:
        scene.save("low", on_pod=False)
    scene.run_for(10)

    assert scene.is_running("high")
    outcomes = {word: _saves(scene, word) for word in ("requested", "kept", "missed", "cancelled")}
    assert outcomes == {"requested": 0, "kept": is_kept, "missed": not is_kept, "cancelled": 0}
    labels = {"cluster_queue": "cq", "reason": "Preempted"}
    # What was done until it was asked to end, not until its pods were gone.
    assert scene.count("berth_evicted_device_seconds_lost_total", **labels) == pytest.approx(lost, abs=2)
    scene.close()


def _saves(scene: Victims, outcome: str) -> float:
    return scene.count("berth_eviction_saves_total", cluster_queue="cq", outcome=outcome)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Trouble(is_flushed=False, is_saving=False), id="dies"),
        pytest.param(Trouble(is_flushed=False, is_saving=False, is_hot=True), id="dies, a standby leads on"),
        pytest.param(Trouble(is_flushed=True, is_saving=False), id="loses its store"),
    ],
)
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Purpose.EVICT, id="it is evicted"),
        pytest.param(Purpose.STOP_JOB, id="its Job is suspended"),
        pytest.param(Purpose.RELEASE, id="its quota is given back"),
    ],
)
def test_one_that_saves_at_sigterm_is_preempted_once_though_the_controller_fails_when(
    step: Purpose, trouble: Trouble
) -> None:
    scene = Victims()
    scene.submit("low", checkpoint_save_seconds=10, checkpoint_on_sigterm="true")
    scene.run_for(100)

    scene.preempt_through(trouble, step)

    assert (scene.starts["low"], scene.starts["high"]) == (1, 1)
    assert Purpose.REQUEST_EVICTION not in [write.purpose for write in scene.cluster.written]
    scene.close()


def test_it_runs_on_when_the_preemptor_finds_room_elsewhere() -> None:
    scene = Victims()
    scene.submit("low", cpus=1, checkpoint_save_seconds=10)
    scene.submit("other", cpus=1, priority="high")
    scene.run_for(100)
    scene.submit("high", cpus=1, priority="high")
    scene.run_for(30)
    assert scene.asked("low")

    scene.finish("other")
    scene.run_for(200)

    assert scene.is_running("low")
    assert scene.is_running("high")
    assert (scene.asked("low"), scene.request("low"), scene.evictions["low"]) == ({}, "", 0)
    assert _saves(scene, "cancelled") == 1
    scene.close()
