"""Whole lives of Jobs against a small API server: every write is needed and none comes too early."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.decisions.api_writes import Purpose
from api.reasons import EvictionReason
from api.workload_status import WorkloadStatusEdit
from tests.admission.world import Object, World, context, encode, job_object
from tests.examples import trying

SERVERS = [
    pytest.param(True, id="a server that clears the start time itself"),
    pytest.param(False, id="an older server"),
]


def started_world(**options: Any) -> tuple[World, str]:
    """Return a world in which Job j runs with two pods, and its Workload's name."""
    world = World(**options)
    world.add(job_object())
    world.settle()
    name = world.only_workload()
    world.admit(name)
    world.settle()
    world.run_job_controller()
    world.settle()
    return world, name


def conditions(world: World, name: str) -> dict[str, tuple[bool, str]]:
    """Return status and reason of a Workload's conditions."""
    workload, _ = world.workload(name)
    return {c.type: (c.status, c.reason) for c in workload.conditions.values()}


def test_a_job_is_queued_admitted_started_and_finished() -> None:
    world = World()
    world.add(job_object())

    assert world.settle() == [Purpose.CREATE_WORKLOAD]
    name = world.only_workload()
    world.admit(name)
    assert world.settle() == [Purpose.START_JOB]
    world.run_job_controller(ready=1)
    assert world.settle() == []
    world.run_job_controller()
    assert world.settle() == [Purpose.SYNC_PODS]
    world.end_job("j")
    assert world.settle() == [Purpose.FINISH, Purpose.REMOVE_FINALIZER]

    assert conditions(world, name)["Finished"] == (True, "Succeeded")
    assert conditions(world, name)["PodsReady"] == (True, "Started")
    assert [event.reason for event in world.events] == [
        "CreatedWorkload",
        "QuotaReserved",
        "Admitted",
        "Started",
        "FinishedWorkload",
    ]


def test_a_started_job_carries_what_its_admission_says() -> None:
    world, name = started_world()

    template = world.job()["spec"]["template"]

    assert template["spec"]["nodeSelector"] == {"zone": "a"}
    assert template["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": name}
    assert template["metadata"]["labels"] == {
        "job-name": "j",
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": "job-uid",
        "team": "a",
        "kueue.x-k8s.io/podset": "main",
        "kueue.x-k8s.io/managed": "true",
        "kueue.x-k8s.io/local-queue-name": "lq",
        "kueue.x-k8s.io/cluster-queue-name": "cq",
    }


@pytest.mark.parametrize("is_modern", SERVERS)
def test_a_preempted_job_stops_before_its_quota_is_released_and_runs_again(is_modern: bool) -> None:
    world, name = started_world(is_modern=is_modern)
    original = job_object()["spec"]["template"]

    world.evict(name)
    assert world.settle() == [Purpose.STOP_JOB]
    world.run_job_controller()
    clearing = [] if is_modern else [Purpose.CLEAR_START_TIME]
    assert world.settle() == [*clearing, Purpose.RESTORE_JOB, Purpose.RELEASE]

    assert world.job()["spec"]["template"] == original
    assert "kueue.x-k8s.io/stopping" not in world.job()["metadata"]["annotations"]
    assert conditions(world, name)["Requeued"] == (True, "Preempted")
    assert world.workload(name)[0].admission is None

    world.admit(name)
    assert world.settle() == [Purpose.START_JOB]
    assert conditions(world, name)["Evicted"] == (False, "QuotaReserved")


def test_a_job_that_still_has_pods_keeps_its_quota() -> None:
    world, name = started_world()

    world.evict(name)
    world.settle()

    assert world.job()["spec"]["suspend"] is True
    assert world.settle() == []
    assert world.workload(name)[0].admission is not None


def test_a_job_created_running_is_stopped_and_queued() -> None:
    world = World()
    world.add(job_object(suspend=False))

    assert world.settle() == [Purpose.STOP_JOB, Purpose.CREATE_WORKLOAD]
    assert world.job()["spec"]["suspend"] is True


@pytest.mark.parametrize("is_modern", SERVERS)
def test_a_job_created_running_and_already_started_still_gets_its_flavor(is_modern: bool) -> None:
    world = World(is_modern=is_modern)
    world.add(job_object(suspend=False))
    world.run_job_controller()
    world.settle()
    world.run_job_controller()
    world.settle()

    world.admit(world.only_workload())
    world.settle()

    assert world.job()["spec"]["suspend"] is False
    assert world.job()["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a"}


