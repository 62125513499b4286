"""deploy/uninstall.sh on a real control plane: what runs goes on, and nothing of Berth stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import parts
from tests.controlplane import ControlPlane, RestError, find_assets
from tests.integration import shipped
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import Object, make_job
from tests.integration.nodes import simulated_nodes
from tests.integration.pods import make_pod
from tests.integration.scene import Scene
from tests.integration.shipped import DEPLOY, NAMESPACE, kubectl
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("uninstalling")]

POD_FINALIZER = "kueue.x-k8s.io/managed"
# Of another program, which has to do its work before the pod is gone.
OTHERS = "example.com/records"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """Give a control plane of its own with deploy/ applied, and nodes."""
    parts.need("controllers")
    parts.need("kubectl")
    folder = tmp_path / "controlplane"
    folder.mkdir()
    with ControlPlane(find_assets(), folder) as plane:
        plane.start_controllers()
        shipped.install(plane)
        plane.rest.wait("/apis/kueue.x-k8s.io/v1beta2/workloads", lambda found: "items" in found)
        with simulated_nodes(plane.kubeconfig, folder, "blue:2:64"):
            yield plane


# In place of kubectl: a Workload goes after it was listed and before the list is patched, once.
LOSES_ONE = """#!/bin/sh
case "$*" in
  "patch --filename"*)
    cat > "$HOME/listed"
    if mkdir "$HOME/went" 2>/dev/null; then
      KUBECTL patch -n NAMESPACE workload NAME --type merge --patch '{"metadata":{"finalizers":null}}'
      KUBECTL delete -n NAMESPACE workload NAME
    fi
    exec KUBECTL "$@" < "$HOME/listed" ;;
esac
exec KUBECTL "$@"
"""


def uninstall(plane: ControlPlane, goes: Object | None = None) -> str:
    """Run the script as the administrator, and return what it prints; `goes` names a Workload that goes."""
    kubectl = Path(parts.find_kubectl())
    environment = {
        "KUBECONFIG": plane.kubeconfig,
        "HOME": str(plane.folder),
        "PATH": f"{plane.folder}:{kubectl.parent}:{os.environ['PATH']}",
    }
    if goes is not None:
        metadata = goes["metadata"]
        words = {"KUBECTL": str(kubectl), "NAMESPACE": metadata["namespace"], "NAME": metadata["name"]}
        script = LOSES_ONE
        for word, value in words.items():
            script = script.replace(word, value)
        (plane.folder / "kubectl").write_text(script)
        (plane.folder / "kubectl").chmod(0o755)
    done = subprocess.run(
        ["sh", str(DEPLOY / "uninstall.sh")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_served(plane: ControlPlane, path: str) -> bool:
    """Return whether there is an object or a kind at the path."""
    try:
        plane.rest.get(path)
    except RestError as error:
        if error.status == 404:
            return False
        raise
    return True


def is_running(scene: Scene, pod: str) -> bool:
    """Return whether the pod of this name runs."""
    return bool(scene.rest.get(f"{scene.pods}/{pod}").get("status", {}).get("phase") == "Running")


def start_work(plane: ControlPlane, scene: Scene) -> Object:
    """Have a Job and a pod run, and two Jobs and a pod wait. Return the Workload of the second Job."""
    scene.create_queue(cpus=2)
    scene.create_job("runs")
    served = make_pod("served")
    served["metadata"]["finalizers"] = [POD_FINALIZER, OTHERS]
    scene.rest.create(scene.pods, served)
    scene.wait_admitted("runs")
    wait_for(lambda: is_running(scene, "served"), "the pod to run")
    scene.create_job("waits", cpus=2)
    scene.wait_pending("waits")
    scene.create_job("goes", cpus=2)
    scene.wait_pending("goes")
    scene.rest.create(scene.pods, make_pod("gated", cpus=2))
    wait_for(lambda: scene.pods_of("runs")[0]["status"].get("phase") == "Running", "the Job's pod to run")
    return scene.wait_workload("goes")


def test_what_runs_goes_on_when_berth_is_taken_away(plane: ControlPlane, controllers: Controllers) -> None:
    config = yaml.safe_load((DEPLOY / "config.yaml").read_text())["data"]["config.yaml"]
    account = shipped.account_kubeconfig(plane)
    controller = controllers.start(account, "--namespace", NAMESPACE, config=config)
    scene = Cluster(rest=plane.rest, kubeconfig=plane.kubeconfig, pool="blue").new_scene()
    goes = start_work(plane, scene)
    for part in ("webhooks", "visibility"):
        kubectl(plane, "apply", "-k", str(DEPLOY / part))
    (before,) = scene.pods_of("runs")
    # In a cluster it ends with its Deployment, and a controller that does not run here lets go of the volume.
    controller.child.kill()
    claim = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/data-berth-redis-0"
    plane.rest.patch(claim, {"metadata": {"finalizers": None}})

    printed = uninstall(plane, goes=goes)

    assert (plane.folder / "went").is_dir()
    assert {f"job {scene.namespace}/waits", f"pod {scene.namespace}/gated"} <= set(printed.splitlines())
    (after,) = scene.pods_of("runs")
    assert (after["metadata"]["uid"], after["status"]["phase"]) == (before["metadata"]["uid"], "Running")
    assert not scene.job("runs")["spec"]["suspend"]
    assert scene.rest.get(f"{scene.pods}/served")["metadata"]["finalizers"] == [OTHERS]
    assert is_running(scene, "served")
    for path in (
        "/apis/kueue.x-k8s.io/v1beta2/workloads",
        "/apis/berth.dev/v1alpha1/admissionpolicies",
        f"/api/v1/namespaces/{NAMESPACE}",
    ):
        assert not is_served(plane, path)
    # No webhook refuses it, and no policy.
    scene.rest.create(scene.jobs, make_job("later", suspend=False))
    scene.rest.delete(f"{scene.pods}/gated")
    wait_for(lambda: not is_served(plane, f"{scene.pods}/gated"), "the waiting pod to go")
    uninstall(plane)
