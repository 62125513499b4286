"""Hardware on a real control plane: the node that admission assigns is one that the extender lets through.

Its kube-scheduler asks Berth's own extender, and its two empty nodes of eight GPUs are of different models.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.children import Child
from tests.controlplane import ControlPlane, Rest
from tests.controlplane.plane import answers
from tests.integration.extending import SCHEDULER, kube_scheduler, listening
from tests.integration.manifests import KUEUE, POOL, Object, kueue_object, make_job
from tests.integration.nodes import MODELS, simulated_nodes
from tests.integration.replica import BERTH, Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("hardware")]

GPU, MODEL = "nvidia.com/gpu", "accelerator.sched.io/gpu-model"
MILLI, POLICIES = "berth.dev/gpu-milli", "/apis/berth.dev/v1alpha1/admissionpolicies"


@pytest.fixture(scope="module")
def models(
    control_plane: ControlPlane, real_controller: Replica, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    """Give the controller of a cluster with nodes of two models and the extender."""
    folder = tmp_path_factory.mktemp("models")
    arguments = [BERTH, "extender", "--kubeconfig", control_plane.kubeconfig, "--port", "0"]
    arguments += ["--config", str(real_controller.config_file)]
    with (
        simulated_nodes(str(control_plane.kubeconfig), folder, MODELS),
        Child(name="extender", arguments=arguments, log=folder / "extender.log") as extender,
    ):
        extender.wait_ready(lambda: bool(listening(extender)), timeout_seconds=90.0)
        extender.wait_ready(lambda: answers(Rest(listening(extender)), "/readyz"), timeout_seconds=90.0)
        with kube_scheduler(control_plane, folder, listening(extender)):
            yield real_controller


@pytest.fixture
def scene(models: Replica, real_scene: Scene) -> Scene:
    """Give a namespace whose queue has both nodes, each a domain of its own."""
    assert models.child.is_running()
    rest, name = real_scene.rest, real_scene.scoped("models")
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, {"levels": levels}))
    spec = {"nodeLabels": {POOL: "models"}, "topologyName": name}
    rest.create(f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": name}, spec))
    amounts = [{"name": GPU, "nominalQuota": 64}, {"name": MILLI, "nominalQuota": 64_000}]
    group = {"coveredResources": [GPU, MILLI], "flavors": [{"name": name, "resources": amounts}]}
    queue = real_scene.create_cluster_queue("main", group, queueingStrategy="StrictFIFO")
    real_scene.create_local_queue("main", queue)
    return real_scene


def job(name: str, model: str, *, on_job: bool, scheduler: str = SCHEDULER) -> Object:
    """Return a Job of one pod with eight GPUs of this model, which its Job or its pod template asks for."""
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: 8}}}
    body = make_job(
        name,
        annotations={MODEL: model} if on_job else {},
        schedulerName=scheduler,
        containers=[container],
    )
    if not on_job:
        body["spec"]["template"]["metadata"]["labels"] = {MODEL: model}
    return body


def reservations(witness: Witness) -> Iterator[Object]:
    """Yield the condition QuotaReserved of each version of a Workload that has one."""
    for _, workload in witness.workloads():
        conditions = workload.get("status", {}).get("conditions", ())
        yield from (one for one in conditions if one["type"] == "QuotaReserved")


@pytest.mark.covers("000_14", "000_17")
@pytest.mark.parametrize("on_job", [False, True], ids=["asked by the pod template", "asked by the Job"])
def test_a_job_is_bound_to_the_node_of_its_model(scene: Scene, on_job: bool) -> None:
    scene.rest.create(scene.jobs, job("train", "A100", on_job=on_job))

    pods = wait_for(
        lambda: [pod for pod in scene.pods_of("train") if pod["spec"].get("nodeName")], "its pod is bound"
    )
    assert [pod["spec"]["nodeName"] for pod in pods] == ["gpu-a100"]
    # What the Job asks is on its pods too, where the extender reads it.
    assert MODEL in pods[0]["metadata"]["labels" if not on_job else "annotations"]


@pytest.mark.covers("000_19")
def test_a_job_that_no_node_can_run_is_misconfigured_at_once_and_holds_up_nothing(scene: Scene) -> None:
    with Witness(scene.rest, scene.namespace) as witness:
        scene.rest.create(scene.jobs, job("impossible", "H100", on_job=True))
        waiting = scene.wait_pending("impossible", "Misconfigured")
        witness.catch_up()
    scene.rest.create(scene.jobs, job("next", "V100", on_job=False))

    assert waiting["message"].endswith(
        "none of 2 nodes has the hardware that its pods need: 1 × GPU model mismatch (need H100, has A100); "
        "1 × GPU model mismatch (need H100, has V100)"
    )
    # It is the first reason that is given, not one that is found in the end.
    assert {one["reason"] for one in reservations(witness)} == {"Misconfigured"}
    scene.wait_admitted("next")
    assert scene.job("impossible")["spec"]["suspend"] is True


@pytest.mark.covers("001_19")
def test_shares_are_packed_on_one_node_and_leave_whole_gpus_to_others(scene: Scene) -> None:
    name, queue = scene.scoped("packed"), scene.scoped("main")
    policy = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": name}}
    spec = {"clusterQueues": {"names": [queue]}, "placement": {"strategy": "Packed"}}
    scene.rest.create(POLICIES, {**policy, "spec": spec})
    scene.rest.wait(f"{POLICIES}/{name}", lambda one: one.get("status", {}).get("clusterQueues") == [queue])

    # Three GPUs' worth of shares, which mount no device.
    bare = [{"name": "main", "image": "none"}]
    for number, milli in enumerate(("600", "600", "400")):
        share = make_job(f"share-{number}", schedulerName=SCHEDULER, containers=bare)
        share["spec"]["template"]["metadata"]["annotations"][MILLI] = milli
        scene.rest.create(scene.jobs, share)
        scene.wait_admitted(f"share-{number}")

    def bound() -> list[str]:
        pods = [pod for number in range(3) for pod in scene.pods_of(f"share-{number}")]
        found = [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]
        return found if len(found) == 3 else []

    (shared,) = set(wait_for(bound, "the shares are bound"))

    # Eight free GPUs are on the other node; here the shares leave six.
    scene.rest.create(scene.jobs, job("whole", "", on_job=True))
    scene.wait_admitted("whole")
    pods = wait_for(
        lambda: [pod for pod in scene.pods_of("whole") if pod["spec"].get("nodeName")], "its pod is bound"
    )
    assert [pod["spec"]["nodeName"] for pod in pods] == [
        one for one in ("gpu-a100", "gpu-v100") if one != shared
    ]
    scene.rest.create(scene.jobs, job("next", "", on_job=True))
    scene.wait_pending("next", says="fragmented GPU shares: 1")


@pytest.mark.covers("004_23")
def test_a_changed_profile_binds_admission_and_extender_without_a_restart(
    scene: Scene, models: Replica
) -> None:
    before = models.config_file.read_text()
    # The nodes have no label that says how much memory their GPUs have.
    scene.rest.create(scene.jobs, job("train", "", on_job=True, scheduler="gpu-aware-scheduler"))
    scene.wait_pending("train", "Misconfigured", "insufficient GPU memory: need 8GB, available 0GB")

    def bound_once_a_node_has_changed() -> list[Object]:
        # The extender may read its file after the engine, and refuse the pod once more: kube-scheduler tries
        # such a pod again when something of the cluster changes.
        turn = {"metadata": {"labels": {"test.berth.dev/turn": f"{time.monotonic():.0f}"}}}
        scene.rest.patch("/api/v1/nodes/gpu-a100", turn)
        return [pod for pod in scene.pods_of("train") if "nodeName" in pod["spec"]]

    profile = "extender: {profiles: [{schedulerName: gpu-aware-scheduler, filters: []}]}\n"
    models.config_file.write_text(f"{before}{profile}")
    try:
        scene.wait_admitted("train")
        wait_for(bound_once_a_node_has_changed, "its pod bound")
    finally:
        models.config_file.write_text(before)
