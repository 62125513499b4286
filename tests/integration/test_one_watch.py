"""Nodes and pods are many: placement lists and watches them once, and so does the extender in its process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.admission.controller.extending import A100, node_object, pod_object
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import KUEUE, POOL, kueue_object, make_job, quota
from tests.integration.proxy import Proxy
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

HOST = "kubernetes.io/hostname"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KINDS = ("nodes", "pods")


@pytest.fixture
def scene(embedded_scene: Scene) -> Scene:
    """Give a namespace of the embedded cluster."""
    return embedded_scene


def create_hosts(scene: Scene) -> None:
    """Create a queue whose flavor follows a topology of hosts."""
    name = scene.scoped("hosts")
    levels = {"levels": [{"nodeLabel": HOST}]}
    scene.rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, levels))
    spec = {"nodeLabels": {POOL: scene.pool}, "topologyName": name}
    flavor = kueue_object("ResourceFlavor", {"name": name}, spec)
    scene.rest.create(f"/apis/{KUEUE}/resourceflavors", flavor)
    scene.create_local_queue("main", scene.create_cluster_queue("main", quota(name, nominal=4)))


@pytest.fixture
def node(embedded_cluster: Cluster) -> Iterator[str]:
    """Give a node of a GPU model that no other has."""
    rest, name = embedded_cluster.rest, "node-of-a-model"
    rest.create("/api/v1/nodes", node_object(name, model=A100))
    yield name
    rest.delete(f"/api/v1/nodes/{name}")


def has_model(replica: Replica, node: str) -> bool:
    """Return whether the extender knows the node and its model."""
    body = json.dumps({"Pod": pod_object(model=A100), "NodeNames": [node]}).encode()
    with urlopen(Request(replica.urls()["extender"] + "/filter", body), timeout=30.0) as answer:
        return bool(json.load(answer)["nodeNames"] == [node])


@pytest.mark.parametrize(
    ("has_extender", "want"),
    [
        pytest.param(False, 1, id="a controller without the extender"),
        # Large requests of kube-scheduler must not hold up the process that leads (`extender_process`).
        pytest.param(True, 2, id="a controller with the extender"),
    ],
)
def test_nodes_and_pods_are_listed_and_watched_once_by_each_process(
    has_extender: bool,
    want: int,
    scene: Scene,
    node: str,
    proxy: Proxy,
    controllers: Controllers,
    own_namespace: str,
    tmp_path: Path,
) -> None:
    # Pods in queues are watched apart, by their label.
    lists = {kind: proxy.add("GET", rf"/api/v1/{kind}(\?(?!.*(watch=|Selector=))|$)") for kind in KINDS}
    watches = {kind: proxy.add("GET", rf"/api/v1/{kind}\?(?!.*Selector=).*watch=") for kind in KINDS}
    create_hosts(scene)
    flags = ("--namespace", own_namespace, "--extender-port", "0" if has_extender else "-1")
    replica = controllers.start(proxy.write_kubeconfig(tmp_path), *flags)
    replica.wait_ready()
    job = make_job("placed")
    job["spec"]["template"]["metadata"]["annotations"] = {REQUIRED: HOST}
    scene.rest.create(scene.jobs, job)
    scene.wait_admitted("placed")

    if has_extender:
        assert has_model(replica, node)
    assert {kind: rule.seen for kind, rule in lists.items()} == {"nodes": want, "pods": want}
    # A list serves before the watch that follows it is there.
    wait_for(lambda: all(rule.seen >= want for rule in watches.values()), "all watches of each kind")
    assert {kind: rule.seen for kind, rule in watches.items()} == {"nodes": want, "pods": want}
