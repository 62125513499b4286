"""A reserved rack on both clusters: only members run in it, and a mistake is reported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from api.parsing.times import to_rfc3339
from tests.integration.conftest import Cluster
from tests.integration.manifests import KUEUE, POOL, Object, condition, kueue_object, make_job, quota
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("kueue")

POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
HOST = "kubernetes.io/hostname"


@pytest.fixture
def scene(cluster: Cluster, controller: Replica) -> Iterator[Scene]:
    """Give a namespace with a queue on two racks of a node each."""
    assert controller.child.is_running()
    scene = cluster.new_scene()
    nodes = rack_nodes(scene)
    for number, node in enumerate(nodes):
        scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {rack_label(scene): f"r{number}"}}})
    name = scene.scoped("racks")
    levels = [{"nodeLabel": rack_label(scene)}, {"nodeLabel": HOST}]
    scene.rest.create(
        f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, {"levels": levels})
    )
    flavor = {"nodeLabels": {POOL: scene.pool}, "topologyName": name}
    scene.rest.create(
        f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": name}, flavor)
    )
    scene.create_local_queue("main", scene.create_cluster_queue("main", quota(name, nominal=1000)))
    yield scene
    scene.rest.delete(f"{POLICIES}/{scene.scoped('calendar')}")
    scene.rest.delete(scene.jobs, {"propagationPolicy": "Background"})
    for node in nodes:
        scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {rack_label(scene): None}}})


def rack_label(scene: Scene) -> str:
    return f"test.berth.dev/{scene.namespace}"


def rack_nodes(scene: Scene) -> list[str]:
    """Return two nodes of the scene's pool."""
    nodes = scene.rest.get("/api/v1/nodes")["items"]
    found = [one["metadata"]["name"] for one in nodes if one["metadata"]["labels"].get(POOL) == scene.pool]
    return sorted(found)[:2]


def reserve(scene: Scene, domain: str, *, starts_in: float) -> None:
    """Reserve a domain for LocalQueue `main` for an hour."""
    start = time.time() + starts_in
    reservation = {
        "name": "big",
        "namespace": scene.namespace,
        "localQueue": "main",
        "start": to_rfc3339(start),
        "end": to_rfc3339(start + 3600),
        "domain": domain,
    }
    spec = {"clusterQueues": {"names": [scene.scoped("main")]}, "reservations": [reservation]}
    metadata = {"name": scene.scoped("calendar")}
    policy = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": metadata}
    scene.rest.create(POLICIES, {**policy, "spec": spec})


def create_job(scene: Scene, name: str, *, pods: int = 1, **annotations: str) -> None:
    job = make_job(name, pods=pods)
    job["metadata"]["annotations"] = annotations
    scene.rest.create(scene.jobs, job)


def nodes_of(scene: Scene, job: str) -> set[str]:
    """Return the nodes that the Job's Workload was given."""
    admission: Any = scene.workload_of(job)["status"]["admission"]  # type: ignore[index]
    assignment = admission["podSetAssignments"][0]["topologyAssignment"]
    return {
        name
        for part in assignment["slices"]
        for name in _names(part["valuesPerLevel"][-1], part["domainCount"])
    }


def _names(values: Object, count: int) -> list[str]:
    if "universal" in values:
        return [values["universal"]] * count
    individual = values["individual"]
    ends = individual.get("prefix", ""), individual.get("suffix", "")
    return [f"{ends[0]}{root}{ends[1]}" for root in individual["roots"]]


def test_a_reserved_rack_is_its_members_alone(scene: Scene, controller: Replica) -> None:
    queue = scene.scoped("main")
    reserve(scene, "r0", starts_in=3)

    def shown() -> list[tuple[str, int]]:
        found = controller.view_of(queue) or {}
        return [(one["domain"], one["nodes"]) for one in found.get("reservations", ())]

    wait_for(lambda: shown() == [("r0", 1)], lambda: f"r0 in force with its node; there is {shown()}")
    in_r0, in_r1 = rack_nodes(scene)

    # Before its start and after it the answer is the same: no Job says how long it runs.
    create_job(scene, "other", pods=2)
    create_job(scene, "member", pods=2, **{"berth.dev/reservation": "big"})

    scene.wait_admitted("other", "member")
    assert nodes_of(scene, "other") == {in_r1}
    assert nodes_of(scene, "member") == {in_r0}


def test_a_domain_that_does_not_exist_is_named_by_the_policy(scene: Scene) -> None:
    reserve(scene, "r7", starts_in=60)

    def message() -> str:
        policy = scene.rest.get(f"{POLICIES}/{scene.scoped('calendar')}")
        return str(condition(policy, "Accepted").get("message", ""))

    want = f"no ready node with label {rack_label(scene)}=r7; there are r0, r1; nothing is reserved"
    wait_for(lambda: want in message(), "the condition names the domain, and which there are")
