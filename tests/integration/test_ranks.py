"""Pods of an MPIJob and of an AppWrapper get places by rank, on a real control plane.

JobSet and AppWrapper are run by their own controllers. The MPI operator is played: it creates the workers
itself, here the last one first, so that their order does not give them the places of their ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from api import keys
from api.jobs.owners.appwrapper import APP_WRAPPER
from api.jobs.owners.jobset import JOB_SET
from api.jobs.owners.kubeflow import MPI_JOB
from api.jobs.owners.row import OwnerKind
from api.objects.workloads import WorkloadObject
from api.workload_decoding import to_workload
from tests import parts
from tests.controlplane import ControlPlane
from tests.controlplane.definitions import install_crds
from tests.controlplane.owner_controllers import CONTROLLERS, OwnerController, find_controller
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import LONG, QUEUE_NAME, RUNTIME, Object
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.test_topology import NODES, PREFERRED, create_racks, rack_label
from tests.integration.waiting import wait_for
from tests.owners import definition

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("owners")]

CONFIG = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, {MPI_JOB.framework}, {APP_WRAPPER.framework}]
"""
REPLICA_INDEX = "training.kubeflow.org/replica-index"
# Of a node's 64 CPUs: three pods fit on one, so that four of them need both.
CPUS = 20


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues these kinds."""
    return Options(config=CONFIG)


@pytest.fixture(scope="module")
def runners(
    control_plane: ControlPlane, real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OwnerController, ...]]:
    """Give the controllers of JobSet and AppWrapper, at work on the cluster."""
    del real_cluster
    parts.need("owners")
    with ExitStack() as stack:
        yield tuple(
            stack.enter_context(
                OwnerController(
                    find_controller(CONTROLLERS[name]), control_plane, tmp_path_factory.mktemp(name)
                )
            )
            for name in ("jobset", "appwrapper")
        )


@pytest.fixture
def scene(real_controller: Replica, real_scene: Scene) -> Iterator[Scene]:
    """Give a namespace with a queue on two racks of one node each."""
    assert real_controller.child.is_running()
    rack = rack_label(real_scene)
    for number, node in enumerate(NODES):
        real_scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {rack: f"r{number}"}}})
    create_racks(real_scene)
    yield real_scene
    for node in NODES:
        real_scene.rest.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {rack: None}}})


def path_of(scene: Scene, row: OwnerKind, name: str = "") -> str:
    """Return the path of an object of a kind, or of all in the namespace."""
    collection = f"/apis/{row.group}/{row.version}/namespaces/{scene.namespace}/{row.plural}"
    return f"{collection}/{name}" if name else collection


def create(scene: Scene, row: OwnerKind, spec: Object) -> Object:
    """Create the object `one` of a kind in the queue; return it."""
    metadata = {"name": "one", "labels": {QUEUE_NAME: "main"}}
    body = {"apiVersion": row.api_version, "kind": row.kind, "metadata": metadata, "spec": spec}
    return dict(scene.rest.create(path_of(scene, row), body))


def delete(scene: Scene, row: OwnerKind) -> None:
    """Delete the object `one` and what it owns."""
    scene.rest.delete(path_of(scene, row, "one"), {"propagationPolicy": "Background"})
    wait_for(lambda: not scene.rest.get(scene.pods)["items"], "its pods gone")


def template(scene: Scene, **annotations: str) -> Object:
    """Return a pod template that would like one rack, of which none has room for all."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": CPUS}}}
    return {
        "metadata": {"annotations": {RUNTIME: f"{LONG:g}", PREFERRED: rack_label(scene), **annotations}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def indexed_job(scene: Scene, pods: int) -> Object:
    """Return the spec of a Job whose pods have an index."""
    counts = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": 0}
    return {**counts, "template": template(scene)}


def nodes_by_rank(workload: Object, pod_set: str) -> list[str]:
    """Return the node of each rank of a pod set, as its Workload has them."""
    found = to_workload(msgspec.json.decode(msgspec.json.encode(workload), type=WorkloadObject))
    assert found.admission is not None
    (assignment,) = (one for one in found.admission.pod_sets if one.name == pod_set)
    assert assignment.topology is not None
    host = assignment.topology.levels.index("kubernetes.io/hostname")
    return [one.values[host] for one in assignment.topology.domains for _ in range(one.count)]


def bound(scene: Scene, pods: int) -> list[Object]:
    """Return the pods of the scene once all are bound."""

    def found() -> list[Object] | None:
        items = scene.rest.get(scene.pods)["items"]
        are_bound = len(items) == pods and all(one["spec"].get("nodeName") for one in items)
        return list(items) if are_bound else None

    return wait_for(found, f"{pods} pods bound")


# --- MPIJob -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launches", "first"),
    [
        pytest.param(False, 0, id="workers are numbered from 0"),
        pytest.param(True, 1, id="workers are numbered from 1 where the launcher is number 0 of them"),
    ],
)
def test_workers_of_an_mpi_job_get_the_places_of_their_numbers(
    scene: Scene, launches: bool, first: int
) -> None:
    install_crds(scene.rest, [definition(MPI_JOB)])
    # As the webhook leaves it.
    offset = {keys.POD_INDEX_OFFSET: str(first)} if first else {}
    launcher = template(scene)
    launcher["spec"]["containers"][0]["resources"]["requests"]["cpu"] = 1
    spec = {
        "runPolicy": {"suspend": True},
        "runLauncherAsWorker": launches,
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": launcher},
            "Worker": {"replicas": 4, "template": template(scene, **offset)},
        },
    }
    job = create(scene, MPI_JOB, spec)
    workload = scene.wait_true("one", "Admitted")

    def started() -> Any:
        shown = scene.rest.get(path_of(scene, MPI_JOB, "one"))
        return None if shown["spec"]["runPolicy"]["suspend"] else shown

    worker = wait_for(started, "its start")["spec"]["mpiReplicaSpecs"]["Worker"]["template"]
    for number in (3, 2, 1, 0):
        create_worker(scene, job, worker, number, index=number + first)

    want = nodes_by_rank(workload, "worker")
    assert sorted({*want}) == list(NODES)
    found = {one["metadata"]["name"]: one["spec"]["nodeName"] for one in bound(scene, 4)}
    assert [found[f"one-worker-{number}"] for number in range(4)] == want
    delete(scene, MPI_JOB)


