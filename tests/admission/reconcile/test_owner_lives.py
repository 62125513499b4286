"""Whole lives of the kinds of the table of owners against a small API server: the same law for every row."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from admission.decisions.api_writes import Purpose
from admission.reconcile.job.context import Ancestor, JobSettings, PriorityClass
from admission.reconcile.job.reconcile import reconcile_queued
from api.jobs.job_workload import workload_name
from api.jobs.owners.kubeflow import PYTORCH_JOB
from api.jobs.owners.paths import replaced, value_at
from api.jobs.owners.ray import RAY_JOB
from api.jobs.owners.trainjob import TRAIN_JOB
from tests.admission.world import START, Object, World, context, encode, purposes, read_queued
from tests.owners import SAMPLES, UID, OwnerSample

each_kind = pytest.mark.parametrize(
    "sample", [pytest.param(sample, id=sample.row.kind) for sample in SAMPLES]
)


with_own_templates = pytest.mark.parametrize(
    "sample", [pytest.param(sample, id=sample.row.kind) for sample in SAMPLES if sample.row.templates is None]
)


def shown(world: World, sample: OwnerSample) -> Object:
    """Return the object as it is."""
    return world.objects[sample.row.kind, "j"]


def report(world: World, sample: OwnerSample, status: Object) -> None:
    """Let the kind's own controller write this status."""

    def change(obj: Object) -> None:
        obj["status"] = copy.deepcopy(status)

    world.edit(sample.row.kind, "j", change)


def queued(sample: OwnerSample) -> tuple[World, str]:
    """Return a world in which the object waits for quota, and its Workload's name."""
    world = World(job_context=context(read=sample.read))
    world.add(sample.object())
    world.settle()
    return world, world.only_workload()


def started(sample: OwnerSample) -> tuple[World, str]:
    """Return a world in which the object runs, and its Workload's name."""
    world, name = queued(sample)
    world.admit(name)
    world.settle()
    report(world, sample, sample.ready)
    world.settle()
    return world, name


def conditions(world: World, name: str) -> dict[str, tuple[bool, str, str]]:
    """Return status, reason and message of a Workload's conditions."""
    workload, _ = world.workload(name)
    return {one.type: (one.status, one.reason, one.message) for one in workload.conditions.values()}


@each_kind
def test_its_workload_has_kueues_name_and_a_pod_set_for_each_role(sample: OwnerSample) -> None:
    world, name = queued(sample)
    workload = world.objects["Workload", name]

    assert name == workload_name(sample.row.kind, sample.row.group, "j", UID)
    assert {one["name"]: one["count"] for one in workload["spec"]["podSets"]} == sample.pod_sets
    (owner,) = workload["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["uid"]) == (
        sample.row.api_version,
        sample.row.kind,
        UID,
    )
    assert workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == UID


