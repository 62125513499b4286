"""The life of an elastic Job: its slices, look by look, while its number of pods changes.

Source: Kueue, pkg/workloadslicing, and its integration suite of jobs/job.
"""

from __future__ import annotations

from typing import Any

import pytest

from admission.decisions.api_writes import Purpose, Write
from admission.reconcile.job.context import JobSettings
from api import keys
from api.jobs.job_workload import workload_name
from api.jobs.owners.ray import RAY_CLUSTER
from tests.admission.world import UID, Object, World, context, job_object
from tests.owners import SAMPLES

ELASTIC = {keys.ELASTIC_JOB: "true"}


def make_world(labels: dict[str, str] | None = None, **fields: Any) -> World:
    """Return a world in which an elastic Job of two pods runs."""
    world = World(job_context=context(**fields))
    world.add(job_object(annotations=ELASTIC, completions=9, labels=labels or {}))
    world.settle()
    world.admit(world.only_workload())
    world.settle()
    world.run_job_controller()
    return world


def scale(world: World, pods: int) -> list[Any]:
    world.now += 1
    world.edit("Job", "j", lambda job: job["spec"].update(parallelism=pods))
    return world.settle()


def slices(world: World) -> list[tuple[int, str]]:
    """Return the number of pods of each slice, the oldest first, and how it stands."""
    found = sorted((one for one, _ in world.workloads()), key=lambda one: one.created_at)
    return [(one.pod_sets[0].count, _state(one)) for one in found]


def _state(workload: Any) -> str:
    finished = workload.conditions.get("Finished")
    if finished is not None and finished.status:
        return str(finished.reason)
    return "admitted" if workload.is_admitted else "waits"


def newest(world: World) -> str:
    return max((one for one, _ in world.workloads()), key=lambda one: one.created_at).key.name


def marks_of(world: World, name: str) -> dict[str, str]:
    found: dict[str, str] = world.objects["Workload", name]["metadata"]["annotations"]
    return found


def test_the_first_slice_names_itself_and_the_pods_get_a_gate() -> None:
    world = make_world()
    name = world.only_workload()

    template = world.job()["spec"]["template"]

    assert marks_of(world, name) == {keys.ELASTIC_JOB: "true", keys.SLICE_NAME: name}
    assert template["metadata"]["annotations"][keys.SLICE_NAME] == name
    assert template["spec"]["schedulingGates"] == [{"name": keys.ELASTIC_GATE}]


def test_one_that_is_created_running_gets_a_single_slice_by_the_generation_that_suspends_it() -> None:
    world = World()
    world.add(job_object(annotations=ELASTIC, suspend=False))

    assert [one.purpose for one in world.look() if isinstance(one, Write)] == [Purpose.STOP_JOB]

    world.settle()
    generation = world.job()["metadata"]["generation"]
    assert world.only_workload() == workload_name("Job", "batch", "j", UID, extra=str(generation))


def test_fewer_pods_are_counted_as_they_end() -> None:
    world = make_world()

    scale(world, 1)
    assert slices(world) == [(2, "admitted")]
    assert not world.job()["spec"]["suspend"]

    world.edit("Job", "j", lambda job: job["status"].update(active=1, ready=1, terminating=1))
    world.settle()
    assert slices(world) == [(2, "admitted")]

    world.edit("Job", "j", lambda job: job["status"].update(terminating=0))
    world.settle()
    assert slices(world) == [(1, "admitted")]


def test_pods_that_are_asked_for_again_before_they_end_keep_their_quota() -> None:
    world = make_world()

    scale(world, 1)
    scale(world, 2)

    assert slices(world) == [(2, "admitted")]


def test_a_smaller_slice_that_waits_counts_the_pods_that_have_yet_to_end() -> None:
    world = make_world()
    scale(world, 4)

    scale(world, 1)

    assert slices(world) == [(2, "admitted"), (2, "waits")]
    assert not world.job()["spec"]["suspend"]


