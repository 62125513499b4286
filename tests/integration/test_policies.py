"""AdmissionPolicies as administrators meet them: which is in force, where, and what is wrong with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import Cluster
from tests.integration.manifests import Object, condition, quota
from tests.integration.replica import BERTH, Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

GPU = "nvidia.com/gpu"
POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"

pytestmark = pytest.mark.xdist_group("policies")


@pytest.fixture
def scene(embedded_controller: Replica, embedded_scene: Scene) -> Iterator[Scene]:
    """Give a scene without any policy, before and after."""
    assert embedded_controller.child.is_running()
    yield embedded_scene
    embedded_scene.rest.delete(POLICIES)


def create_policy(scene: Scene, name: str, **spec: Any) -> str:
    """Create a policy; return its full name."""
    body = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy"}
    scene.rest.create(POLICIES, {**body, "metadata": {"name": scene.scoped(name)}, "spec": spec})
    return scene.scoped(name)


def read_status(scene: Scene, name: str) -> Object:
    """Return a policy's status, {} before it is first written."""
    return dict(scene.rest.get(f"{POLICIES}/{scene.scoped(name)}").get("status") or {})


def accepted(scene: Scene, name: str) -> Object:
    """Return a policy's Accepted condition, {} while there is none."""
    conditions = read_status(scene, name).get("conditions") or []
    return next((dict(one) for one in conditions if one["type"] == "Accepted"), {})


def wait_accepted(scene: Scene, name: str, reason: str) -> str:
    """Wait until the condition has this reason; return its message."""
    wait_for(lambda: accepted(scene, name).get("reason") == reason, f"policy {name} {reason}")
    return str(accepted(scene, name)["message"])


def test_a_policy_lists_the_queues_that_it_governs(scene: Scene) -> None:
    queue = scene.create_queue("main")
    scene.create_queue("other")

    create_policy(scene, "mine", clusterQueues={"names": [queue]})

    assert wait_accepted(scene, "mine", "InForce") == f"Governs ClusterQueue {queue}"
    status = read_status(scene, "mine")
    assert (status["clusterQueueCount"], status["clusterQueues"]) == (1, [queue])


def test_of_two_policies_the_one_of_higher_precedence_governs(scene: Scene) -> None:
    queue = scene.create_queue("main")
    create_policy(scene, "low", clusterQueues={"names": [queue]})
    wait_accepted(scene, "low", "InForce")

    create_policy(scene, "high", clusterQueues={"names": [queue]}, precedence=1)

    assert wait_accepted(scene, "high", "InForce") == f"Governs ClusterQueue {queue}"
    wait_for(lambda: read_status(scene, "low").get("clusterQueueCount") == 0, "low governs no queue")
    scene.rest.delete(f"{POLICIES}/{scene.scoped('high')}")
    wait_for(lambda: read_status(scene, "low").get("clusterQueueCount") == 1, "low governs again")


def test_a_policy_inherits_once_its_base_is_there(scene: Scene) -> None:
    queue, base = scene.create_queue("main"), scene.scoped("base")
    create_policy(scene, "own", clusterQueues={"names": [queue]}, base=base, preemption={})
    missing = f"spec.base is {base!r}, but no valid AdmissionPolicy has this name; create or correct it"
    assert wait_accepted(scene, "own", "Invalid") == f"The policy is not in force: {missing}"

    create_policy(scene, "base", clusterQueues={"names": [scene.scoped("none")]}, estimates={}, preemption={})

    want = f"Governs ClusterQueue {queue}; inherits estimates from policy {base}"
    assert wait_accepted(scene, "own", "InForce") == want


