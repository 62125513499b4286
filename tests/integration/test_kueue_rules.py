"""Rules of Kueue that users, manifests and tools rely on, each by its name, on a real control plane.

One controller serves them all. Its file is the one of Kueue's own installation, with what its comments
suggest. Workloads without an owner play most of them: the test is the program that created them.
"""

from __future__ import annotations

from typing import Any

import pytest

from api.jobs.pod_role import role_hash
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
    said,
)
from tests.integration.pods import create as create_pods
from tests.integration.pods import member
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
controller: {groupKindConcurrency: {Job.batch: 5, Pod: 5, Workload.kueue.x-k8s.io: 10}}
clientConnection: {qps: 300, burst: 500}
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}
integrations: {frameworks: [batch/job, pod]}
featureGates: {PriorityBoost: true}
resources:
  transformations:
    - {input: memory, strategy: Retain, outputs: {example.com/credits: 5}}
"""
HOST = "kubernetes.io/hostname"
PREEMPTS = {"withinClusterQueue": "LowerPriority"}


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller with the file of a Kueue installation."""
    return Options(config=CONFIG)


def wait_reserved(scene: Scene, *names: str) -> None:
    """Return when these Workloads are admitted."""
    for name in names:
        wait_for(lambda name=name: is_true(scene.workload(name), "Admitted"), f"{name} admitted")  # type: ignore[misc]


def wait_waiting(scene: Scene, name: str) -> Object:
    """Return QuotaReserved=False of a Workload once it says why it waits."""

    def probe() -> Object | None:
        found = condition(scene.workload(name), "QuotaReserved")
        return found if found.get("status") == "False" else None

    return wait_for(probe, f"{name} says why it waits")


def wait_evicted(scene: Scene, name: str) -> Object:
    """Return a Workload once it is evicted."""

    def probe() -> Object | None:
        found = scene.workload(name)
        return found if is_true(found, "Evicted") else None

    return wait_for(probe, f"{name} evicted")


def holding(scene: Scene, cluster_queue: str) -> int:
    """Return how many Workloads a ClusterQueue shows that hold its quota."""
    return int(scene.cluster_queue(cluster_queue).get("status", {}).get("reservingWorkloads", 0))


