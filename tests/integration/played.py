"""What each integration does with its objects, played from creation to preemption to the end.

For a controller with narrow rights: every kind of write that an integration needs is made once. Pods are
held by the webhook, which the caller registers.
"""

from __future__ import annotations

import time
from functools import partial

from api import keys
from api.parsing.times import to_rfc3339
from tests.integration.conftest import Cluster
from tests.integration.leadersets import LeaderWorkerSetPlayer
from tests.integration.manifests import Object
from tests.integration.pods import create, make_pod, wait_gone, wait_pod
from tests.integration.replica import Replica
from tests.integration.reporting import Reporter
from tests.integration.scene import Scene
from tests.integration.test_owner_writes import create as create_owner
from tests.integration.test_owner_writes import is_suspended, kinds_defined, report
from tests.integration.test_owner_writes import path_of as owner_path
from tests.integration.test_saves import staged
from tests.integration.test_serving import (
    create as create_serving,
)
from tests.integration.test_serving import (
    create_budget,
    create_policy,
    make_serving,
    pods_of,
    ready,
    wait_ready,
)
from tests.integration.test_topology import create_gang, create_racks, nodes_of, rack_label
from tests.integration.waiting import wait_for
from tests.owners import SAMPLES, OwnerSample

_INFERENCE = {"berth.dev/workload-type": "inference"}
_PREEMPTS = {"withinClusterQueue": "LowerPriority"}


def play_all(cluster: Cluster, controller: Replica) -> None:
    """Play every integration, each in a namespace of its own."""
    for play in (
        play_jobs,
        play_pods,
        play_deployment,
        play_stateful_set,
        play_leader_worker_set,
        play_placed_gang,
    ):
        play(cluster.new_scene())
    with kinds_defined(cluster.rest, SAMPLES):
        play_owners(cluster.new_scene())
    play_saves(cluster, controller)


def play_jobs(scene: Scene) -> None:
    """Start, preempt, restart and finish Jobs, and delete their queue."""
    queue, priority = _prepare(scene, cpus=2)
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
    _wait_no_workloads(scene)
    path = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{queue}"
    scene.rest.delete(path)
    wait_for(lambda: not scene.rest.exists(path), "the queue gone")


def play_pods(scene: Scene) -> None:
    """Let pods go, and end one that is preempted."""
    _, priority = _prepare(scene, cpus=2)
    create(scene, make_pod("first", cpus=2))
    wait_pod(scene, "first", "Running")
    create(scene, make_pod("second", cpus=2, labels=priority))
    wait_pod(scene, "second", "Running")
    wait_gone(scene, "first")
    scene.rest.delete(f"{scene.pods}/second")
    wait_gone(scene, "second")
    _wait_no_workloads(scene)


def play_deployment(scene: Scene) -> None:
    """Evict a replica within its budget."""
    queue, priority = _prepare(scene, cpus=2)
    create_policy(scene, queue)
    create_serving(scene, make_serving("Deployment", "chat", 2, pod_labels=_INFERENCE))
    wait_ready(scene, "chat", 2)
    create_budget(scene, "chat", 1)
    scene.create_job("high", cpus=1, labels=priority)
    scene.wait_admitted("high")
    scene.delete_job("high")
    wait_ready(scene, "chat", 2)
    _end(scene, "apps", "deployments")


def play_stateful_set(scene: Scene) -> None:
    """Evict a StatefulSet whole, and bring it back."""
    queue, priority = _prepare(scene, cpus=2)
    create_policy(scene, queue)
    floor = {keys.MIN_REPLICAS: "0"}
    shards = make_serving("StatefulSet", "shards", 2, pod_labels=_INFERENCE, annotations=floor)
    # One that makes its pods in turn never has a whole group.
    shards["spec"]["podManagementPolicy"] = "Parallel"
    create_serving(scene, shards)
    wait_ready(scene, "shards", 2)
    uids = _uids(scene, "shards")
    scene.create_job("high", cpus=1, labels=priority)
    scene.wait_admitted("high")
    scene.delete_job("high")
    wait_for(lambda: not _uids(scene, "shards") & uids, "both shards replaced")
    wait_ready(scene, "shards", 2)
    _end(scene, "apps", "statefulsets")


