"""Gangs of an NVIDIA ComputeDomain on a real API server: channels and GPUs by claim, in one NVLink domain.

NVIDIA's driver makes the template of the channels once it has seen the ComputeDomain, which may be after the
gang. It is played here, and so is the JobSet controller.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.jobs.owners.jobset import JOB_SET
from tests.controlplane import Rest
from tests.controlplane.definitions import CRDS, install_crds
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import KUEUE, POOL, QUEUE_NAME, Object, kueue_object
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.owners import definition

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("compute-domains")]

CLIQUE = "nvidia.com/gpu.clique"
CHANNELS, GPUS = "nvidia.com/channels", "nvidia.com/gpus"
CLASSES = {CHANNELS: "compute-domain-default-channel.nvidia.com", GPUS: "gpu.nvidia.com"}
DRA = "resource.k8s.io/v1"
CHANNEL_TEMPLATE, GPU_TEMPLATE = "domain-channel", "four-gpus"
CONFIG = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, {JOB_SET.framework}]
resources:
  deviceClassMappings:
  - {{name: {CHANNELS}, deviceClassNames: [{CLASSES[CHANNELS]}]}}
  - {{name: {GPUS}, deviceClassNames: [{CLASSES[GPUS]}]}}
"""


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that counts channels and GPUs by claim."""
    return Options(config=CONFIG)


@pytest.fixture(scope="module")
def cliques(real_cluster: Cluster, real_controller: Replica) -> Iterator[Cluster]:
    """Give a cluster with the two device classes, whose blue nodes are two NVLink domains."""
    assert real_controller.child.is_running()
    rest = real_cluster.rest
    install_crds(rest, [definition(JOB_SET)])
    for name in CLASSES.values():
        device_class = {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}}
        rest.create(f"/apis/{DRA}/deviceclasses", device_class)
    for number in range(2):
        rest.patch(f"/api/v1/nodes/blue-{number}", {"metadata": {"labels": {CLIQUE: f"domain.{number}"}}})
    yield real_cluster
    rest.delete(f"{CRDS}/{JOB_SET.plural}.{JOB_SET.group}")
    for name in CLASSES.values():
        rest.delete(f"/apis/{DRA}/deviceclasses/{name}")


@pytest.fixture
def scene(cliques: Cluster) -> Scene:
    """Give a queue with channels for one gang of three pods, on nodes in NVLink domains."""
    scene = cliques.new_scene()
    name, rest = scene.scoped("gpus"), scene.rest
    levels = [{"nodeLabel": CLIQUE}, {"nodeLabel": "kubernetes.io/hostname"}]
    rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, {"levels": levels}))
    spec = {"nodeLabels": {POOL: scene.pool}, "topologyName": name}
    rest.create(f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": name}, spec))
    amounts = {"cpu": 20, CHANNELS: 3, GPUS: 16}
    resources = [{"name": one, "nominalQuota": amount} for one, amount in amounts.items()]
    group = {"coveredResources": [*amounts], "flavors": [{"name": name, "resources": resources}]}
    scene.create_local_queue("main", scene.create_cluster_queue("main", group))
    create_template(scene, GPU_TEMPLATE, CLASSES[GPUS], count=4)
    return scene


def create_template(scene: Scene, name: str, device_class: str, **exactly: int) -> None:
    """Create a ResourceClaimTemplate whose claims ask for devices of a class."""
    request = {"name": "one", "exactly": {"deviceClassName": device_class, **exactly}}
    body = {
        "apiVersion": DRA,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    scene.rest.create(f"/apis/{DRA}/namespaces/{scene.namespace}/resourceclaimtemplates", body)


def replicated(name: str, pods: int, *templates: str) -> Object:
    """Return a replicated Job whose pods have a claim of each of these templates."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": 1}}}
    claims = [{"name": one, "resourceClaimTemplateName": one} for one in templates]
    pod = {
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": CLIQUE}},
        "spec": {"restartPolicy": "Never", "containers": [container], "resourceClaims": claims},
    }
    return {
        "name": name,
        "replicas": 1,
        "template": {"spec": {"parallelism": pods, "completions": pods, "template": pod}},
    }


def jobset(name: str) -> Object:
    """Return a gang of a leader with a channel, and two workers with a channel and four GPUs each."""
    jobs = [
        replicated("leader", 1, CHANNEL_TEMPLATE),
        replicated("workers", 2, CHANNEL_TEMPLATE, GPU_TEMPLATE),
    ]
    return {
        "apiVersion": JOB_SET.api_version,
        "kind": JOB_SET.kind,
        "metadata": {"name": name, "labels": {QUEUE_NAME: "main"}},
        "spec": {"suspend": True, "replicatedJobs": jobs},
    }


def path_of(scene: Scene, name: str = "") -> str:
    """Return the path of a JobSet, or of all."""
    collection = f"/apis/{JOB_SET.api_version}/namespaces/{scene.namespace}/{JOB_SET.plural}"
    return f"{collection}/{name}" if name else collection


def domains(rest: Rest, workload: Object) -> dict[str, set[str]]:
    """Return the NVLink domains of each pod set."""
    of_node = {
        one["metadata"]["name"]: one["metadata"]["labels"].get(CLIQUE)
        for one in rest.get("/api/v1/nodes")["items"]
    }
    found: dict[str, set[str]] = {}
    for one in workload["status"]["admission"]["podSetAssignments"]:
        slices = one["topologyAssignment"]["slices"]
        nodes = {value for part in slices for value in _values(part["valuesPerLevel"][-1])}
        found[one["name"]] = {of_node[node] for node in nodes}
    return found


def _values(level: Object) -> list[str]:
    if "universal" in level:
        return [level["universal"]]
    parts = level["individual"]
    return [f"{parts.get('prefix', '')}{root}{parts.get('suffix', '')}" for root in parts["roots"]]


def test_a_gang_waits_for_its_template_and_is_admitted_once_there_are_channels_for_all(scene: Scene) -> None:
    scene.rest.create(path_of(scene), jobset("first"))
    scene.wait_pending("first", "Misconfigured", CHANNEL_TEMPLATE)

    create_template(scene, CHANNEL_TEMPLATE, CLASSES[CHANNELS])

    workload = scene.wait_true("first", "Admitted")
    used = {
        one["name"]: {name: one["resourceUsage"].get(name) for name in (CHANNELS, GPUS)}
        for one in workload["status"]["admission"]["podSetAssignments"]
    }
    assert used == {"leader": {CHANNELS: "1", GPUS: None}, "workers": {CHANNELS: "2", GPUS: "8"}}
    assert all(len(found) == 1 for found in domains(scene.rest, workload).values())
    wait_for(lambda: scene.rest.get(path_of(scene, "first"))["spec"]["suspend"] is False, "its start")

    scene.rest.create(path_of(scene), jobset("second"))
    scene.wait_pending("second", "WaitingForQuota", CHANNELS)
    scene.rest.delete(path_of(scene, "first"))
    scene.wait_true("second", "Admitted")