def create_placed_queue(scene: Scene, *groups: Object, memory: bool = False) -> None:
    """Create a queue whose flavor follows the hosts of the pool, with memory beside CPUs or without."""
    name = scene.scoped("hosts")
    levels = {"levels": [{"nodeLabel": HOST}]}
    scene.rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, levels))
    spec = {"nodeLabels": {POOL: scene.pool}, "topologyName": name}
    scene.rest.create(f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": name}, spec))
    first = quota(name, nominal=200)
    if memory:
        first["coveredResources"].append("memory")
        first["flavors"][0]["resources"].append({"name": "memory", "nominalQuota": "1Gi"})
    cluster_queue = scene.create_cluster_queue("main", first, *groups)
    scene.create_local_queue("main", cluster_queue)


def create_placed(scene: Scene, name: str, *, count: int, cpus: int, **request: Any) -> None:
    """Create a Workload of pods with a topology request."""
    workload = make_workload(name, cpus=cpus)
    workload["spec"]["podSets"][0].update(count=count, topologyRequest=request)
    scene.rest.create(scene.workloads, workload)


# --- decisions over time -----------------------------------------------------------------------------


def test_the_quota_of_an_evicted_workload_without_owner_is_kept_until_its_program_releases_it(
    scene: Scene,
) -> None:
    cluster_queue = scene.create_queue(preemption=PREEMPTS)
    scene.create_workload("low", cpus=4)
    wait_reserved(scene, "low")

    scene.create_workload("high", cpus=4, priority=10)

    assert "admission" in wait_evicted(scene, "low")["status"]
    wait_waiting(scene, "high")
    assert holding(scene, cluster_queue) == 1
    scene.release("low")
    wait_reserved(scene, "high")


def test_a_workload_that_is_wanted_again_before_it_is_released_holds_its_quota_beside_the_next(
    scene: Scene,
) -> None:
    cluster_queue = scene.create_queue()
    scene.create_workload("first", cpus=4)
    wait_reserved(scene, "first")
    first = f"{scene.workloads}/first"
    scene.rest.patch(first, {"spec": {"active": False}})
    wait_evicted(scene, "first")
    scene.create_workload("second", cpus=4)
    wait_reserved(scene, "second")

    scene.rest.patch(first, {"spec": {"active": True}})

    wait_for(lambda: holding(scene, cluster_queue) == 2, "both hold quota")
    scene.release("first")
    # It queues again, behind the one that was admitted meanwhile.
    wait_for(lambda: "insufficient" in wait_waiting(scene, "first")["message"], "the first waits for quota")
    assert is_true(scene.workload("second"), "Admitted")
    assert not condition(scene.workload("second"), "Evicted")
    scene.rest.delete(f"{scene.workloads}/second")
    wait_reserved(scene, "first")


def test_a_slice_size_that_does_not_divide_the_pods_is_admitted(scene: Scene) -> None:
    create_placed_queue(scene)

    slices = {"podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2}
    create_placed(scene, "one", count=3, cpus=1, preferred=HOST, **slices)

    wait_reserved(scene, "one")


def test_a_group_that_covers_only_what_a_transformation_adds_needs_no_topology(scene: Scene) -> None:
    counted = scene.create_flavor("counted")
    create_placed_queue(scene, quota(counted, "example.com/credits", 10), memory=True)
    workload = make_workload("one")
    (pod_set,) = workload["spec"]["podSets"]
    pod_set["topologyRequest"] = {"required": HOST}
    (container,) = pod_set["template"]["spec"]["containers"]
    container["resources"]["requests"]["memory"] = 1

    scene.rest.create(scene.workloads, workload)

    wait_reserved(scene, "one")
    (assigned,) = scene.workload("one")["status"]["admission"]["podSetAssignments"]
    assert assigned["flavors"]["example.com/credits"] == counted
    assert assigned["resourceUsage"]["example.com/credits"] == "5"


# --- lives of Jobs -----------------------------------------------------------------------------------


def test_a_child_of_a_job_that_waits_gets_no_workload_where_all_jobs_are_queued(scene: Scene) -> None:
    scene.create_queue(cpus=0)
    scene.create_job("parent")
    scene.wait_workload("parent")
    parent = scene.job("parent")["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": parent["uid"]}
    child = make_job("child", queue=None, suspend=False)
    child["metadata"]["ownerReferences"] = [{**reference, "controller": True}]

    scene.rest.create(scene.jobs, child)

    wait_for(lambda: scene.job("child")["spec"]["suspend"], "the child suspended")
    scene.wait_events("child", "Suspended")
    assert scene.workloads_of("child") == []


def test_the_workload_of_a_job_has_no_annotation_that_the_job_does_not_have(scene: Scene) -> None:
    scene.create_queue(cpus=0)
    scene.create_job("one")
    scene.wait_pending("one", "ExceedsMaxQuota")

    (workload,) = scene.workloads_of("one")
    assert not workload["metadata"].get("annotations")


def test_an_apply_that_finishes_a_workload_after_its_readmission_is_taken(scene: Scene) -> None:
    scene.create_queue(preemption=PREEMPTS)
    scene.create_workload("low", cpus=4)
    wait_reserved(scene, "low")
    scene.create_workload("high", cpus=4, priority=10)
    wait_evicted(scene, "low")
    scene.release("low")
    wait_reserved(scene, "high")
    scene.rest.delete(f"{scene.workloads}/high")
    wait_reserved(scene, "low")

    ended = said("Finished", "Succeeded", "done", status="True")
    scene.rest.request(
        "PATCH",
        f"{scene.workloads}/low/status?fieldManager=kueue-finished&force=true",
        {**kueue_object("Workload", {"name": "low"}, {}), "status": {"conditions": [ended]}},
        content_type="application/apply-patch+yaml",
    )

    assert is_true(scene.workload("low"), "Finished")
    scene.create_workload("next", cpus=4)
    wait_reserved(scene, "next")


# --- pods --------------------------------------------------------------------------------------------


def test_the_pod_sets_of_a_group_have_kueues_role_hash_as_name(scene: Scene) -> None:
    scene.create_queue(cpus=0)
    container = {"name": "c", "image": "registry.k8s.io/pause:non-existing"}

    create_pods(scene, *(member(f"p-{n}", "group", 2, containers=[container]) for n in range(2)))

    wait_for(lambda: scene.rest.exists(f"{scene.workloads}/group"), "the Workload of the group")
    # The digits of Kueue's own tests are in the tests of the hash: what a server adds to a pod is part of it.
    stored = scene.rest.get(f"{scene.pods}/p-0")["spec"]
    assert [one["name"] for one in scene.workload("group")["spec"]["podSets"]] == [role_hash(stored)]


# --- conditions and Events ---------------------------------------------------------------------------


def limited(requests: Object, limits: Object | None = None) -> Object:
    """Return the changes of a Workload's only container."""
    return {"requests": requests, "limits": limits or {}}


@pytest.mark.parametrize(
    ("queue", "resources", "want"),
    [
        pytest.param(
            "main",
            limited({"cpu": 1}),
            "resources didn't satisfy LimitRange constraints: ",
            id="a LimitRange",
        ),
        pytest.param(
            "main",
            limited({"cpu": 3}, {"cpu": 2}),
            "resources validation failed: ",
            id="requests above limits",
        ),
        pytest.param(
            "nope", limited({"cpu": 2}), "LocalQueue nope doesn't exist", id="an unknown LocalQueue"
        ),
    ],
)
def test_why_a_workload_waits_begins_with_kueues_sentence(
    scene: Scene, queue: str, resources: Object, want: str
) -> None:
    scene.create_queue()
    limits = {"limits": [{"type": "Container", "min": {"cpu": 2}}]}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "least"}, "spec": limits}
    scene.rest.create(f"/api/v1/namespaces/{scene.namespace}/limitranges", body)
    workload = make_workload("one", queue=queue)
    workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = resources

    scene.rest.create(scene.workloads, workload)

    def says() -> bool:
        # Each kind comes by its own watch: the first reason may go by less than all of this.
        return str(condition(scene.workload("one"), "QuotaReserved").get("message", "")).startswith(want)

    wait_for(says, lambda: str(condition(scene.workload("one"), "QuotaReserved")))


