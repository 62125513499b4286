"""What Kueue's documentation shows of each kind is queued, admitted and started as its author wrote it.

The objects are those of kueue_examples.yaml, which have the shapes of Kueue's examples. With
BERTH_KUEUE_EXAMPLES=FOLDER all manifests below a folder are tried beside them, such as
site/static/examples/jobs of a checkout of Kueue.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from api.jobs.owners.paths import value_at
from api.jobs.owners.row import OwnerKind, Source
from api.jobs.owners.table import OWNER_KINDS, SOURCES
from tests.controlplane import AssetsMissing, Rest
from tests.controlplane.definitions import CRDS, install_crds
from tests.controlplane.owner_controllers import CONTROLLERS, MORE_CONTROLLERS, find_controller
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import KUEUE, QUEUE_NAME, Object, kueue_object
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.owners import definition

pytestmark = pytest.mark.xdist_group("kueue-examples")

FOLDER = "BERTH_KUEUE_EXAMPLES"
CONFIG = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, {", ".join(one.framework for one in OWNER_KINDS)}]
"""
# By the name that the object has, or that its name begins with.
WANT_POD_SETS: Mapping[str, Mapping[str, int]] = {
    "plain-job-": {"main": 3},
    "partial-job": {"main": 20},
    "elastic-job": {"main": 3},
    "workers-and-driver-": {"workers": 8, "driver": 1},
    "pytorch": {"master": 1, "worker": 1},
    "tensorflow": {"ps": 1, "worker": 1},
    "xgboost": {"master": 1, "worker": 2},
    "paddle": {"worker": 2},
    "jax": {"worker": 2},
    "mpi": {"launcher": 1, "worker": 2},
    "train-for-all": {"node": 2},
    "train-of-team": {"node": 1},
    "ray-cluster": {"head": 1, "small-group": 1},
    "ray-job": {"head": 1, "small-group": 1, "submitter": 1},
    "ray-autoscaling": {"head": 1, "small-group": 1, "submitter": 1},
    "ray-service": {"head": 1, "small-group": 1},
    "spark": {"driver": 1, "executor": 2},
    "wrapped-pytorch": {"wrapped-pytorch-0": 1, "wrapped-pytorch-1": 1},
    "wrapped-deployment": {"wrapped-deployment-0": 3},
    "wrapped-servers": {"wrapped-servers-0": 2, "wrapped-servers-1": 3},
}


def title(obj: Object) -> str:
    """Return the name of an object, or what its name begins with."""
    metadata = obj["metadata"]
    return str(metadata.get("name") or metadata["generateName"])


def documents(file: Path) -> list[Object]:
    """Return the objects of a manifest."""
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def is_queued(obj: Object) -> bool:
    """Return whether an object names a queue."""
    return QUEUE_NAME in (obj["metadata"].get("labels") or {})


OWN = documents(Path(__file__).with_name("kueue_examples.yaml"))
GIVEN = [
    one
    for folder in filter(None, [os.environ.get(FOLDER)])
    for file in sorted(Path(folder).rglob("*.yaml"))
    for one in documents(file)
]
EXAMPLES = (*OWN, *GIVEN)
KINDS: Mapping[tuple[str, str], OwnerKind | Source] = {
    **{(one.api_version, one.kind): one for one in OWNER_KINDS},
    **{(f"{one.group}/{one.version}", one.kind): one for one in SOURCES},
}
JOB = ("batch/v1", "Job")


def key(obj: Object) -> tuple[str, str]:
    """Return what tells the kind of an object."""
    return obj["apiVersion"], obj["kind"]


each_example = pytest.mark.parametrize(
    "example",
    [
        pytest.param(one, id=f"{one['kind']} {title(one)}")
        for one in EXAMPLES
        if is_queued(one) and (key(one) in KINDS or key(one) == JOB)
    ],
)


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues all kinds."""
    return Options(config=CONFIG)


def real_definitions() -> Iterator[Object]:
    """Yield the definitions that the kinds' own controllers have, where these were built."""
    for source in (*CONTROLLERS.values(), *MORE_CONTROLLERS.values()):
        try:
            yield from find_controller(source).definitions
        except AssetsMissing:
            continue


