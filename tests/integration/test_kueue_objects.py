"""What administrators and users say in Kueue's objects while Jobs run and wait, on a real control plane.

Stopped queues, selectors, gates, checks, priorities, partial admission, given-back pods, limits of the
namespace, and preemption. Each test works in a namespace of its own; one controller serves them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import Options
from tests.integration.manifests import (
    KUEUE,
    POOL,
    Object,
    condition,
    is_true,
    kueue_object,
    make_job,
    make_workload,
    quota,
)
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
GATED_BY = "kueue.x-k8s.io/admission-gated-by"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"


CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
resources:
  deviceClassMappings:
  - {name: berth.test/gpus, deviceClassNames: [gpu.berth.test]}
"""


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that counts devices."""
    return Options(config=CONFIG)


# --- stopped queues ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        pytest.param("ClusterQueue", "ClusterQueueStopped", id="a ClusterQueue"),
        pytest.param("LocalQueue", "LocalQueueStopped", id="a LocalQueue"),
    ],
)
def test_a_drained_queue_stops_its_jobs_and_starts_them_again_when_it_resumes(
    scene: Scene, kind: str, reason: str
) -> None:
    set_policy = stopper(scene, kind, scene.create_queue())
    scene.create_job("one")
    scene.wait_admitted("one")

    set_policy("HoldAndDrain")

    evicted = scene.wait_workload("one", is_released, "released")
    assert condition(evicted, "Evicted")["reason"] == reason
    assert condition(evicted, "Evicted")["message"] == f"The {kind} is stopped"
    assert scene.job("one")["spec"]["suspend"] is True
    set_policy("None")
    scene.wait_admitted("one")


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_a_held_queue_keeps_its_running_jobs_and_admits_no_other(scene: Scene, kind: str) -> None:
    set_policy = stopper(scene, kind, scene.create_queue())
    scene.create_job("running")
    scene.wait_admitted("running")
    set_policy("Hold")

    scene.create_job("held")

    scene.wait_pending("held", "Suspended", says="is inactive")
    assert not scene.job("running")["spec"]["suspend"]
    set_policy("None")
    scene.wait_admitted("held")


def stopper(scene: Scene, kind: str, cluster_queue: str) -> Callable[[str], object]:
    """Return what sets the stopPolicy of the ClusterQueue, or of the LocalQueue `main`."""
    path = f"/apis/{KUEUE}/clusterqueues/{cluster_queue}"
    if kind == "LocalQueue":
        path = f"{scene.local_queues}/main"
    return lambda policy: scene.rest.patch(path, {"spec": {"stopPolicy": policy}})


def is_released(workload: Object) -> bool:
    """Return whether an evicted Workload has given its quota back."""
    return is_true(workload, "Evicted") and "admission" not in workload["status"]


# --- which namespaces may queue --------------------------------------------------------------------


def test_a_namespace_is_admitted_once_its_labels_match(scene: Scene) -> None:
    selector = {"matchLabels": {"team": scene.namespace}}
    scene.create_queue(namespaceSelector=selector)
    scene.create_job("one")
    scene.wait_pending("one", "Misconfigured", says="namespace")

    scene.rest.patch(
        f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": {"team": scene.namespace}}}
    )

    scene.wait_admitted("one")


def test_a_gated_job_waits_until_its_gate_is_taken_off(scene: Scene) -> None:
    scene.create_queue()
    create_annotated(scene, make_job("one"), {GATED_BY: "example.com/budget"})
    waiting = scene.wait_pending("one", "AdmissionGated")
    assert waiting["message"] == "Admission is gated by: example.com/budget"

    scene.rest.patch(f"{scene.jobs}/one", {"metadata": {"annotations": {GATED_BY: None}}})

    scene.wait_admitted("one")


def create_annotated(scene: Scene, job: Object, annotations: Object) -> None:
    """Create a Job with annotations of its own."""
    scene.rest.create(scene.jobs, {**job, "metadata": {**job["metadata"], "annotations": annotations}})


# --- admission checks --------------------------------------------------------------------------------


@pytest.fixture
def check(scene: Scene) -> str:
    """Give an active AdmissionCheck that the queue `main` requires."""
    name = scene.scoped("check")
    path = f"/apis/{KUEUE}/admissionchecks"
    scene.rest.create(
        path, kueue_object("AdmissionCheck", {"name": name}, {"controllerName": "example.com/check"})
    )
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "served",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    # A patch, as Berth puts its finalizer on the object meanwhile.
    scene.rest.patch(f"{path}/{name}/status", {"status": {"conditions": [active]}})
    scene.create_queue(admissionChecksStrategy={"admissionChecks": [{"name": name}]})
    return name


def answer_check(scene: Scene, job: str, check: str, state: str, **more: Any) -> None:
    """Answer the check of the Job's Workload, as the check's own controller does."""
    workload = scene.wait_workload(job, has_pending_check, "asked")
    answered = {
        "name": check,
        "state": state,
        "message": f"{state} by test",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        **more,
    }
    scene.rest.patch(
        f"{scene.workloads}/{workload['metadata']['name']}/status",
        {"status": {"admissionChecks": [answered]}},
    )


def has_pending_check(workload: Object) -> bool:
    """Return whether quota is reserved and a check has not answered."""
    checks = workload.get("status", {}).get("admissionChecks") or ()
    return is_true(workload, "QuotaReserved") and [one["state"] for one in checks] == ["Pending"]


def test_a_job_starts_when_its_check_is_ready_and_as_the_check_wants_it(scene: Scene, check: str) -> None:
    scene.create_job("one")
    scene.wait_workload("one", has_pending_check, "asked")
    assert scene.job("one")["spec"]["suspend"] is True

    update: dict[str, Any] = {
        "name": "main",
        "labels": {"from-check": "yes"},
        "annotations": {"example.com/ticket": "7"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "reserved", "operator": "Exists", "effect": "NoSchedule"}],
    }
    answer_check(scene, "one", check, "Ready", podSetUpdates=[update])

    scene.wait_admitted("one")
    template = scene.job("one")["spec"]["template"]
    assert template["metadata"]["labels"]["from-check"] == "yes"
    assert template["metadata"]["annotations"]["example.com/ticket"] == "7"
    assert template["spec"]["nodeSelector"] == {POOL: "blue", "kubernetes.io/os": "linux"}
    assert update["tolerations"][0] in template["spec"]["tolerations"]


def test_a_check_that_wants_another_try_takes_the_quota_and_is_asked_again(scene: Scene, check: str) -> None:
    scene.create_job("one")

    with Witness(scene.rest, scene.namespace) as witness:
        answer_check(scene, "one", check, "Retry")
        scene.wait_events(scene.wait_workload("one")["metadata"]["name"], "EvictedDueToAdmissionCheck")
        answer_check(scene, "one", check, "Ready")
        scene.wait_admitted("one")
        witness.catch_up()

    assert witness.starts("one") == 1


def test_a_rejected_job_is_deactivated(scene: Scene, check: str) -> None:
    scene.create_job("one")

    answer_check(scene, "one", check, "Rejected")

    workload = scene.wait_workload("one", is_released, "released")
    assert workload["spec"]["active"] is False
    assert condition(workload, "Evicted")["reason"] == "DeactivatedDueToAdmissionCheck"
    assert f'AdmissionCheck in Rejected state: "{check}"' in condition(workload, "Evicted")["message"]


# --- priority ----------------------------------------------------------------------------------------


def test_a_class_that_gains_value_moves_the_jobs_that_wait_in_it(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    low, high = scene.create_priority("low", 1), scene.create_priority("high", 2)
    scene.create_job("running")
    scene.wait_admitted("running")
    scene.create_job("favoured", labels={PRIORITY_CLASS: high})
    scene.create_job("raised", labels={PRIORITY_CLASS: low})
    scene.wait_pending("favoured")
    scene.wait_pending("raised")

    scene.rest.patch(f"/apis/{KUEUE}/workloadpriorityclasses/{low}", {"value": 9})

    scene.wait_workload("raised", lambda found: found["spec"]["priority"] == 9, "priority 9")
    scene.delete_job("running")
    scene.wait_admitted("raised")
    assert scene.job("favoured")["spec"]["suspend"] is True


def test_a_job_that_changes_its_class_while_it_waits_is_moved(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    low, high = scene.create_priority("low", 1), scene.create_priority("high", 2)
    scene.create_job("running")
    scene.wait_admitted("running")
    for name in ("first", "second"):
        scene.create_job(name, labels={PRIORITY_CLASS: low})
        scene.wait_pending(name)

    scene.rest.patch(f"{scene.jobs}/second", {"metadata": {"labels": {PRIORITY_CLASS: high}}})

    scene.wait_workload("second", lambda found: found["spec"]["priority"] == 2, "priority 2")
    scene.delete_job("running")
    scene.wait_admitted("second")
    assert scene.job("first")["spec"]["suspend"] is True


def test_the_priority_class_of_the_pods_is_the_workloads_priority(scene: Scene) -> None:
    scene.create_queue()
    name = scene.scoped("pods")
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    scene.rest.create(path, {**body, "value": 77})

    scene.create_job("one", priorityClassName=name)

    spec = scene.wait_true("one", "Admitted")["spec"]
    assert spec["priority"] == 77
    assert spec["priorityClassRef"] == {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}
    scene.rest.delete(f"{path}/{name}")


# --- how much ----------------------------------------------------------------------------------------


def test_a_job_that_can_do_with_less_starts_with_what_fits_and_stops_as_it_was(scene: Scene) -> None:
    set_policy = stopper(scene, "ClusterQueue", scene.create_queue(cpus=3))

    create_annotated(scene, make_job("one", pods=4), {MIN_PARALLELISM: "2"})

    scene.wait_admitted("one")
    (assigned,) = scene.wait_true("one", "Admitted")["status"]["admission"]["podSetAssignments"]
    assert (assigned["count"], assigned["resourceUsage"]) == (3, {"cpu": "3"})
    assert scene.job("one")["spec"]["parallelism"] == 3
    set_policy("HoldAndDrain")
    scene.wait_workload("one", is_released, "released")
    wait_for(lambda: scene.job("one")["spec"]["parallelism"] == 4, "its own parallelism again")


def test_pods_that_will_not_be_needed_again_release_their_quota_to_a_waiting_job(scene: Scene) -> None:
    scene.create_queue(cpus=3)
    workload = make_workload("wide")
    workload["spec"]["podSets"][0]["count"] = 3
    scene.rest.create(scene.workloads, workload)
    path = f"{scene.workloads}/wide"
    scene.rest.wait(path, lambda found: is_true(found, "Admitted"))
    scene.create_job("late", cpus=2)
    scene.wait_pending("late")

    given_back = [{"name": "main", "count": 2}]
    scene.rest.patch(f"{path}/status", {"status": {"reclaimablePods": given_back}})

    scene.wait_admitted("late")
    assert is_true(scene.workload("wide"), "Admitted")


def test_a_job_gives_back_what_its_last_pods_do_not_need(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    job = make_job("long", pods=2, seconds=3.0)
    job["spec"]["completions"] = 3
    scene.rest.create(scene.jobs, job)
    scene.wait_admitted("long")
    scene.create_job("late")

    scene.wait_admitted("late")

    workload = scene.wait_workload("long")
    assert workload["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
    assert not is_true(workload, "Evicted")


def test_the_limits_of_the_namespace_and_the_overhead_of_the_runtime_count(scene: Scene) -> None:
    scene.create_queue(cpus=8)
    limits = [{"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"cpu": "3"}}]
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits"},
        "spec": {"limits": limits},
    }
    scene.rest.create(f"/api/v1/namespaces/{scene.namespace}/limitranges", limit_range)
    runtimes = "/apis/node.k8s.io/v1/runtimeclasses"
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": scene.scoped("sandbox")},
        "handler": "sandbox",
        "overhead": {"podFixed": {"cpu": "1"}},
    }
    scene.rest.create(runtimes, runtime)

    scene.create_job(
        "one", containers=[{"name": "main", "image": "none"}], runtimeClassName=scene.scoped("sandbox")
    )

    (assigned,) = scene.wait_true("one", "Admitted")["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"] == {"cpu": "3"}
    scene.rest.delete(f"{runtimes}/{scene.scoped('sandbox')}")


# --- preemption --------------------------------------------------------------------------------------


def test_a_higher_priority_evicts_within_its_queue_and_starts_when_the_victim_has_stopped(
    scene: Scene,
) -> None:
    cluster_queue = scene.create_queue(cpus=4, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scene.create_priority("low", 1), scene.create_priority("high", 2)
    scene.create_job("victim", cpus=3, labels={PRIORITY_CLASS: low})
    scene.wait_admitted("victim")

    with Witness(scene.rest, scene.namespace) as witness:
        scene.create_job("urgent", cpus=2, labels={PRIORITY_CLASS: high})
        scene.wait_admitted("urgent")
        evicted = scene.wait_workload("victim", is_released, "released")
        witness.catch_up()

    assert (witness.peak_reserved(cluster_queue), witness.peak_running()) == (3, 3)
    urgent = scene.wait_workload("urgent")["metadata"]["uid"]
    message = condition(evicted, "Preempted")["message"]
    assert condition(evicted, "Preempted")["reason"] == "InClusterQueue"
    assert condition(evicted, "Evicted")["reason"] == "Preempted"
    assert message.startswith(f"Preempted to accommodate a workload (UID: {urgent}, JobUID: ")
    assert f"prioritization in the ClusterQueue; preemptor path: /{cluster_queue}" in message
    assert evicted["status"]["schedulingStats"]["evictions"][0]["count"] == 1


def test_a_queue_takes_its_own_quota_back_from_a_borrower(scene: Scene) -> None:
    flavor, cohort = scene.create_flavor(), scene.scoped("cohort")
    for name in ("lender", "borrower"):
        cluster_queue = scene.create_cluster_queue(
            name,
            quota(flavor, nominal=2),
            cohortName=cohort,
            preemption={"reclaimWithinCohort": "Any"},
        )
        scene.create_local_queue(name, cluster_queue)
    scene.create_job("wide", queue="borrower", cpus=4)
    scene.wait_admitted("wide")

    with Witness(scene.rest, scene.namespace) as witness:
        scene.create_job("owner", queue="lender", cpus=2)
        scene.wait_admitted("owner")
        evicted = scene.wait_workload("wide", is_released, "released")
        witness.catch_up()

    queues = scene.scoped("lender"), scene.scoped("borrower")
    assert (witness.peak_reserved(*queues), witness.peak_running()) == (4, 4)
    preempted = condition(evicted, "Preempted")
    assert preempted["reason"] == "InCohortReclamation"
    assert preempted["message"].endswith(
        f"due to reclamation within the cohort; preemptor path: /{cohort}/{queues[0]};"
        f" preemptee path: /{cohort}/{queues[1]}"
    )
    # What is left would only do for a narrower Job.
    scene.wait_pending("wide")


# --- what cannot be admitted, and says so -------------------------------------------------------------


def test_a_queue_without_its_flavor_or_in_a_ring_of_cohorts_says_so(scene: Scene) -> None:
    flavor = scene.create_flavor()
    lost = scene.create_cluster_queue("lost", quota(scene.scoped("nowhere")))
    ring = [scene.scoped("left"), scene.scoped("right")]
    for name, parent in (ring, reversed(ring)):
        scene.rest.create(
            f"/apis/{KUEUE}/cohorts", kueue_object("Cohort", {"name": name}, {"parentName": parent})
        )
    turning = scene.create_cluster_queue("turning", quota(flavor), cohortName=ring[0])

    assert scene.scoped("nowhere") in scene.wait_active(lost, reason="FlavorNotFound")["message"]
    active = scene.wait_active(turning, reason="CohortCycle")
    assert ring[0] in active["message"]
    assert "spec.parentName" in active["message"]
    scene.rest.delete(f"/apis/{KUEUE}/cohorts/{ring[0]}")
    scene.wait_active(turning, reason="Ready")


def test_a_job_that_asks_for_devices_by_claim_starts_once_its_template_can_be_counted(scene: Scene) -> None:
    flavor = scene.create_flavor()
    groups = (quota(flavor), quota(flavor, "berth.test/gpus"))
    scene.create_local_queue("main", scene.create_cluster_queue("main", *groups))
    scene.create_job("one", pods=2, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpus"}])
    want = "spec.podSets[0].template.spec.resourceClaims[0]: Internal error: failed to get claim spec"
    assert scene.wait_pending("one", "Misconfigured", want)["message"].startswith(want)

    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.berth.test", "count": 2}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpus"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    claims = f"/apis/resource.k8s.io/v1/namespaces/{scene.namespace}/resourceclaimtemplates"
    scene.rest.create(claims, template)

    scene.wait_admitted("one")
    (assignment,) = scene.wait_workload("one")["status"]["admission"]["podSetAssignments"]
    assert assignment["resourceUsage"] == {"cpu": "2", "berth.test/gpus": "4"}


def test_a_job_starts_once_the_job_that_it_depends_on_has_succeeded(scene: Scene) -> None:
    scene.create_queue()
    scene.create_job("train", annotations={"berth.dev/depends-on": "prepare"})
    want = "Depends on prepare: no such Job is in a queue"
    assert scene.wait_pending("train", "WaitingForDependencies", want)["message"].startswith(want)

    scene.create_job("prepare", seconds=0.1)

    scene.wait_admitted("train")