def test_a_policy_that_takes_sections_away_from_a_queue_names_them(scene: Scene) -> None:
    queue = scene.create_queue("main")
    low = create_policy(scene, "low", clusterQueues={"names": [queue]}, estimates={}, preemption={})
    wait_accepted(scene, "low", "InForce")

    create_policy(scene, "high", clusterQueues={"names": [queue]}, precedence=1, estimates={})

    want = (
        f"Governs ClusterQueue {queue}; takes preemption away from ClusterQueue {queue}, which policy {low}"
        " would give: name it as spec.base, or repeat these sections here, to keep them"
    )
    assert wait_accepted(scene, "high", "InForce") == want
    # Once it has them all, it says no more.
    path = f"{POLICIES}/{scene.scoped('high')}"
    scene.rest.patch(path, {"spec": {"preemption": {}}})
    wait_for(
        lambda: accepted(scene, "high")["message"] == f"Governs ClusterQueue {queue}", "nothing is missing"
    )


def test_a_queue_is_selected_by_its_labels(scene: Scene) -> None:
    queue = scene.create_queue("main")
    tier = scene.namespace
    create_policy(scene, "gold", clusterQueues={"selector": {"matchLabels": {"tier": tier}}})
    assert wait_accepted(scene, "gold", "InForce").startswith("Governs no ClusterQueue")

    path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}"
    scene.rest.patch(path, {"metadata": {"labels": {"tier": tier}}})

    wait_for(lambda: read_status(scene, "gold").get("clusterQueues") == [queue], "the queue is governed")


def test_a_policy_that_cannot_be_used_says_what_is_wrong(scene: Scene) -> None:
    """The schema lets falling levels through; the condition and an Event name field, value and rule."""
    name = create_policy(scene, "broken", ordering={"levels": [10, 1]})

    want = "The policy is not in force: spec.ordering.levels is [10.0, 1.0]: must be in ascending order"
    assert wait_accepted(scene, "broken", "Invalid") == want
    assert accepted(scene, "broken")["status"] == "False"
    wait_for(lambda: want in notes_about(scene, name), "an Event about it")


@pytest.mark.covers("004_23")
def test_two_jobs_take_turns_under_least_attained(scene: Scene) -> None:
    """Each has room alone. The one that runs is preempted once it has received twice as much as the other."""
    queue = scene.create_cluster_queue("main", quota(scene.create_flavor(), GPU, 8))
    scene.create_local_queue("main", queue)
    levels = [0.001 * 2**power for power in range(16)]
    ordering = {"mode": "LeastAttained", "levels": levels}
    create_policy(
        scene,
        "turns",
        clusterQueues={"names": [queue]},
        ordering=ordering,
        preemption={"minimumRuntimeSeconds": 1},
    )
    wait_for(lambda: accepted(scene, "turns").get("status") == "True", "the policy is in force")
    eight = {"name": "main", "image": "none", "resources": {"limits": {GPU: 8}, "requests": {GPU: 8}}}

    scene.create_job("first", containers=[eight])
    scene.wait_admitted("first")
    scene.create_job("second", containers=[eight])

    scene.wait_admitted("second")
    evicted = condition(scene.workload_of("first"), "Evicted")
    assert evicted["reason"] == "Preempted"
    scene.wait_admitted("first")


def notes_about(scene: Scene, name: str) -> list[str]:
    """Return the notes of all Events about an object."""
    events = scene.rest.get("/apis/events.k8s.io/v1/events")["items"]
    return [one["note"] for one in events if one.get("regarding", {}).get("name") == name]


def test_a_mended_policy_comes_into_force(scene: Scene) -> None:
    name = create_policy(scene, "broken", ordering={"levels": [10, 1]})
    wait_accepted(scene, "broken", "Invalid")

    scene.rest.patch(f"{POLICIES}/{name}", {"spec": {"ordering": {"levels": [1, 10]}}})

    wait_accepted(scene, "broken", "InForce")


def test_policies_are_listed(scene: Scene, embedded_cluster: Cluster) -> None:
    name = create_policy(scene, "listed", precedence=7)
    wait_accepted(scene, "listed", "InForce")

    command = [BERTH, "get", "policies", "-o", "json", "--kubeconfig", embedded_cluster.kubeconfig]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    (row,) = [row for row in rows if row["name"] == name]
    assert (row["precedence"], row["accepted"], row["reason"]) == (7, True, "InForce")