def play_leader_worker_set(scene: Scene) -> None:
    """Admit a leader with its workers as one group, and evict it."""
    _, priority = _prepare(scene, cpus=2)
    big = LeaderWorkerSetPlayer(scene, "big")
    big.create(replicas=1, size=2)

    def is_served() -> bool:
        big.play()
        return ready(scene, "big") == 2

    wait_for(is_served, "the leader and its worker serve")
    scene.create_job("high", cpus=1, labels=priority)
    scene.wait_admitted("high")
    scene.delete_job("high")
    wait_for(is_served, "the group serves again")
    _end(scene, "leaderworkerset.x-k8s.io", "leaderworkersets")


def play_placed_gang(scene: Scene) -> None:
    """Place the pods of a Job in a rack."""
    rack = rack_label(scene)
    node = f"/api/v1/nodes/{scene.pool}-0"
    scene.rest.patch(node, {"metadata": {"labels": {rack: "r0"}}})
    create_racks(scene)
    create_gang(scene, "gang", pods=2, cpus=1)
    scene.wait_admitted("gang")
    assert nodes_of(scene, "gang") == {f"{scene.pool}-0"}
    scene.delete_job("gang")
    _wait_no_workloads(scene)


def play_owners(scene: Scene) -> None:
    """Start one of each kind that runs as a whole, preempt them, start them again and delete them.

    Their own controllers are played: no others are there to write their status.
    """
    scene.create_queue("lq", cpus=100, preemption=_PREEMPTS)
    priority = {keys.PRIORITY_CLASS: scene.create_priority("high", 10)}

    def wait_all(*, suspended: bool) -> None:
        for sample in SAMPLES:
            what = f"the {sample.row.kind} {'stopped' if suspended else 'started'}"
            wait_for(partial(_is_suspended, scene, sample, suspended), what)

    for sample in SAMPLES:
        create_owner(scene, sample)
    wait_all(suspended=False)
    for sample in SAMPLES:
        report(scene, sample, sample.ready)
    scene.create_job("high", queue="lq", cpus=100, labels=priority)
    wait_all(suspended=True)
    for sample in SAMPLES:
        report(scene, sample, sample.stopped)
    scene.wait_admitted("high")
    scene.delete_job("high")
    wait_all(suspended=False)
    for sample in SAMPLES:
        scene.rest.delete(owner_path(scene, sample, "j"))
    _wait_no_workloads(scene)


def _is_suspended(scene: Scene, sample: OwnerSample, wanted: bool) -> bool:
    return is_suspended(scene, sample) is wanted


def play_saves(cluster: Cluster, controller: Replica) -> None:
    """Ask a victim to save; its pod reports by its own token, and the Job starts again later."""
    with staged(cluster, controller) as stage:
        scene, pod = stage.scene, stage.pod()
        stage.submit_high()
        stage.wait_asked()
        reporter = Reporter(scene, controller, pod)
        status, body, _ = reporter.post({"step": 7, "time": to_rfc3339(time.time())}, reporter.token())
        assert status == 200, body
        scene.wait_admitted("high")
        scene.delete_job("high")
        scene.wait_admitted("train")


def _prepare(scene: Scene, *, cpus: int) -> tuple[str, Object]:
    """Create a queue in which a higher priority preempts; return its name and the label of that priority."""
    queue = scene.create_queue(cpus=cpus, preemption=_PREEMPTS)
    return queue, {keys.PRIORITY_CLASS: scene.create_priority("high", 10)}


def _uids(scene: Scene, app: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods_of(scene, app)}


def _end(scene: Scene, group: str, plural: str) -> None:
    path = f"/apis/{group}/v1/namespaces/{scene.namespace}/{plural}"
    scene.rest.delete(path, {"propagationPolicy": "Background"})
    _wait_no_workloads(scene)


def _wait_no_workloads(scene: Scene) -> None:
    wait_for(lambda: scene.rest.get(scene.workloads)["items"] == [], "the Workloads gone")