def test_a_partly_admitted_job_runs_with_fewer_pods_and_gets_its_number_back() -> None:
    world = World()
    fields = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    annotations = {
        "kueue.x-k8s.io/job-min-parallelism": "2",
        "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
    }
    world.add(job_object(annotations=annotations, **fields))
    world.settle()
    name = world.only_workload()

    world.admit(name, count=3)
    world.settle()
    assert (world.job()["spec"]["parallelism"], world.job()["spec"]["completions"]) == (3, 3)

    world.run_job_controller()
    world.evict(name)
    world.settle()
    world.run_job_controller()
    world.settle()
    assert (world.job()["spec"]["parallelism"], world.job()["spec"]["completions"]) == (4, 4)


def test_a_waiting_job_that_is_edited_is_queued_as_it_now_is() -> None:
    world = World()
    world.add(job_object())
    world.settle()

    world.edit("Job", "j", lambda job: job["spec"].update(parallelism=1))
    assert world.settle() == [Purpose.UPDATE_WORKLOAD]
    world.edit("Job", "j", lambda job: job["spec"]["template"]["spec"].update(nodeSelector={"gpu": "h100"}))
    assert world.settle() == [Purpose.UPDATE_WORKLOAD]

    (pod_set,) = world.objects["Workload", world.only_workload()]["spec"]["podSets"]
    assert pod_set["count"] == 1
    assert pod_set["template"]["spec"]["nodeSelector"] == {"gpu": "h100"}


def test_a_running_job_that_is_resized_is_stopped_and_queued_again() -> None:
    world, old = started_world()

    world.edit("Job", "j", lambda job: job["spec"].update(parallelism=1))
    assert world.settle() == [Purpose.STOP_JOB]
    world.run_job_controller()

    assert world.settle() == [
        Purpose.RESTORE_JOB,
        Purpose.DELETE_WORKLOAD,
        Purpose.REMOVE_FINALIZER,
        Purpose.CREATE_WORKLOAD,
    ]
    workload, _ = world.workload(old)
    assert (workload.pod_sets[0].count, workload.admission) == (1, None)


def test_a_deleted_job_takes_its_workload_with_it() -> None:
    world, _ = started_world()

    world.delete("Job", "j")

    assert world.settle() == [Purpose.REMOVE_FINALIZER]
    assert world.objects == {}


def test_a_workload_deleted_under_its_running_job_stops_it_first() -> None:
    world, name = started_world()

    world.delete("Workload", name)
    assert world.settle() == [Purpose.STOP_JOB]
    world.run_job_controller()

    assert world.settle() == [Purpose.RESTORE_JOB, Purpose.REMOVE_FINALIZER, Purpose.CREATE_WORKLOAD]
    assert world.job()["spec"]["template"] == job_object()["spec"]["template"]


def test_a_job_that_leaves_its_queue_while_waiting_loses_its_workload() -> None:
    world = World()
    world.add(job_object())
    world.settle()

    world.edit("Job", "j", lambda job: job["metadata"]["labels"].clear())

    assert world.settle() == [Purpose.DELETE_WORKLOAD, Purpose.REMOVE_FINALIZER]
    assert list(world.objects) == [("Job", "j")]


def test_a_job_that_moves_to_another_queue_is_waiting_there() -> None:
    world = World()
    world.add(job_object())
    world.settle()
    labels = {"kueue.x-k8s.io/queue-name": "other", "kueue.x-k8s.io/max-exec-time-seconds": "60"}

    world.edit("Job", "j", lambda job: job["metadata"]["labels"].update(labels))

    assert world.settle() == [Purpose.UPDATE_WORKLOAD]
    workload, _ = world.workload(world.only_workload())
    assert (workload.queue_name, workload.maximum_execution_time_seconds) == ("other", 60)


def test_a_prebuilt_workload_is_adopted_and_its_job_runs_on_it() -> None:
    donor = World()
    donor.add(job_object())
    donor.settle()
    built = copy.deepcopy(donor.objects["Workload", donor.only_workload()])
    built["metadata"] = {"name": "built", "namespace": "team", "uid": "w", "resourceVersion": "1"}
    world = World()
    world.add(job_object(labels={"kueue.x-k8s.io/prebuilt-workload-name": "built"}))
    assert world.settle() == []

    world.add(built)
    assert world.settle() == [Purpose.ADOPT_WORKLOAD]
    world.admit("built")

    assert world.settle() == [Purpose.START_JOB]