def test_queues_and_flavors_have_the_finalizer_from_their_creation(scene: Scene) -> None:
    cluster_queue = scene.create_queue()
    flavor = f"/apis/{KUEUE}/resourceflavors/{scene.scoped('main-flavor')}"

    for path in (f"/apis/{KUEUE}/clusterqueues/{cluster_queue}", flavor):
        scene.rest.wait(
            path, lambda found: "kueue.x-k8s.io/resource-in-use" in found["metadata"].get("finalizers", ())
        )


def test_one_event_of_the_preemptor_counts_all_that_are_preempted_for_it(scene: Scene) -> None:
    scene.create_queue(preemption=PREEMPTS)
    for name in ("one", "two"):
        scene.create_workload(name, cpus=2)
    wait_reserved(scene, "one", "two")

    scene.create_workload("high", cpus=4, priority=10)

    def counts() -> list[int]:
        events = [
            one
            for one in scene.rest.get(scene.events)["items"]
            if (one["reason"], one["regarding"]["name"]) == ("PreemptedWorkload", "high")
        ]
        return [one.get("series", {}).get("count", 1) for one in events]

    wait_for(lambda: counts() == [2], lambda: f"one Event that counts 2: {counts()}")


def test_a_class_that_gains_value_moves_a_workload_without_owner(scene: Scene) -> None:
    scene.create_queue(cpus=0)
    high = scene.create_priority("high", 5)
    workload = make_workload("one", priority=5)
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": high}
    workload["spec"]["priorityClassRef"] = reference
    scene.rest.create(scene.workloads, workload)

    scene.rest.patch(f"/apis/{KUEUE}/workloadpriorityclasses/{high}", {"value": 9})

    wait_for(lambda: scene.workload("one")["spec"]["priority"] == 9, "priority 9")


# --- shapes and metrics ------------------------------------------------------------------------------


def test_what_host_names_have_in_common_is_written_once(scene: Scene) -> None:
    create_placed_queue(scene)

    create_placed(scene, "one", count=2, cpus=40, unconstrained=True)

    wait_reserved(scene, "one")
    (assigned,) = scene.workload("one")["status"]["admission"]["podSetAssignments"]
    (part,) = assigned["topologyAssignment"]["slices"]
    (names,) = part["valuesPerLevel"]
    assert names == {"individual": {"prefix": f"{scene.pool}-", "roots": ["0", "1"]}}
    assert part["podCounts"] == {"universal": 1}


def test_a_queue_without_quota_shows_no_flavors(scene: Scene) -> None:
    cluster_queue = scene.create_cluster_queue("none")
    scene.create_local_queue("main", cluster_queue)
    scene.create_workload("one")

    wait_for(
        lambda: scene.cluster_queue(cluster_queue).get("status", {}).get("pendingWorkloads"), "its status"
    )
    status = scene.cluster_queue(cluster_queue)["status"]
    assert not {"flavorsReservation", "flavorsUsage"} & status.keys()


def test_the_waiting_workloads_of_a_held_queue_count_as_inadmissible(
    scene: Scene, real_controller: Replica
) -> None:
    cluster_queue = scene.create_queue(stopPolicy="Hold")
    scene.create_workload("one")

    def pending(status: str) -> float:
        return real_controller.metric("kueue_pending_workloads", cluster_queue=cluster_queue, status=status)

    wait_for(lambda: pending("inadmissible") == 1, "one inadmissible Workload")
    assert pending("active") == 0


# --- gates --------------------------------------------------------------------


def test_a_boosted_workload_comes_before_an_older_one_of_its_priority(scene: Scene) -> None:
    cluster_queue = scene.create_queue(stopPolicy="Hold")
    scene.create_workload("older", cpus=4)
    boosted = make_workload("boosted", cpus=4)
    boosted["metadata"]["annotations"] = {"kueue.x-k8s.io/priority-boost": "1"}
    scene.rest.create(scene.workloads, boosted)

    def has_both() -> bool:
        return bool(scene.cluster_queue(cluster_queue).get("status", {}).get("pendingWorkloads") == 2)

    wait_for(has_both, "both wait")

    scene.rest.patch(f"/apis/{KUEUE}/clusterqueues/{cluster_queue}", {"spec": {"stopPolicy": "None"}})

    wait_reserved(scene, "boosted")
    assert not is_true(scene.workload("older"), "QuotaReserved")


# --- the file of an installation ---------------------------------------------------------------------


def test_a_job_runs_under_the_file_of_a_kueue_installation(scene: Scene) -> None:
    scene.create_queue()

    scene.create_job("one", seconds=0.1)

    scene.wait_finished("one")
