"""Controllers beside the CustomResourceDefinitions of the release before and of the next one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from api.definitions.crds import KINDS, crd
from tests.controlplane import Rest
from tests.controlplane.definitions import CRDS
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import KUEUE, condition, is_true
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("line")]

Schema = dict[str, Any]
# What the release before is taken to lack: settings of queues, and reports on both kinds of objects.
OLDER = {
    "ClusterQueue": (("spec", "admissionScope"), ("spec", "fairSharing"), ("status", "flavorsUsage")),
    "Workload": (("status", "accumulatedPastExecutionTimeSeconds"), ("status", "unhealthyNodes")),
}
# What the next one adds: fields, and a condition that no status may lose again.
KEPT = "!has(oldSelf.conditions) || !oldSelf.conditions.exists(c, c.type == 'OfTheFuture')"
HAS = "has(self.conditions) && self.conditions.exists(c, c.type == 'OfTheFuture')"


def remove(kind: str, schema: Schema) -> None:
    """Remove what the release before lacks."""
    for part, field in OLDER[kind]:
        del schema["properties"][part]["properties"][field]


def add(_: str, schema: Schema) -> None:
    """Add what the next release has."""
    for part in ("spec", "status"):
        schema["properties"][part]["properties"]["ofTheFuture"] = {"type": "string"}
    rules = schema["properties"]["status"].setdefault("x-kubernetes-validations", [])
    rules.append({"rule": f"({KEPT}) || ({HAS})", "message": "OfTheFuture must be kept"})


@contextmanager
def definitions(rest: Rest, change: Callable[[str, Schema], None]) -> Iterator[None]:
    """Serve changed definitions of ClusterQueues and Workloads, and the true ones afterwards."""
    kinds = [kind for kind in KINDS if kind.name in OLDER]
    paths = {kind.name: f"{CRDS}/{kind.plural}.{kind.group}" for kind in kinds}
    originals = {name: rest.get(path)["spec"]["versions"] for name, path in paths.items()}
    try:
        for kind in kinds:
            versions = copy.deepcopy(crd(kind)["spec"]["versions"])
            change(kind.name, versions[0]["schema"]["openAPIV3Schema"])
            rest.patch(paths[kind.name], {"spec": {"versions": versions}})
        yield
    finally:
        for name, path in paths.items():
            rest.patch(path, {"spec": {"versions": originals[name]}})
        for kind in kinds:
            # Until its storage is ready again, the kind answers 429.
            rest.wait(f"/apis/{KUEUE}/{kind.plural}", lambda found: "items" in found)


def test_beside_older_definitions_it_says_once_what_is_missing_and_admits(
    real_cluster: Cluster, real_scene: Scene, controllers: Controllers
) -> None:
    scene = real_scene
    with definitions(scene.rest, remove):
        wait_for(lambda: not keeps_fair_sharing(scene), "the older kind being served")
        queue = scene.create_queue(cpus=2)
        started = controllers.start(
            real_cluster.kubeconfig, "--namespace", real_cluster.new_scene().namespace
        )
        started.wait_leading()
        scene.create_job("first", seconds=0.1)
        scene.wait_finished("first")
        scene.create_job("second")
        scene.wait_admitted("second")
        path = f"/apis/{KUEUE}/clusterqueues/{queue}"
        scene.rest.wait(path, lambda found: found["status"].get("admittedWorkloads") == 1)

    said = [line.partition("definition-older ")[2] for line in started.log().splitlines()]
    assert [line.partition(" note=")[0] for line in said if line] == [
        f'kind={kind} missing="{", ".join(".".join(path) for path in paths)}"'
        for kind, paths in OLDER.items()
    ]
    # A status field that the server removes is not written again and again.
    assert started.metric("berth_writes_total", purpose="queue-status") < 50


def test_beside_newer_definitions_it_admits_and_keeps_what_it_does_not_know(
    real_cluster: Cluster, real_scene: Scene, controllers: Controllers
) -> None:
    scene = real_scene
    queue = scene.create_queue(cpus=1)
    paths = (f"/apis/{KUEUE}/clusterqueues/{queue}", f"{scene.workloads}/second")
    scene.create_workload("second")
    with definitions(scene.rest, add):
        for path in paths:
            set_newer(scene.rest, path)
        started = controllers.start(
            real_cluster.kubeconfig, "--namespace", real_cluster.new_scene().namespace
        )
        scene.rest.wait(paths[1], lambda found: is_true(found, "Admitted"))
        scene.rest.wait(paths[0], lambda found: found["status"].get("admittedWorkloads") == 1)
        found = [scene.rest.get(path) for path in paths]

    for one in found:
        assert is_true(one, "OfTheFuture")
        assert (one["spec"]["ofTheFuture"], one["status"]["ofTheFuture"]) == ("set", "set")
    assert condition(found[0], "Active")
    assert "definition-older" not in started.log()


def keeps_fair_sharing(scene: Scene) -> bool:
    """Return whether the server keeps a field that the older definition lacks."""
    spec = {"namespaceSelector": {}, "fairSharing": {"weight": "1"}}
    body = {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "probe"}, "spec": spec}
    return "fairSharing" in scene.rest.create(f"/apis/{KUEUE}/clusterqueues?dryRun=All", body)["spec"]


def set_newer(rest: Rest, path: str) -> None:
    """Write the newer fields and the condition as a newer writer would, once the server serves them."""
    since = "2026-01-01T00:00:00Z"
    newer = {"type": "OfTheFuture", "status": "True", "reason": "Test", "message": ""}
    status = {"ofTheFuture": "set", "conditions": [{**newer, "lastTransitionTime": since}]}
    wait_for(
        lambda: rest.patch(path, {"spec": {"ofTheFuture": "set"}})["spec"].get("ofTheFuture"),
        "the newer kind being served",
    )
    wait_for(
        lambda: rest.patch(f"{path}/status", {"status": status})["status"].get("ofTheFuture"),
        "the newer status being served",
    )