def test_a_prebuilt_workload_that_does_not_fit_is_finished_out_of_sync() -> None:
    donor = World()
    donor.add(job_object(parallelism=1))
    donor.settle()
    built = copy.deepcopy(donor.objects["Workload", donor.only_workload()])
    built["metadata"] = {"name": "built", "namespace": "team", "uid": "w", "resourceVersion": "1"}
    world = World()
    world.add(built)
    world.add(job_object(labels={"kueue.x-k8s.io/prebuilt-workload-name": "built"}))

    assert world.settle() == [Purpose.ADOPT_WORKLOAD, Purpose.FINISH]
    assert conditions(world, "built")["Finished"] == (True, "OutOfSync")


def test_a_workload_without_any_job_lives_the_same_life() -> None:
    donor = World()
    donor.add(job_object())
    donor.settle()
    alone: Object = copy.deepcopy(donor.objects["Workload", donor.only_workload()])
    alone["metadata"] = {"name": "alone", "namespace": "team", "uid": "w", "resourceVersion": "1"}
    world = World()
    world.add(alone)

    world.admit("alone")
    assert world.settle() == []
    assert "PodsReady" not in conditions(world, "alone")
    world.evict("alone")
    assert world.settle() == []
    assert "admission" in world.objects["Workload", "alone"]["status"], "nothing says yet that it has stopped"
    release = WorkloadStatusEdit(encode(world.objects["Workload", "alone"]), now=world.now)
    release.release()
    world.add(msgspec.json.decode(release.to_bytes()))
    assert conditions(world, "alone")["Requeued"] == (True, "Preempted")
    world.admit("alone")
    world.delete("Workload", "alone")
    assert world.objects == {}


def test_an_unmanaged_job_is_never_touched() -> None:
    world = World()
    world.add(job_object(labels={"kueue.x-k8s.io/queue-name": None}, suspend=False))
    before = encode(world.job())

    assert world.settle() == []
    assert encode(world.job()) == before


EDITS: dict[str, Any] = {
    "suspend": lambda job: job["spec"].update(suspend=True),
    "unsuspend": lambda job: job["spec"].update(suspend=False),
    "shrink": lambda job: job["spec"].update(parallelism=1),
    "grow": lambda job: job["spec"].update(parallelism=3),
    "leave": lambda job: job["metadata"]["labels"].pop("kueue.x-k8s.io/queue-name", None),
    "join": lambda job: job["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "lq"}),
    "break": lambda job: job["metadata"]["labels"].update({"kueue.x-k8s.io/queue-name": "No Name"}),
}
STEPS = [*EDITS, "controller", "admit", "evict", "evict twice", "delete workload", "later", "end"]


def play(world: World, step: str) -> None:
    """Let a user, the cycle, the Job controller or time do something, where it can be done now."""
    names = [name for kind, name in world.objects if kind == "Workload"]
    if step in EDITS:
        world.edit("Job", "j", EDITS[step])
    elif step == "controller":
        world.run_job_controller()
    elif step == "end":
        world.end_job("j")
    elif step == "later":
        world.now += 120
    for name in names:
        workload, _ = world.workload(name)
        is_open = not workload.is_finished and workload.deleted_at is None
        if step == "admit" and is_open and workload.admission is None and workload.active:
            world.admit(name)
        elif step.startswith("evict") and is_open and workload.is_admitted and not workload.is_evicted:
            is_timeout = step == "evict twice"
            world.evict(name, EvictionReason.PODS_READY_TIMEOUT if is_timeout else EvictionReason.PREEMPTED)
        elif step == "delete workload" and is_open:
            world.delete("Workload", name)


@trying(150)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=12), is_modern=st.booleans())
def test_whatever_happens_it_comes_to_rest_and_no_managed_job_runs_unadmitted(
    steps: list[str], is_modern: bool
) -> None:
    world = World(is_modern=is_modern, job_context=context())
    world.add(job_object())
    for step in ["none", *steps]:
        play(world, step)
        world.settle()

        assert [action for action in world.look() if hasattr(action, "verb")] == []
        job = world.job()
        is_queued = "kueue.x-k8s.io/queue-name" in job["metadata"]["labels"]
        is_ended = any(c["type"] == "Complete" for c in job["status"].get("conditions", ()))
        if is_queued and not is_ended and not job["spec"]["suspend"]:
            assert any(workload.is_admitted for workload, _ in world.workloads())