@each_kind
def test_it_is_started_in_one_write_with_what_its_admission_adds(sample: OwnerSample) -> None:
    world, name = queued(sample)
    world.admit(name)

    assert world.settle() == [Purpose.START_JOB]
    obj = shown(world, sample)
    assert not read_queued(obj).is_suspended
    for pod_set, template in sample.templates_of(obj).items():
        assert template["spec"]["nodeSelector"]["zone"] == "a", pod_set
        assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == pod_set
        assert template["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == name
    assert set(sample.templates_of(obj)) == set(sample.pod_sets)


@each_kind
def test_an_evicted_one_is_stopped_restored_and_started_again(sample: OwnerSample) -> None:
    world, name = started(sample)
    world.evict(name)

    assert world.settle() == [Purpose.STOP_JOB]
    assert world.workload(name)[0].admission is not None, "released while pods run"
    report(world, sample, sample.stopped)
    restores = [] if sample.row.templates is None else [Purpose.RESTORE_JOB]
    assert world.settle()[: len(restores) + 1] == [*restores, Purpose.RELEASE]
    assert shown(world, sample)["spec"] == sample.object()["spec"]
    assert world.workload(name)[0].admission is None

    world.admit(name)
    assert world.settle() == [Purpose.START_JOB]
    assert not read_queued(shown(world, sample)).is_suspended


@pytest.mark.parametrize(
    "sample", [pytest.param(sample, id=sample.row.kind) for sample in SAMPLES if sample.succeeded]
)
@pytest.mark.parametrize("is_success", [True, False])
def test_its_workload_finishes_with_it(sample: OwnerSample, is_success: bool) -> None:
    world, name = started(sample)
    status = sample.succeeded if is_success else sample.failed
    assert status is not None
    report(world, sample, status)

    assert world.settle() == [Purpose.FINISH, Purpose.REMOVE_FINALIZER]
    reason, message = ("Succeeded", sample.messages[0]) if is_success else ("Failed", sample.messages[1])
    assert conditions(world, name)["Finished"] == (True, reason, message)


@each_kind
def test_pods_are_reported_ready_once_all_are(sample: OwnerSample) -> None:
    world, name = queued(sample)
    world.admit(name)
    world.settle()
    report(world, sample, sample.running)
    assert world.settle() == []
    assert not conditions(world, name)["PodsReady"][0]

    report(world, sample, sample.ready)
    assert world.settle() == [Purpose.SYNC_PODS]
    assert conditions(world, name)["PodsReady"][0]


@pytest.mark.parametrize(
    "sample", [pytest.param(sample, id=sample.row.kind) for sample in SAMPLES if sample.reclaimable]
)
def test_quota_that_it_needs_no_longer_is_given_back(sample: OwnerSample) -> None:
    world, name = started(sample)
    report(world, sample, sample.partly)
    world.settle()

    assert world.workload(name)[0].reclaimable == sample.reclaimable


@each_kind
def test_one_that_runs_without_admission_is_stopped(sample: OwnerSample) -> None:
    world = World(job_context=context(read=sample.read))
    world.add(sample.object(suspend=False))

    assert world.settle() == [Purpose.STOP_JOB, Purpose.CREATE_WORKLOAD]
    assert read_queued(shown(world, sample)).is_suspended


@each_kind
def test_what_another_program_has_suspended_is_restored_before_it_starts_again(sample: OwnerSample) -> None:
    world, name = started(sample)

    def suspend(obj: Object) -> None:
        inner = value_at(obj, sample.row.suspend[:-1])
        inner[sample.row.suspend[-1]] = True

    world.edit(sample.row.kind, "j", suspend)
    report(world, sample, sample.stopped)

    assert world.settle()[:2] == [Purpose.RESTORE_JOB, Purpose.START_JOB]
    assert not read_queued(shown(world, sample)).is_suspended
    assert world.workload(name)[0].is_admitted


@each_kind
def test_a_program_that_resumes_one_again_and_again_while_it_waits_gets_one_answer_each_time(
    sample: OwnerSample,
) -> None:
    """As GitOps does that has `suspend: false` in its repository."""
    world, name = queued(sample)
    waiting = copy.deepcopy(world.objects["Workload", name])

    for _ in range(3):
        world.edit(
            sample.row.kind, "j", lambda obj: obj.update(replaced(obj, sample.row.suspend, value=False))
        )
        assert world.settle() == [Purpose.STOP_JOB]
        assert read_queued(shown(world, sample)).is_suspended

    assert world.objects["Workload", name] == waiting


@with_own_templates
def test_a_change_of_its_pods_while_it_runs_stops_it_and_queues_it_again(sample: OwnerSample) -> None:
    world, _ = started(sample)

    world.edit(sample.row.kind, "j", lambda obj: obj.update(sample.with_cpu(obj, "7")))

    assert Purpose.STOP_JOB in world.settle()
    report(world, sample, sample.stopped)
    world.settle()
    workload, _ = world.workload(world.only_workload())
    assert workload.admission is None
    first = world.objects["Workload", world.only_workload()]["spec"]["podSets"][0]
    assert first["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "7"


@each_kind
def test_while_its_own_controller_is_down_nothing_is_written_twice_and_no_quota_is_lost(
    sample: OwnerSample,
) -> None:
    """A start and a stop are each written once; its pods may run on until the controller says otherwise."""
    world, name = queued(sample)
    world.admit(name)
    assert world.settle() == [Purpose.START_JOB]
    assert world.settle() == []

    report(world, sample, sample.running)
    world.settle()
    world.evict(name)

    assert world.settle() == [Purpose.STOP_JOB]
    assert world.settle() == []
    assert world.workload(name)[0].admission is not None


@with_own_templates
def test_an_edit_while_it_waits_reaches_its_workload(sample: OwnerSample) -> None:
    world, name = queued(sample)

    world.edit(sample.row.kind, "j", lambda obj: obj.update(sample.with_cpu(obj, "7")))

    assert world.settle() == [Purpose.UPDATE_WORKLOAD]
    first = world.objects["Workload", name]["spec"]["podSets"][0]
    assert first["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "7"


@with_own_templates
def test_a_template_that_contradicts_its_admission_finishes_the_workload(sample: OwnerSample) -> None:
    world = World()

    def edit(template: Object) -> None:
        template["spec"].setdefault("nodeSelector", {})["zone"] = "b"

    world.add(sample.edited(sample.object(), edit))
    world.settle()
    name = world.only_workload()
    world.admit(name)
    world.settle()

    assert conditions(world, name)["Finished"][:2] == (True, "FailedToStart")
    assert "nodeSelector zone is 'b', but its admission needs 'a'" in conditions(world, name)["Finished"][2]


@each_kind
def test_one_that_is_not_in_a_queue_is_not_touched(sample: OwnerSample) -> None:
    world = World()
    world.add(sample.object(suspend=False, labels={"kueue.x-k8s.io/queue-name": None}))

    assert world.settle() == []


@each_kind
@pytest.mark.parametrize(
    ("ancestor", "suspended", "want"),
    [
        pytest.param(Ancestor.COUNTED_WAITING, False, ["stop-job"], id="its owner waits"),
        pytest.param(Ancestor.COUNTED_WAITING, True, [], id="its owner waits and it does too"),
        pytest.param(Ancestor.COUNTED_ADMITTED, False, [], id="its owner is admitted"),
    ],
)
def test_one_that_its_owner_counts_has_no_workload(
    sample: OwnerSample, ancestor: Ancestor, suspended: bool, want: list[str]
) -> None:
    settings = JobSettings(manages_without_queue_name=True)
    obj = sample.object(suspend=suspended)
    job_context = context(settings=settings, ancestor=lambda _: ancestor)

    assert purposes(reconcile_queued(read_queued(obj), encode(obj), [], job_context, now=START)) == want


@each_kind
def test_a_workload_from_before_its_owner_was_known_is_deleted(sample: OwnerSample) -> None:
    world, _ = queued(sample)
    world.job_context = context(ancestor=lambda _: Ancestor.COUNTED_ADMITTED)

    assert world.settle() == [Purpose.DELETE_WORKLOAD, Purpose.REMOVE_FINALIZER]
    assert not world.workloads()


@each_kind
def test_one_whose_pod_sets_cannot_be_read_is_named_with_the_fix(sample: OwnerSample) -> None:
    obj = sample.object()
    broken = {name: value if isinstance(value, str) else 7 for name, value in obj["spec"].items()}
    obj["spec"] = replaced(broken | {sample.row.suspend[1]: None}, sample.row.suspend[1:], True)

    actions = reconcile_queued(read_queued(obj), encode(obj), [], context(), now=START)

    assert purposes(actions) == ["ErrWorkloadCompose"]
    assert "its pod sets cannot be read" in actions[0].note  # type: ignore[union-attr]


CONTAINERS = {"a text": "main", "a text in the list": ["main"], "a list in the list": [[]], "numbers": [7]}


@each_kind
@pytest.mark.parametrize("containers", CONTAINERS.values(), ids=CONTAINERS)
def test_one_whose_pod_template_is_none_is_named_with_the_fix(sample: OwnerSample, containers: Any) -> None:
    obj = sample.object()
    # Wherever the kind has them; a kind whose pods another object describes has none.
    if not _replaced_deep(obj["spec"], "containers", containers):
        return

    actions = reconcile_queued(read_queued(obj), encode(obj), [], context(), now=START)

    assert purposes(actions) == ["ErrWorkloadCompose"]
    assert "cannot be read" in actions[0].note  # type: ignore[union-attr]


def _replaced_deep(value: Any, key: str, new: Any) -> int:
    """Replace what this key has anywhere in a JSON value. Return how often."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = sum(_replaced_deep(part, key, new) for part in list(parts))
    if isinstance(value, dict) and key in value:
        value[key] = copy.deepcopy(new)
        found += 1
    return found


@pytest.mark.parametrize(
    ("own", "of_template", "want"),
    [
        pytest.param("high", "low", 10, id="its own field comes first"),
        pytest.param(None, "low", 1, id="then that of a template"),
        pytest.param(None, None, 0, id="without either it has none"),
    ],
)
def test_the_priority_class_of_a_kubeflow_job(own: str | None, of_template: str | None, want: int) -> None:
    (sample,) = (one for one in SAMPLES if one.row is PYTORCH_JOB)
    obj = sample.object()
    if own is not None:
        obj["spec"]["runPolicy"]["schedulingPolicy"] = {"priorityClass": own}
    if of_template is not None:
        spec = obj["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
        spec["priorityClassName"] = of_template
    classes = {"high": PriorityClass(value=10), "low": PriorityClass(value=1)}
    world = World(job_context=context(priority_classes=classes))
    world.add(obj)
    world.settle()

    assert world.workload(world.only_workload())[0].priority == want


def test_a_rayjob_on_a_cluster_that_is_there_is_left_alone() -> None:
    (sample,) = (one for one in SAMPLES if one.row is RAY_JOB)
    obj = sample.object(suspend=False)
    obj["spec"] |= {"rayClusterSpec": None, "clusterSelector": {"ray.io/cluster": "shared"}}
    world = World()
    world.add(obj)

    assert world.settle() == []


def test_a_rayjob_that_kuberay_refuses_holds_no_quota_until_it_is_corrected() -> None:
    (sample,) = (one for one in SAMPLES if one.row is RAY_JOB)
    world, name = queued(sample)
    world.admit(name)
    world.settle()
    report(world, sample, {"jobDeploymentStatus": "ValidationFailed"})

    assert world.settle() == [Purpose.STOP_JOB, Purpose.RELEASE]
    assert conditions(world, name)["QuotaReserved"] == (False, "OnHold", "Job is on hold")
    assert world.workload(name)[0].admission is None
    report(world, sample, {"jobDeploymentStatus": "Suspended"})
    assert Purpose.RELEASE in world.settle()
    assert conditions(world, name)["QuotaReserved"][1] == "PendingEvaluation"


def test_a_rayjob_that_kuberay_refuses_once_it_has_a_cluster_keeps_its_quota() -> None:
    (sample,) = (one for one in SAMPLES if one.row is RAY_JOB)
    world, name = started(sample)
    report(world, sample, {"jobDeploymentStatus": "ValidationFailed", "rayClusterName": "j-1"})
    world.settle()

    assert world.workload(name)[0].admission is not None


@each_kind
def test_an_admission_without_counts_is_of_all_pods(sample: OwnerSample) -> None:
    world, name = queued(sample)
    world.admit(name)

    def forget(obj: Object) -> None:
        for one in obj["status"]["admission"]["podSetAssignments"]:
            del one["count"]

    world.edit("Workload", name, forget)

    assert world.settle() == [Purpose.START_JOB]


def test_a_rayjob_gets_kuberays_submitter_with_what_its_admission_adds() -> None:
    (sample,) = (one for one in SAMPLES if one.row is RAY_JOB)
    obj = sample.object()
    del obj["spec"]["submitterPodTemplate"]
    world = World()
    world.add(obj)
    world.settle()
    name = world.only_workload()
    world.admit(name)

    assert world.settle() == [Purpose.START_JOB]
    spec = world.objects["RayJob", "j"]["spec"]["submitterPodTemplate"]["spec"]
    assert [one["name"] for one in spec["containers"]] == ["ray-job-submitter"]
    assert spec["nodeSelector"] == {"zone": "a"}
    assert world.settle() == [], "its Workload still describes it"


def test_containers_that_kuberay_adds_are_not_written_to_the_template() -> None:
    (sample,) = (one for one in SAMPLES if one.row is RAY_JOB)
    obj = sample.object()
    obj["spec"]["submissionMode"] = "SidecarMode"
    world = World()
    world.add(obj)
    world.settle()
    world.admit(world.only_workload())
    world.settle()

    head = world.objects["RayJob", "j"]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert [one["name"] for one in head["containers"]] == ["head"]
    assert head["nodeSelector"]["zone"] == "a"


(TRAIN_JOBS,) = (one for one in SAMPLES if one.row is TRAIN_JOB)


def test_a_train_job_waits_for_its_runtime_and_is_named_until_then() -> None:
    world = World()
    world.add(TRAIN_JOBS.object())

    assert world.settle() == []
    assert world.events[-1].reason == "ErrWorkloadCompose"
    assert "ClusterTrainingRuntime 'torch', which does not exist; create it" in world.events[-1].note

    world.job_context = context(read=TRAIN_JOBS.read)
    assert world.settle() == [Purpose.CREATE_WORKLOAD]


def test_a_train_job_whose_runtime_goes_runs_on() -> None:
    world, name = started(TRAIN_JOBS)
    world.job_context = context()

    assert world.settle() == []
    assert world.workload(name)[0].is_admitted


def test_what_another_program_patches_stays_and_comes_into_the_workload() -> None:
    obj = TRAIN_JOBS.object()
    toleration = {"key": "gpu", "operator": "Exists"}
    pod = {"spec": {"tolerations": [toleration], "nodeSelector": {"kind": "fast"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    theirs = {"manager": "theirs", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    obj["spec"]["runtimePatches"].insert(0, theirs)
    world = World(job_context=context(read=TRAIN_JOBS.read))
    world.add(obj)
    world.settle()
    name = world.only_workload()
    (pod_set,) = world.objects["Workload", name]["spec"]["podSets"]
    assert pod_set["template"]["spec"]["nodeSelector"] == {"disk": "ssd", "kind": "fast"}

    world.admit(name)
    world.settle()

    first, own = shown(world, TRAIN_JOBS)["spec"]["runtimePatches"]
    assert first == theirs
    (job,) = own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["spec"]["tolerations"] == [toleration]
