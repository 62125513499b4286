"""Workloads whose nodes an autoscaler brings, on a real control plane; the tests answer in its place."""

from __future__ import annotations

import pytest

from tests.integration.manifests import KUEUE, Object, condition, is_true, kueue_object
from tests.integration.provisioning import answer, create_check, requests_of
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

HOST = "kubernetes.io/hostname"


def wait_request(scene: Scene, attempt: int) -> Object:
    """Return the only request once it is of this attempt."""

    def probe() -> Object | None:
        found = [one for one in requests_of(scene) if one["metadata"]["name"].endswith(f"-{attempt}")]
        return found[0] if found else None

    return wait_for(scene.patiently(probe), f"request {attempt}")


def test_a_job_starts_on_the_nodes_that_its_second_request_brought(scene: Scene) -> None:
    selector = [{"key": HOST, "valueFromProvisioningClassDetail": "Node"}]
    check = create_check(
        scene,
        parameters={"one": "1"},
        retryStrategy={"backoffBaseSeconds": 1, "backoffLimitCount": 1},
        podSetUpdates={"nodeSelector": selector},
    )
    scene.create_queue(admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    scene.create_job("train", pods=2, annotations={"provreq.kueue.x-k8s.io/two": "2"})

    first = wait_request(scene, 1)
    assert first["spec"]["parameters"] == {"one": "1", "two": "2"}
    (pods,) = first["spec"]["podSets"]
    template = scene.rest.get(
        f"/api/v1/namespaces/{scene.namespace}/podtemplates/{pods['podTemplateRef']['name']}"
    )
    assert (pods["count"], template["template"]["spec"]["containers"][0]["name"]) == (2, "main")
    answer(scene, first["metadata"]["name"], "Failed", "no room")

    second = wait_request(scene, 2)
    assert [one["metadata"]["name"] for one in requests_of(scene)] == [second["metadata"]["name"]]
    answer(scene, second["metadata"]["name"], "Provisioned", "here", Node="blue-0")

    scene.wait_admitted("train")
    started = scene.job("train")["spec"]["template"]
    assert started["spec"]["nodeSelector"][HOST] == "blue-0"
    consumed = started["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"]
    assert consumed == second["metadata"]["name"]
    scene.set_active("train", active=False)
    wait_for(scene.patiently(lambda: not requests_of(scene)), "the request deleted")


def test_a_check_without_its_settings_says_so_and_a_request_that_is_refused_too(scene: Scene) -> None:
    check = create_check(scene, parameters={"one": "1"})
    scene.create_queue(admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    scene.create_job("train", annotations={"provreq.kueue.x-k8s.io/long": "x" * 300})

    name = scene.wait_workload("train")["metadata"]["name"]
    scene.wait_events(name, "FailedCreate")

    (state,) = scene.workload(name)["status"]["admissionChecks"]
    assert state["message"].startswith(f'Error creating ProvisioningRequest "{name}-{check}-1": ')
    path = "/apis/kueue.x-k8s.io/v1beta2"
    scene.rest.delete(f"{path}/provisioningrequestconfigs/{check}")
    found = scene.rest.wait(
        f"{path}/admissionchecks/{check}", lambda one: condition(one, "Active").get("status") == "False"
    )
    assert condition(found, "Active")["message"] == (
        f'ProvisioningRequestConfig.kueue.x-k8s.io "{check}" not found'
    )


def test_nodes_whose_booking_ends_before_the_start_are_asked_for_again_and_lost_ones_stop_the_job(
    scene: Scene,
) -> None:
    check = create_check(scene, retryStrategy={"backoffBaseSeconds": 0, "backoffLimitCount": 1})
    other = scene.scoped("budget")
    body = kueue_object("AdmissionCheck", {"name": other}, {"controllerName": "example.com/budget"})
    scene.rest.create(f"/apis/{KUEUE}/admissionchecks", body)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    status = {"status": {"conditions": [{**active, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    scene.rest.patch(f"/apis/{KUEUE}/admissionchecks/{other}/status", status)
    names = [{"name": name} for name in (check, other)]
    scene.create_queue(admissionChecksStrategy={"admissionChecks": names})
    scene.create_job("train")

    first = wait_request(scene, 1)["metadata"]["name"]
    answer(scene, first, "Provisioned")
    scene.wait_workload("train", lambda found: state_of(found, check)["state"] == "Ready", "nodes booked")
    # The other check takes too long.
    answer(scene, first, "BookingExpired", "too late")
    second = wait_request(scene, 2)["metadata"]["name"]
    answer(scene, second, "Provisioned")
    workload = scene.wait_workload(
        "train", lambda found: state_of(found, check)["state"] == "Ready", "booked again"
    )
    approve(scene, workload, other)
    scene.wait_admitted("train")

    answer(scene, second, "CapacityRevoked", "the nodes go")

    evicted = scene.wait_workload(
        "train", lambda found: is_true(found, "Evicted") and "admission" not in found["status"], "stopped"
    )
    assert evicted["spec"]["active"] is False
    assert scene.job("train")["spec"]["suspend"] is True


def test_each_flavor_asks_for_nodes_by_its_own_check(scene: Scene) -> None:
    near, far = (create_check(scene, name, provisioningClassName=f"{name}-class") for name in ("near", "far"))
    owned, *bought = (scene.create_flavor(name) for name in ("owned", "near-flavor", "far-flavor"))
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]} for name in (owned, *bought)]
    checks = [
        {"name": check, "onFlavors": [flavor]} for check, flavor in zip((near, far), bought, strict=True)
    ]
    queue = scene.create_cluster_queue(
        "main",
        {"coveredResources": ["cpu"], "flavors": flavors},
        admissionChecksStrategy={"admissionChecks": checks},
    )
    scene.create_local_queue("main", queue)

    scene.create_job("on-owned")
    scene.wait_admitted("on-owned")
    assert not requests_of(scene)
    scene.create_job("on-near")
    scene.wait_workload("on-near", lambda found: state_of(found, near)["state"] == "Pending", "asked")
    scene.create_job("on-far")
    scene.wait_workload("on-far", lambda found: state_of(found, far)["state"] == "Pending", "asked")

    wait_for(lambda: len(requests_of(scene)) == 2, "their requests")
    classes = {one["spec"]["provisioningClassName"] for one in requests_of(scene)}
    assert classes == {"near-class", "far-class"}
    for request in requests_of(scene):
        answer(scene, request["metadata"]["name"], "Provisioned")
    scene.wait_admitted("on-near", "on-far")


def state_of(workload: Object, check: str) -> Object:
    """Return what a Workload says of a check; its state is empty while it says nothing."""
    found = (one for one in workload.get("status", {}).get("admissionChecks") or () if one["name"] == check)
    return next(found, {"state": ""})


def approve(scene: Scene, workload: Object, check: str) -> None:
    """Write that a check is ready, as its own controller does."""
    path = f"{scene.workloads}/{workload['metadata']['name']}"

    def write() -> bool:
        found = scene.rest.get(path)
        states = [
            {**one, **({"state": "Ready", "message": "granted"} if one["name"] == check else {})}
            for one in found["status"]["admissionChecks"]
        ]
        version = {"resourceVersion": found["metadata"]["resourceVersion"]}
        scene.rest.patch(f"{path}/status", {"metadata": version, "status": {"admissionChecks": states}})
        return True

    # Others write the same list.
    wait_for(scene.patiently(write), "the check written")
