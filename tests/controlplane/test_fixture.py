"""The control plane of the tests is a real one: it keeps objects, runs Jobs, survives what tests do to it."""

from __future__ import annotations

from typing import Any

import pytest

from tests import parts
from tests.controlplane import ControlPlane, RestError, clean
from tests.controlplane.definitions import install_crds

_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def make_crd(group: str, plural: str, kind: str) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}
            ],
        },
    }


def make_job(name: str, *, suspend: bool) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "suspend": suspend,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def make_node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "capacity": {"cpu": "8", "pods": "110"},
            "allocatable": {"cpu": "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": ""}],
        },
    }


def test_a_suspended_job_is_kept_with_the_servers_defaults(
    control_plane: ControlPlane, namespace: str
) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    created = control_plane.rest.create(jobs, make_job("one", suspend=True))

    assert created["spec"]["suspend"] is True
    assert created["spec"]["backoffLimit"] == 6
    assert created["metadata"]["uid"]


def test_a_custom_kind_is_served_once_its_definition_is_established(
    control_plane: ControlPlane, namespace: str
) -> None:
    crds = [make_crd("fixture.example", "boats", "Boat")]
    install_crds(control_plane.rest, crds)
    install_crds(control_plane.rest, crds)

    boats = f"/apis/fixture.example/v1/namespaces/{namespace}/boats"
    body = {"apiVersion": "fixture.example/v1", "kind": "Boat", "metadata": {"name": "one"}}
    control_plane.rest.create(boats, body)

    assert [item["metadata"]["name"] for item in control_plane.rest.get(boats)["items"]] == ["one"]


def test_a_user_without_rights_is_refused_until_a_role_is_bound(
    control_plane: ControlPlane, namespace: str
) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    with pytest.raises(RestError) as refused:
        control_plane.user_rest.get(jobs)
    assert refused.value.reason == "Forbidden"

    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]}]
    binding = {
        "metadata": {"name": "low-may-look"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "jobs"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "low"}],
    }
    rbac = f"/apis/{group}/v1/namespaces/{namespace}"
    control_plane.rest.create(f"{rbac}/roles", {"metadata": {"name": "jobs"}, "rules": rules})
    control_plane.rest.create(f"{rbac}/rolebindings", binding)

    control_plane.user_rest.wait(jobs, lambda jobs: jobs["items"] == [])


def test_the_controllers_bind_the_pod_of_a_job_to_a_simulated_node(clean_cluster: ControlPlane) -> None:
    parts.need("controllers")
    clean_cluster.start_controllers()
    namespace = clean_cluster.create_namespace()
    clean_cluster.rest.create("/api/v1/nodes", make_node("simulated"))

    clean_cluster.rest.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", make_job("one", suspend=False))

    pods = clean_cluster.rest.wait(
        f"/api/v1/namespaces/{namespace}/pods",
        lambda pods: any(pod["spec"].get("nodeName") for pod in pods["items"]),
    )
    assert [pod["spec"]["nodeName"] for pod in pods["items"]] == ["simulated"]


def test_cleaning_removes_what_finalizers_hold_and_leaves_the_definitions(
    control_plane: ControlPlane, namespace: str
) -> None:
    crd = make_crd("kueue.x-k8s.io", "castaways", "Castaway")
    crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test's"}
    install_crds(control_plane.rest, [crd])
    castaways = f"/apis/kueue.x-k8s.io/v1/namespaces/{namespace}/castaways"
    metadata = {"name": "held", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}
    held = {"apiVersion": "kueue.x-k8s.io/v1", "kind": "Castaway", "metadata": metadata}
    control_plane.rest.create(castaways, held)

    clean(control_plane.rest)

    assert control_plane.rest.get(castaways)["items"] == []
    control_plane.rest.delete(
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    )


def test_a_killed_server_comes_back_with_its_data(fresh_control_plane: ControlPlane) -> None:
    namespace = fresh_control_plane.create_namespace()

    fresh_control_plane.kill_apiserver()
    with pytest.raises(ConnectionRefusedError):
        fresh_control_plane.rest.get("/readyz")
    fresh_control_plane.restart_apiserver()

    assert fresh_control_plane.rest.exists(f"/api/v1/namespaces/{namespace}")