def create_worker(scene: Scene, job: Object, worker: Object, number: int, *, index: int) -> None:
    """Create a worker of an MPIJob as its operator does."""
    owner = {
        "apiVersion": MPI_JOB.api_version,
        "kind": MPI_JOB.kind,
        "name": "one",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    metadata = {
        "name": f"one-worker-{number}",
        "annotations": worker["metadata"]["annotations"],
        "labels": {**worker["metadata"]["labels"], REPLICA_INDEX: str(index)},
        "ownerReferences": [owner],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": worker["spec"]}
    scene.rest.create(scene.pods, body)


# --- AppWrapper ---------------------------------------------------------------------------------------------

COMPLETION, JOB_NUMBER = keys.COMPLETION_INDEX, "jobset.sigs.k8s.io/job-index"


def wrapped_job(scene: Scene) -> Object:
    """Return a component of a Job of four pods."""
    metadata = {"name": "work"}
    return {
        "template": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": indexed_job(scene, 4),
        }
    }


def wrapped_job_set(scene: Scene) -> Object:
    """Return a component of a JobSet of two Jobs of two pods each."""
    jobs = [{"name": "workers", "replicas": 2, "template": {"spec": indexed_job(scene, 2)}}]
    return {
        "template": {
            "apiVersion": JOB_SET.api_version,
            "kind": JOB_SET.kind,
            "metadata": {"name": "work"},
            "spec": {"replicatedJobs": jobs},
        }
    }


def rank_of(pod: Object, group: str | None) -> int:
    """Return the rank of a pod among four, by the label of its group of two if it is in one."""
    labels = pod["metadata"]["labels"]
    return int(labels[COMPLETION]) + (2 * int(labels[group]) if group else 0)


@pytest.mark.parametrize(
    ("component", "group", "ranks"),
    [
        pytest.param(wrapped_job, None, {"podIndexLabel": COMPLETION}, id="of a Job by their index"),
        pytest.param(
            wrapped_job_set,
            JOB_NUMBER,
            {"podIndexLabel": COMPLETION, "subGroupIndexLabel": JOB_NUMBER, "subGroupCount": 2},
            id="of a JobSet by the number of their Job and then their index",
        ),
    ],
)
def test_pods_in_an_app_wrapper_get_the_places_of_their_ranks(
    runners: tuple[OwnerController, ...], scene: Scene, component: Any, group: str | None, ranks: Object
) -> None:
    assert all(one.child.is_running() for one in runners)
    create(scene, APP_WRAPPER, {"suspend": True, "components": [component(scene)]})
    workload = scene.wait_true("one", "Admitted")
    (pod_set,) = workload["spec"]["podSets"]
    assert pod_set["topologyRequest"] == {"preferred": rack_label(scene), **ranks}

    pods = sorted(bound(scene, 4), key=lambda pod: rank_of(pod, group))

    want = nodes_by_rank(workload, "one-0")
    assert sorted({*want}) == list(NODES)
    assert [pod["spec"]["nodeName"] for pod in pods] == want
    delete(scene, APP_WRAPPER)