def test_more_pods_wait_in_a_slice_while_the_job_runs_on() -> None:
    world = make_world()
    first = world.only_workload()

    scale(world, 4)

    assert slices(world) == [(2, "admitted"), (4, "waits")]
    assert not world.job()["spec"]["suspend"]
    marks = marks_of(world, newest(world))
    assert (marks[keys.SLICE_NAME], marks[keys.SLICE_REPLACEMENT_FOR]) == (first, f"team/{first}")
    # What the start has added to the template is no part of it.
    pod_sets = [world.objects["Workload", name]["spec"]["podSets"][0] for name in (first, newest(world))]
    assert [one["count"] for one in pod_sets] == [2, 4]
    assert pod_sets[0]["template"] == pod_sets[1]["template"]


def test_a_slice_that_waits_follows_the_job() -> None:
    world = make_world()
    scale(world, 4)

    scale(world, 3)

    assert slices(world) == [(2, "admitted"), (3, "waits")]


def test_an_admitted_slice_replaces_the_one_before_it() -> None:
    world = make_world()
    first = world.only_workload()
    scale(world, 4)

    world.admit(newest(world))
    world.settle()

    assert slices(world) == [(2, "WorkloadSliceReplaced"), (4, "admitted")]
    assert not world.job()["spec"]["suspend"]
    new, _ = world.workload(newest(world))
    who = f"(UID: {new.uid}, JobUID: job-uid)"
    message = f"Replaced to accommodate a workload {who} due to workload slice aggregation"
    assert world.workload(first)[0].conditions["Finished"].message == message
    events = [(one.reason, one.action, one.regarding.name) for one in world.events if one.note == message]
    assert events == [("WorkloadSliceReplaced", "Replaced", first)]
    # Nothing keeps it from being deleted.
    assert not world.workload(first)[0].has_finalizer


def test_pods_are_withdrawn_before_their_slice_was_admitted() -> None:
    world = make_world()
    scale(world, 4)

    scale(world, 2)

    # As in Kueue: the slice that waits asks for what the Job has already.
    assert slices(world) == [(2, "admitted"), (2, "waits")]


@pytest.mark.parametrize("has_other", [False, True], ids=["alone", "while another slice waits"])
def test_an_evicted_slice_stops_the_job_before_its_quota_is_free(has_other: bool) -> None:
    world = make_world()
    first = world.only_workload()
    if has_other:
        scale(world, 4)
    world.evict(first)

    world.settle()

    assert world.job()["spec"]["suspend"]
    assert world.workload(first)[0].admission is not None
    assert not world.workload(first)[0].is_finished

    world.run_job_controller()
    world.settle()

    assert slices(world) == ([(2, "WorkloadSliceReplaced"), (4, "waits")] if has_other else [(2, "waits")])
    assert keys.SLICE_NAME not in world.job()["spec"]["template"]["metadata"].get("annotations", {})
    world.admit(newest(world))
    world.settle()
    assert not world.job()["spec"]["suspend"]
    assert world.job()["spec"]["parallelism"] == (4 if has_other else 2)


def test_a_job_that_shrank_while_it_waited_starts_with_fewer_pods() -> None:
    world = World()
    world.add(job_object(annotations=ELASTIC))
    world.settle()

    scale(world, 1)
    world.admit(world.only_workload())
    world.settle()

    assert (slices(world), world.job()["spec"]["parallelism"]) == ([(1, "admitted")], 1)


def test_pods_that_have_ended_are_counted_again_before_there_are_fewer() -> None:
    world = make_world()

    def end(job: Object) -> None:
        job["spec"].update(parallelism=6, completions=6)

    world.now += 1
    world.edit("Job", "j", end)
    world.settle()
    world.admit(newest(world))
    world.settle()
    world.run_job_controller(succeeded=4)
    world.settle()
    assert world.workload(newest(world))[0].reclaimable == {"main": 4}

    written = scale(world, 3)

    # Two of the three still run: with four given back, quota of running pods would be free.
    assert world.workload(newest(world))[0].reclaimable == {"main": 1}
    assert written == [Purpose.SYNC_PODS, Purpose.UPDATE_WORKLOAD]
    assert slices(world)[-1] == (3, "admitted")


