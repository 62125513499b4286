"""Quota windows as people meet them: one opens seconds from now, and what waits starts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from api.parsing.times import to_rfc3339
from tests.integration.conftest import Cluster
from tests.integration.manifests import LONG, Object, condition, is_true, make_job
from tests.integration.replica import BERTH, Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"


def make_policy(scene: Scene, queue: str, *windows: Object, **spec: Any) -> Object:
    """Return a policy of the queue with these windows of its CPUs."""
    fixed = {"clusterQueue": queue, "flavor": scene.scoped("main-flavor"), "resource": "cpu"}
    return {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": scene.scoped("calendar")},
        "spec": {
            "clusterQueues": {"names": [queue]},
            "quotaWindows": [{**fixed, **window} for window in windows],
            **spec,
        },
    }


def opening_in(seconds: float) -> Object:
    """Return a window of eight CPUs that opens in `seconds`, for an hour."""
    start = time.time() + seconds
    return {
        "name": "soon",
        "nominalQuota": "8",
        "start": to_rfc3339(start),
        "end": to_rfc3339(start + 3600),
    }


@pytest.fixture
def policies(embedded_scene: Scene) -> Iterator[Scene]:
    """Give a scene without any policy, before and after."""
    yield embedded_scene
    embedded_scene.rest.delete(POLICIES)


def status_of(scene: Scene) -> Object:
    return dict(scene.rest.get(f"{POLICIES}/{scene.scoped('calendar')}").get("status") or {})


def test_a_waiting_job_starts_when_a_window_opens_and_every_view_shows_the_quota_in_force(
    policies: Scene, embedded_controller: Replica, embedded_cluster: Cluster
) -> None:
    scene = policies
    queue = scene.create_queue(cpus=1)
    scene.create_job("large", cpus=4)

    scene.rest.create(POLICIES, make_policy(scene, queue, opening_in(3)))

    scene.wait_admitted("large")
    wait_for(lambda: bool(status_of(scene).get("quotasInForce")), "the policy shows the open window")
    (shown,) = status_of(scene)["quotasInForce"]
    assert (shown["clusterQueue"], shown["window"], shown["nominalQuota"]) == (queue, "soon", "8")
    (window,) = status_of(scene)["quotaWindows"]
    assert (window["state"], window["closesAt"]) == ("Active", shown["until"])
    command = [BERTH, "get", "queues", "--kubeconfig", embedded_cluster.kubeconfig]
    wait_for(lambda: "4/8 (soon until" in _line_of(queue, command), "berth get queues shows the window")
    view = embedded_controller.json(f"/v1/clusterqueues/{queue}")
    assert view["quotasInForce"][0]["insteadOf"] == "1"
    labels = {"cluster_queue": queue, "window": "soon"}
    assert embedded_controller.metric("berth_cluster_queue_quota_in_force", **labels) == 8
    assert scene.cluster_queue(queue)["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] == {
        "name": "cpu",
        "nominalQuota": 1,
    }


def _line_of(queue: str, command: list[str]) -> str:
    shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return next((line for line in shown.splitlines() if line.startswith(queue)), "")


def test_a_window_with_a_mistake_is_named_and_the_other_holds(
    policies: Scene, embedded_controller: Replica
) -> None:
    scene = policies
    assert embedded_controller.child.is_running()
    queue = scene.create_queue(cpus=1)
    scene.create_job("large", cpus=4)
    wrong = {**opening_in(-5), "name": "wrong", "flavor": "gold"}

    scene.rest.create(POLICIES, make_policy(scene, queue, wrong, opening_in(-5)))

    scene.wait_admitted("large")
    flavor = scene.scoped("main-flavor")
    want = f'spec.quotaWindows[0].flavor is "gold": ClusterQueue {queue} has flavors {flavor}'
    wait_for(lambda: want in _message(scene), "the condition names the window")
    wait_for(lambda: any(want in note for note in _notes(scene)), "an Event names it")


def _message(scene: Scene) -> str:
    return str(condition({"status": status_of(scene)}, "Accepted").get("message", ""))


def _notes(scene: Scene) -> list[str]:
    events = scene.rest.get("/apis/events.k8s.io/v1/events")["items"]
    name = scene.scoped("calendar")
    return [one.get("note", "") for one in events if one.get("regarding", {}).get("name") == name]


@pytest.mark.real
@pytest.mark.xdist_group("kueue")
def test_a_window_opens_on_a_real_control_plane(real_scene: Scene, real_controller: Replica) -> None:
    scene = real_scene
    assert real_controller.child.is_running()
    queue = scene.create_queue(cpus=1)
    scene.create_job("large", cpus=4)
    start = time.time() - 5
    too_large = reserved(scene, start, start + 3600, cpus=9)
    kept = {**reserved(scene, start, start + 3600, cpus=1), "name": "small"}
    policy = make_policy(scene, queue, opening_in(3), reservations=[too_large, kept])
    path = f"{POLICIES}/{policy['metadata']['name']}"
    scene.rest.create(POLICIES, policy)
    try:
        scene.wait_admitted("large")
        found = scene.rest.wait(path, lambda found: states_of(found) == [["Active"], ["Refused", "Active"]])
        assert condition(found, "Accepted")["reason"] == "PartlyInForce"
        assert "resources[0].amount is 9" in found["status"]["reservations"][0]["message"]
        assert found["status"]["reservations"][1]["resources"][0]["amount"] == "1"
    finally:
        scene.rest.delete(path)


def states_of(policy: Object) -> list[list[str]]:
    """Return the states of a policy's windows and reservations, as its status says."""
    status = policy.get("status") or {}
    return [[one["state"] for one in status.get(field) or ()] for field in ("quotaWindows", "reservations")]


