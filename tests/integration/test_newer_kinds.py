"""A Kueue newer than Berth has installed its kinds: what Berth does not know survives Berth's writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.controlplane import Rest
from tests.controlplane.definitions import CRDS
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import KUEUE, Object, condition, is_true
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("line")]


@contextmanager
def a_newer_field(rest: Rest, plural: str) -> Iterator[None]:
    """Let the kind have a field `status.ofTheFuture`."""
    path = f"{CRDS}/{plural}.kueue.x-k8s.io"
    original = rest.get(path)["spec"]["versions"]
    newer = json.loads(json.dumps(original))
    for version in newer:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        status["properties"]["ofTheFuture"] = {"type": "string"}
    rest.patch(path, {"spec": {"versions": newer}})
    try:
        yield
    finally:
        rest.patch(path, {"spec": {"versions": original}})
        # Until its storage is ready again, the kind answers 429.
        rest.wait(f"/apis/{KUEUE}/{plural}", lambda found: "items" in found)


def set_newer_field(rest: Rest, path: str) -> None:
    """Write the field as the newer Kueue would; the server drops it until it serves the newer kind."""
    body = {"status": {"ofTheFuture": "kept"}}
    wait_for(
        lambda: rest.patch(f"{path}/status", body)["status"].get("ofTheFuture"), "the newer kind being served"
    )


@pytest.mark.parametrize(
    ("plural", "name", "is_written"),
    [
        pytest.param(
            "workloads",
            "namespaces/{namespace}/workloads/second",
            lambda found: is_true(found, "Admitted"),
            id="a Workload that is admitted",
        ),
        pytest.param(
            "clusterqueues",
            "clusterqueues/{namespace}-main",
            lambda found: found["status"].get("admittedWorkloads") == 1,
            id="a ClusterQueue whose status is counted",
        ),
        pytest.param(
            "localqueues",
            "namespaces/{namespace}/localqueues/main",
            lambda found: found["status"].get("admittedWorkloads") == 1,
            id="a LocalQueue whose status is counted",
        ),
    ],
)
def test_a_field_of_a_newer_version_survives_on(
    plural: str,
    name: str,
    is_written: Callable[[Object], bool],
    real_cluster: Cluster,
    real_scene: Scene,
    controllers: Controllers,
) -> None:
    scene, path = real_scene, f"/apis/{KUEUE}/{name.format(namespace=real_scene.namespace)}"
    scene.create_queue(cpus=1)
    scene.create_workload("second")
    with a_newer_field(scene.rest, plural):
        set_newer_field(scene.rest, path)

        controllers.start(real_cluster.kubeconfig, "--namespace", real_cluster.new_scene().namespace)
        written = scene.rest.wait(path, is_written)

    assert written["status"]["ofTheFuture"] == "kept"
    assert condition(written, "Active") or is_true(written, "QuotaReserved")