def test_without_the_gate_an_elastic_job_is_a_job_like_any_other() -> None:
    world = make_world(settings=JobSettings(has_slices=False))

    scale(world, 4)

    assert keys.SLICE_NAME not in marks_of(world, world.only_workload())
    assert world.job()["spec"]["suspend"]


def test_both_slices_get_another_priority() -> None:
    low = {keys.PRIORITY_CLASS: "low"}
    world = make_world(low, workload_priority_classes={"high": 7, "low": 1})
    scale(world, 4)

    world.edit("Job", "j", lambda job: job["metadata"]["labels"].update({keys.PRIORITY_CLASS: "high"}))
    world.settle()

    assert {one.priority for one, _ in world.workloads()} == {7}


def _without_gate(template: Any) -> None:
    template["spec"]["schedulingGates"] = []


@pytest.mark.parametrize("pods", [2, 1000])
def test_a_job_that_starts_without_the_gate_is_stopped_and_starts_with_it(pods: int) -> None:
    """Its author starts it between the admission and Berth's own write."""
    world = World(job_context=context())
    world.add(job_object(annotations=ELASTIC, completions=9))
    world.settle()
    world.admit(world.only_workload())

    def start(job: Any) -> None:
        job["spec"].update(suspend=False, parallelism=pods)
        _without_gate(job["spec"]["template"])

    world.edit("Job", "j", start)
    world.run_job_controller()
    world.now += 1
    world.settle()
    assert world.job()["spec"]["suspend"]

    world.run_job_controller()
    world.settle()

    spec = world.job()["spec"]
    assert spec["suspend"] or spec["template"]["spec"]["schedulingGates"] == [{"name": keys.ELASTIC_GATE}]
    assert slices(world)[0] == (2, "admitted")


@pytest.mark.parametrize("replicas", [None, 1000], ids=["as many", "more"])
def test_a_raycluster_that_loses_its_gates_is_stopped_until_its_pods_have_gone(replicas: int | None) -> None:
    sample = next(one for one in SAMPLES if one.row is RAY_CLUSTER)
    world = World()
    world.add(sample.object(annotations=ELASTIC))
    world.settle()
    world.admit(world.only_workload())
    world.settle()

    def scale_ungated(obj: Any) -> None:
        group = obj["spec"]["workerGroupSpecs"][0]
        _without_gate(group["template"])
        if replicas is not None:
            group["replicas"] = group["maxReplicas"] = replicas
        obj["status"] = {**obj.get("status", {}), **sample.running}

    world.now += 1
    world.edit("RayCluster", "j", scale_ungated)
    world.settle()

    assert world.objects["RayCluster", "j"]["spec"]["suspend"]
    world.edit("RayCluster", "j", lambda obj: obj.update(status=sample.stopped))
    world.settle()
    spec = world.objects["RayCluster", "j"]["spec"]
    gates = spec["workerGroupSpecs"][0]["template"]["spec"].get("schedulingGates")
    assert spec["suspend"] or gates == [{"name": keys.ELASTIC_GATE}]


def test_the_slices_of_a_finished_job_finish_with_it() -> None:
    world = make_world()
    scale(world, 4)

    world.end_job("j")
    world.settle()

    assert slices(world) == [(2, "Succeeded"), (4, "Succeeded")]


