"""Workloads whose nodes an autoscaler brings, on a real control plane; the tests answer in its place."""

from __future__ import annotations

import pytest

from tests.integration.manifests import Object, condition
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