def reserved(scene: Scene, start: float, end: float, *, cpus: int) -> Object:
    """Return the reservation `big` for the scene's LocalQueue."""
    return {
        "name": "big",
        "namespace": scene.namespace,
        "localQueue": "main",
        "start": to_rfc3339(start),
        "end": to_rfc3339(end),
        "resources": [{"flavor": scene.scoped("main-flavor"), "resource": "cpu", "amount": str(cpus)}],
    }


def joining(name: str, **fields: Any) -> Object:
    """Return a Job that asks for the reservation `big`."""
    job = make_job(name, **fields)
    job["metadata"]["annotations"] = {"berth.dev/reservation": "big"}
    return job


def test_a_reservation_admits_its_members_and_no_other_job(
    policies: Scene, embedded_controller: Replica, embedded_cluster: Cluster
) -> None:
    scene = policies
    queue = scene.create_queue(cpus=4)
    start = time.time() + 4
    reservation = reserved(scene, start, start + 3600, cpus=4)
    scene.rest.create(POLICIES, make_policy(scene, queue, reservations=[reservation]))
    wait_for(lambda: (embedded_controller.view_of(queue) or {}).get("reservations"), "it is in force")

    # Before its start and after it: the answer is the same, so it does not matter how long this takes.
    scene.create_job("other", cpus=1)
    scene.wait_pending("other", says="may still run when reservation big keeps 4 cpu")
    scene.rest.create(scene.jobs, joining("member", cpus=4))

    scene.wait_admitted("member")
    assert not is_true(scene.workload_of("other"), "Admitted")
    workload = scene.workload_of("member")
    assert workload is not None
    user = f"{scene.namespace}/{workload['metadata']['name']}"
    wait_for(lambda: _row(embedded_cluster)["users"] == [user], "the views show what uses it")
    assert _row(embedded_cluster)["state"] == "active"


def _row(cluster: Cluster) -> Object:
    """Return the only reservation, as `berth get` shows it."""
    command = [BERTH, "get", "reservations", "-o", "json", "--kubeconfig", cluster.kubeconfig]
    shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    (row,) = json.loads(shown)
    return dict(row)


def test_a_job_that_names_a_missing_reservation_gets_a_reason(
    policies: Scene, embedded_controller: Replica
) -> None:
    scene = policies
    assert embedded_controller.child.is_running()
    scene.create_queue(cpus=4)

    scene.rest.create(scene.jobs, joining("lost"))

    want = 'berth.dev/reservation is "big": there is no such reservation'
    assert scene.wait_pending("lost", "Misconfigured", want)["message"] == want


def test_run_times_are_shown_and_a_running_job_says_better(
    policies: Scene, embedded_controller: Replica, embedded_cluster: Cluster
) -> None:
    scene = policies
    scene.create_queue(cpus=4)
    scene.create_job("train-1", seconds=1)
    scene.wait_finished("train-1")
    command = [BERTH, "get", "estimates", "-n", scene.namespace, "-o", "json"]
    command += ["--kubeconfig", embedded_cluster.kubeconfig]
    shown = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert [(row["stem"], row["runs"]) for row in shown] == [("train", 1)]

    scene.create_job("train-2", seconds=LONG)
    scene.wait_admitted("train-2")
    completion = {"berth.dev/expected-completion-time": to_rfc3339(time.time() + 7200)}
    scene.rest.patch(f"{scene.jobs}/train-2", {"metadata": {"annotations": completion}})

    workload = scene.workload_of("train-2")
    assert workload is not None
    path = f"/v1/workloads/{scene.namespace}/{workload['metadata']['name']}"

    def estimate() -> Object:
        return dict(embedded_controller.json(path)["estimate"] or {})

    wait_for(lambda: estimate().get("source") == "CompletionTime", "its latest word counts")
    assert 7000 < estimate()["seconds"] <= 7201
