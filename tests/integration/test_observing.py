"""Beside a live Kueue a controller does not start, unless it merely observes: then it writes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from api.parsing.times import to_rfc3339
from tests.controlplane import Rest
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import condition, is_true
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

KUEUE_LEASE = "c1f6bfd2.kueue.x-k8s.io"
# What the simulated cluster itself writes to all the time.
_RESTLESS = frozenset({"nodes", "pods", "leases", "events"})


@pytest.fixture
def kueue_namespace(embedded_cluster: Cluster) -> Iterator[str]:
    """Give a namespace for Kueue's lease, which goes with the test."""
    namespace = embedded_cluster.new_scene().namespace
    yield namespace
    embedded_cluster.rest.delete(leases(namespace))


def leases(namespace: str) -> str:
    """Return the path of a namespace's leases."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def renew_kueue_lease(rest: Rest, namespace: str, *, seconds_ago: float = 0.0) -> None:
    """Let a Kueue have renewed its lease so long ago."""
    at = to_rfc3339(time.time() - seconds_ago).replace("Z", ".000000Z")
    spec = {"holderIdentity": "kueue-controller-manager-0", "renewTime": at, "leaseDurationSeconds": 15}
    body = {"metadata": {"name": KUEUE_LEASE}, "spec": spec}
    rest.create(leases(namespace), {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **body})


def versions(rest: Rest) -> dict[str, str]:
    """Return the resourceVersion of every object of the cluster by its uid."""
    groups = rest.get("/apis")["groups"]
    bases = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found: dict[str, str] = {}
    for base in bases:
        kinds = {one["name"] for one in rest.get(base)["resources"] if "list" in one["verbs"]}
        for kind in kinds - _RESTLESS:
            for item in rest.get(f"{base}/{kind}")["items"]:
                found[item["metadata"]["uid"]] = item["metadata"]["resourceVersion"]
    return found


def test_a_controller_does_not_start_beside_a_live_kueue(
    embedded_cluster: Cluster, kueue_namespace: str, controllers: Controllers
) -> None:
    renew_kueue_lease(embedded_cluster.rest, kueue_namespace)

    refused = controllers.start(embedded_cluster.kubeconfig, "--namespace", kueue_namespace)

    assert refused.wait_exit() == 1
    said = refused.said()
    assert said.startswith(
        "a Kueue is running on this cluster: kueue-controller-manager-0 renewed the lease"
        f" {kueue_namespace}/{KUEUE_LEASE} "
    )
    assert said.endswith("stop it first, or start berth with --observe, which decides and writes nothing")


def test_a_kueue_that_has_ended_does_not_block_the_start(
    embedded_cluster: Cluster, kueue_namespace: str, controllers: Controllers
) -> None:
    renew_kueue_lease(embedded_cluster.rest, kueue_namespace, seconds_ago=60)

    started = controllers.start(embedded_cluster.kubeconfig, "--namespace", kueue_namespace)

    started.wait_leading()


def test_an_observer_says_what_it_would_admit_and_writes_nothing(
    embedded_cluster: Cluster, embedded_scene: Scene, kueue_namespace: str, controllers: Controllers
) -> None:
    scene = embedded_scene
    scene.create_queue(cpus=2)
    scene.create_workload("first", cpus=2, priority=10)
    scene.create_workload("second", cpus=2)
    scene.create_job("job")
    # The cluster says by itself that a Job is suspended.
    wait_for(lambda: condition(scene.job("job"), "Suspended"), "the Job's first status")
    renew_kueue_lease(scene.rest, kueue_namespace)
    before = versions(scene.rest)

    observer = controllers.start(embedded_cluster.kubeconfig, "--observe", "--namespace", kueue_namespace)
    observer.wait_ready()
    observer.wait_logged("would-admit", f"workload={scene.namespace}/first")
    observer.wait_logged("wait", f"workload={scene.namespace}/second", "reason=WaitingForQuota")
    observer.child.stop()

    assert observer.wait_exit() == 0
    assert versions(scene.rest) == before
    assert [item["metadata"]["name"] for item in scene.rest.get(leases(kueue_namespace))["items"]] == [
        KUEUE_LEASE
    ]
    assert not is_true(scene.workload("first"), "Admitted")
    assert not observer.has_logged("would-admit", f"workload={scene.namespace}/second")