@pytest.fixture(scope="module")
def defined(cluster: Cluster, controller: Replica) -> Iterator[Cluster]:
    """Give a cluster that has the kinds: the real one has their own definitions."""
    assert controller.child.is_running()
    # The embedded server speaks HTTP.
    is_real = cluster.rest.server.startswith("https")
    found = {one["metadata"]["name"]: one for one in (real_definitions() if is_real else ())}
    plain = {made["metadata"]["name"]: made for made in map(definition, KINDS.values())}
    definitions = [*{**plain, **found}.values()]
    install_crds(cluster.rest, definitions)
    yield cluster
    for made in definitions:
        cluster.rest.delete(f"{CRDS}/{made['metadata']['name']}")


@pytest.fixture
def scene(defined: Cluster) -> Scene:
    """Give a namespace without queues."""
    return defined.new_scene()


def path_of(namespace: str, obj: Object, name: str = "") -> str:
    """Return the path of an object, or of all of its kind."""
    version, kind = key(obj)
    row = KINDS.get((version, kind))
    base = f"/apis/{version}"
    if not (isinstance(row, Source) and not row.is_namespaced):
        base = f"{base}/namespaces/{namespace}"
    return f"{base}/{'jobs' if row is None else row.plural}{f'/{name}' if name else ''}"


def create(scene: Scene, obj: Object) -> str:
    """Create an object in the scene's namespace, otherwise as it is; return its name."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "namespace"}
    body = {**obj, "metadata": metadata}
    return str(scene.rest.create(path_of(scene.namespace, obj), body)["metadata"]["name"])


def create_queue(scene: Scene, name: str) -> None:
    """Create a queue of this name with quota for each example."""
    flavor = scene.scoped("default-flavor")
    scene.rest.create(f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": flavor}, {}))
    amounts = {"cpu": 24, "memory": "96Gi", "nvidia.com/gpu": 8}
    resources = [{"name": one, "nominalQuota": amount} for one, amount in amounts.items()]
    group = {"coveredResources": [*amounts], "flavors": [{"name": flavor, "resources": resources}]}
    scene.create_local_queue(name, scene.create_cluster_queue("cluster-queue", group))


def is_suspended(scene: Scene, obj: Object, name: str) -> bool:
    """Return whether an object is suspended."""
    row = KINDS.get(key(obj))
    path = row.suspend if isinstance(row, OwnerKind) else ("spec", "suspend")
    return value_at(scene.rest.get(path_of(scene.namespace, obj, name)), path) is True


def create_needed(scene: Scene, example: Object) -> None:
    """Create what the examples of the same kind refer to."""
    for one in EXAMPLES:
        if isinstance(KINDS.get(key(one)), Source) and one["apiVersion"] == example["apiVersion"]:
            _create_once(scene.rest, scene, one)


def _create_once(rest: Rest, scene: Scene, obj: Object) -> None:
    rest.delete(path_of(scene.namespace, obj, title(obj)))
    create(scene, obj)


@each_example
def test_an_example_of_kueues_documentation_is_admitted_and_started(scene: Scene, example: Object) -> None:
    create_queue(scene, example["metadata"]["labels"][QUEUE_NAME])
    create_needed(scene, example)

    name = create(scene, example)

    workload = scene.wait_true(name, "Admitted")
    wait_for(lambda: not is_suspended(scene, example, name), "its start")
    found = {one["name"]: one["count"] for one in workload["spec"]["podSets"]}
    assert found == WANT_POD_SETS.get(title(example), found)
    assert len(scene.workloads_of(name)) == 1


def test_there_is_an_example_of_each_kind() -> None:
    assert {row.kind for row in OWNER_KINDS} == {one["kind"] for one in OWN if is_queued(one)} - {"Job"}
