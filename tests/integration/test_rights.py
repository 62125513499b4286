"""A controller with the rights of deploy/rbac.yaml and no others, on a real server that holds it to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import parts
from tests.controlplane import ControlPlane, Rest, find_assets
from tests.controlplane.definitions import install_definitions
from tests.integration.conftest import Cluster, Controllers
from tests.integration.nodes import simulated_nodes
from tests.integration.pods import create, make_pod, wait_gone, wait_pod
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("rights")]

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMESPACE = "berth-system"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
# Also checks which clients may set blockOwnerDeletion, which OpenShift does by default.
STRICT = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Give a control plane of this test's own: its user is bound to roles of the whole cluster."""
    parts.need("controllers")
    folder = tmp_path / "controlplane"
    folder.mkdir()
    with ControlPlane(find_assets(), folder, apiserver_flags=[STRICT]) as plane:
        install_definitions(plane.rest)
        plane.start_controllers()
        yield plane


def bind_roles(rest: Rest, user: str) -> None:
    """Apply deploy/rbac.yaml with this user in the place of the ServiceAccount."""
    rest.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for one in yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text()):
        if one["kind"] == "ServiceAccount":
            continue
        if "subjects" in one:
            one["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
        root = RBAC if one["kind"].startswith("Cluster") else f"{RBAC}/namespaces/{NAMESPACE}"
        rest.create(f"{root}/{one['kind'].lower()}s", one)


@pytest.mark.covers("002_27")
def test_the_roles_of_deploy_are_all_that_a_controller_needs(
    plane: ControlPlane, controllers: Controllers, tmp_path: Path
) -> None:
    bind_roles(plane.rest, "low")
    config = yaml.safe_load((DEPLOY / "config.yaml").read_text())["data"]["config.yaml"]
    with simulated_nodes(plane.kubeconfig, tmp_path, "blue:1:64"):
        scene = Cluster(rest=plane.rest, kubeconfig=plane.kubeconfig, pool="blue").new_scene()
        queue = scene.create_queue(cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
        priority = {"kueue.x-k8s.io/priority-class": scene.create_priority("high", 10)}
        ports = ("--visibility-port", "0", "--webhook-port", "0", "--extender-port", "0")
        started = controllers.start(
            plane.user_kubeconfig, "--namespace", NAMESPACE, *ports, config=config, name="bound"
        )
        started.wait_leading()

        play_jobs(scene, priority)
        play_pods(scene, priority)
        scene.rest.delete(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}")
        wait_for(lambda: not scene.rest.exists(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}"), "gone")

    assert "forbidden" not in started.log().lower()


def play_jobs(scene: Scene, priority: dict[str, str]) -> None:
    """Start, preempt, restart and finish Jobs."""
    scene.create_job("short", seconds=0.1)
    scene.wait_finished("short")
    scene.create_job("low", cpus=2)
    scene.wait_admitted("low")
    scene.create_job("high", cpus=2, labels=priority)
    scene.wait_admitted("high")
    scene.wait_pending("low")
    scene.delete_job("high")
    scene.wait_admitted("low")
    scene.delete_job("low")
    scene.delete_job("short")
    wait_for(lambda: scene.rest.get(scene.workloads)["items"] == [], "the Workloads gone")


def play_pods(scene: Scene, priority: dict[str, str]) -> None:
    """Let pods go, and end one that is preempted."""
    create(scene, make_pod("first", cpus=2))
    wait_pod(scene, "first", "Running")
    create(scene, make_pod("second", cpus=2, labels=priority))
    wait_pod(scene, "second", "Running")
    wait_gone(scene, "first")
    scene.rest.delete(f"{scene.pods}/second")
    wait_gone(scene, "second")
    wait_for(lambda: scene.rest.get(scene.workloads)["items"] == [], "the Workloads gone")