def test_a_raycluster_with_an_autoscaler_gets_more_workers_and_fewer() -> None:
    sample = next(one for one in SAMPLES if one.row is RAY_CLUSTER)
    in_use: dict[str, int] = {}
    world = World(job_context=context(pods_in_use=lambda _: in_use))
    body = sample.object(annotations=ELASTIC)
    body["spec"]["enableInTreeAutoscaling"] = True
    world.add(body)
    world.settle()
    world.admit(world.only_workload())
    world.settle()

    def replicas(count: int) -> None:
        world.now += 1
        world.edit("RayCluster", "j", lambda obj: obj["spec"]["workerGroupSpecs"][0].update(replicas=count))
        world.settle()

    first = world.workload(world.only_workload())[0].pod_sets[1].count
    replicas(first + 2)
    world.admit(newest(world))
    world.settle()
    workers = world.workload(newest(world))[0].pod_sets[1].name
    in_use[workers] = first + 2
    replicas(1)

    def counts() -> list[tuple[int, str]]:
        found = sorted((one for one, _ in world.workloads()), key=lambda one: one.created_at)
        return [(one.pod_sets[1].count, _state(one)) for one in found]

    # Its workers have yet to end, one after the other.
    assert counts() == [(first, "WorkloadSliceReplaced"), (first + 2, "admitted")]
    in_use[workers] = first + 1
    world.settle()
    assert counts() == [(first, "WorkloadSliceReplaced"), (first + 1, "admitted")]
    in_use[workers] = 1
    world.settle()
    assert counts() == [(first, "WorkloadSliceReplaced"), (1, "admitted")]
    spec = world.objects["RayCluster", "j"]["spec"]
    assert (spec["suspend"], spec["workerGroupSpecs"][0]["replicas"]) == (False, 1)
    gates = [
        one["template"]["spec"]["schedulingGates"]
        for one in (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    ]
    assert all(one == [{"name": keys.ELASTIC_GATE}] for one in gates)


def test_a_job_whose_slice_is_deleted_begins_another_chain() -> None:
    world = make_world()
    scale(world, 4)
    world.admit(newest(world))
    world.settle()
    first, second = (one.key.name for one, _ in sorted(world.workloads(), key=lambda one: one[0].created_at))
    world.delete("Workload", second)
    world.settle()
    world.run_job_controller()
    world.now += 1
    world.settle()

    third = newest(world)
    assert third not in (first, second)
    assert marks_of(world, third) == {keys.ELASTIC_JOB: "true", keys.SLICE_NAME: third}
    # The Job was stopped, and its template is as it was before the first start.
    template = world.objects["Workload", third]["spec"]["podSets"][0]["template"]
    assert keys.SLICE_NAME not in template["metadata"].get("annotations", {})
    world.admit(third)
    world.settle()
    assert world.job()["spec"]["template"]["metadata"]["annotations"][keys.SLICE_NAME] == third
    assert not world.job()["spec"]["suspend"]


def test_a_slice_that_waits_may_be_deleted_and_is_made_again() -> None:
    world = make_world()
    scale(world, 4)
    waiting = newest(world)
    before = world.workload(waiting)[0].uid

    world.delete("Workload", waiting)
    world.settle()

    assert slices(world) == [(2, "admitted"), (4, "waits")]
    assert world.workload(newest(world))[0].uid != before
    assert not world.job()["spec"]["suspend"]


def test_a_slice_that_waits_and_is_deactivated_is_made_again() -> None:
    world = make_world()
    scale(world, 4)
    world.edit("Workload", newest(world), lambda one: one["spec"].update(active=False))

    world.settle()

    assert slices(world) == [(2, "admitted"), (4, "waits")]
    assert world.workload(newest(world))[0].active
    assert not world.job()["spec"]["suspend"]


def test_a_job_that_others_suspend_starts_again_on_the_admitted_slice() -> None:
    world = make_world()
    scale(world, 4)
    waiting = world.objects["Workload", newest(world)]["spec"]["podSets"]
    world.edit("Job", "j", lambda job: job["spec"].update(suspend=True))
    world.settle()
    world.run_job_controller()

    world.settle()

    assert slices(world) == [(2, "admitted"), (4, "waits")]
    assert not world.job()["spec"]["suspend"]
    assert world.job()["spec"]["template"]["spec"]["schedulingGates"] == [{"name": keys.ELASTIC_GATE}]
    assert world.objects["Workload", newest(world)]["spec"]["podSets"] == waiting


def test_a_template_that_was_left_with_another_chain_starts_in_this_one() -> None:
    """As Kueue leaves it after the deletion of a slice."""
    world = World()
    left = {keys.SLICE_NAME: "job-j-gone", keys.WORKLOAD: "job-j-gone"}
    world.add(job_object(annotations=ELASTIC, template_annotations=left))
    world.settle()
    name = world.only_workload()
    world.admit(name)
    world.settle()

    assert world.job()["spec"]["template"]["metadata"]["annotations"][keys.SLICE_NAME] == name
