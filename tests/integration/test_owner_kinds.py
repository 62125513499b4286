"""JobSet and the other kinds of the table of owners, each run by its own controller on a real cluster.

CI tries one kind of each way of working. BERTH_KINDS=all tries every kind whose controller has been built,
and BERTH_KINDS=TFJob,MPIJob these alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from admission.controller.http.ca_injector import WEBHOOKS
from api.jobs.owners.paths import value_at
from tests import parts
from tests.controlplane import AssetsMissing, ControlPlane
from tests.controlplane.owner_controllers import (
    CONTROLLERS,
    MORE_CONTROLLERS,
    OwnerController,
    check_built,
    find_controller,
)
from tests.integration import spark_submit
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import LONG, Object, condition, is_true
from tests.integration.owners import MANIFESTS, MORE_MANIFESTS, Manifest, is_asked_for
from tests.integration.ray_network import RayNetwork
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("owners")]

ALL = (*MANIFESTS, *MORE_MANIFESTS)
SOURCES = {**CONTROLLERS, **MORE_CONTROLLERS}
CONFIG = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, {", ".join(sorted({one.row.framework for one in ALL}))}]
"""
REGISTRATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SHORT = 0.5


def is_built(kind: Manifest) -> bool:
    """Return whether the kind's own controller is there."""
    try:
        check_built(SOURCES[kind.controller])
    except AssetsMissing:
        return False
    return True


def is_tried(kind: Manifest) -> bool:
    """Return whether this run tries the kind."""
    return is_asked_for(kind.row.kind, by_default=kind in MANIFESTS)


BUILT = tuple(one for one in ALL if is_tried(one) and is_built(one))


def need(kind: Manifest) -> None:
    """Go on if the kind is to be tried and its controller is there, else skip the present test."""
    if kind in BUILT:
        return
    if not is_tried(kind):
        parts.skip_optional(f"BERTH_KINDS={kind.row.kind} tries it")
    elif kind in MANIFESTS:
        parts.need("owners")
    else:
        parts.skip_optional(f"no {kind.controller}; `make moreowners` builds it once")


def of_kinds(*kinds: Manifest) -> pytest.MarkDecorator:
    """Return the mark that runs a test for each of these kinds."""
    return pytest.mark.parametrize("kind", [pytest.param(one, id=one.row.kind) for one in kinds])


each_kind = of_kinds(*ALL)


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues these kinds, and has a webhook."""
    return Options(config=CONFIG, flags=("--webhook-port", "0"))


@pytest.fixture(scope="module")
def runners(
    control_plane: ControlPlane, real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[OwnerController, ...]]:
    """Give the kinds' own controllers, at work on the cluster."""
    del real_cluster
    if not BUILT:
        parts.need("owners")
    with ExitStack() as stack, RayNetwork() as network:
        environments = {
            "kuberay": network.environment,
            "spark-operator": spark_submit.install(tmp_path_factory.mktemp("spark"), control_plane),
        }
        yield tuple(
            stack.enter_context(
                OwnerController(
                    find_controller(SOURCES[name]),
                    control_plane,
                    tmp_path_factory.mktemp(name),
                    environment=environments.get(name),
                )
            )
            for name in sorted({one.controller for one in BUILT})
        )


@pytest.fixture(scope="module")
def asked(
    runners: tuple[OwnerController, ...], real_cluster: Cluster, real_controller: Replica
) -> Iterator[Replica]:
    """Give Berth's controller, which the server asks about all new objects of these kinds."""
    del runners
    rest = real_cluster.rest
    for one in BUILT:
        if one.needs is not None:
            source, needed = one.needs
            rest.create(f"/apis/{source.group}/{source.version}/{source.plural}", needed)
    rest.create(REGISTRATION, registration(f"{real_controller.urls()['webhook']}/mutate"))
    rest.wait(f"{REGISTRATION}/{WEBHOOKS}", is_trusting)
    scene = real_cluster.new_scene()
    wait_for(lambda: all(is_suspended_at_once(scene, one) for one in BUILT), "the webhook being asked")
    yield real_controller
    rest.delete(f"{REGISTRATION}/{WEBHOOKS}")


@pytest.fixture
def scene(kind: Manifest, asked: Replica, real_scene: Scene) -> Iterator[Scene]:
    """Give a scene in which all controllers work; its objects end with the test."""
    del asked
    need(kind)
    yield real_scene
    for one in BUILT:
        real_scene.rest.delete(one.path(real_scene.namespace), {"propagationPolicy": "Background"})


def registration(url: str) -> Object:
    """Return the webhook as deploy/webhooks has it, at an address of this machine."""
    rules = [
        {
            "apiGroups": [one.row.group],
            "apiVersions": [one.row.version],
            "resources": [one.row.plural],
            "operations": ["CREATE"],
        }
        for one in BUILT
    ]
    jobs = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"]}
    webhook = {
        "name": "w.berth.dev",
        "clientConfig": {"url": url},
        "rules": [*rules, jobs],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOKS},
        "webhooks": [webhook],
    }


def is_trusting(found: Object) -> bool:
    """Return whether the controller has published its CA bundle."""
    return all(webhook["clientConfig"].get("caBundle") for webhook in found["webhooks"])


def suspended(kind: Manifest, obj: Object) -> bool:
    """Return whether an object is suspended."""
    return value_at(obj, kind.row.suspend) is True


def is_suspended_at_once(scene: Scene, kind: Manifest) -> bool:
    """Return whether the server asks the webhook about a kind, by an object that is not created."""
    path = f"{kind.path(scene.namespace)}?dryRun=All"
    return bool(scene.patiently(lambda: suspended(kind, scene.rest.create(path, kind.object("p", 1.0))))())


def create(scene: Scene, kind: Manifest, name: str, seconds: float = LONG) -> Object:
    """Create an object of this kind; return it as the server shows it."""
    return dict(scene.rest.create(kind.path(scene.namespace), kind.object(name, seconds)))


def shown(scene: Scene, kind: Manifest, name: str) -> Object:
    """Return an object of this kind."""
    return dict(scene.rest.get(kind.path(scene.namespace, name)))


def leftovers(kind: Manifest, stopped: Object, workload: Object) -> list[str]:
    """Return what a start has left in the templates of a stopped object: the names of pod sets."""
    if kind.row.templates is not None:
        return ["all"] if kind.row.templates.is_started(stopped) else []
    originals = {one["name"]: one["template"] for one in workload["spec"]["podSets"]}
    return [
        one.name
        for one in kind.row.pod_sets(stopped)
        if value_at(one.template, ("spec", "nodeSelector"))
        != value_at(originals[one.name], ("spec", "nodeSelector"))
        or value_at(one.template, ("metadata", "labels"))
        != value_at(originals[one.name], ("metadata", "labels"))
    ]


def running(scene: Scene) -> int:
    """Return how many pods of the scene run and do not end."""
    pods = scene.rest.get(scene.pods)["items"]
    return sum(
        pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        for pod in pods
    )


@of_kinds(*(one for one in ALL if one.has_end))
def test_one_runs_to_its_end_with_a_single_workload(scene: Scene, kind: Manifest) -> None:
    scene.create_queue(cpus=kind.cpus)
    assert suspended(kind, create(scene, kind, "one", SHORT))

    workload = scene.wait_true("one", "Finished")

    assert condition(workload, "Finished")["reason"] == "Succeeded"
    assert {one["name"]: one["count"] for one in workload["spec"]["podSets"]} == kind.pod_sets
    assert len(scene.rest.get(scene.workloads)["items"]) == 1
    # Events are sent after the writes that they report.
    scene.wait_events("one", "CreatedWorkload", "Started", "FinishedWorkload")


@of_kinds(*(one for one in ALL if not one.has_end))
def test_one_that_serves_gives_its_quota_back_with_its_deletion(scene: Scene, kind: Manifest) -> None:
    scene.create_queue(cpus=kind.cpus)
    assert suspended(kind, create(scene, kind, "one"))
    workload = scene.wait_true("one", "Admitted", "PodsReady")
    assert {one["name"]: one["count"] for one in workload["spec"]["podSets"]} == kind.pod_sets
    create(scene, kind, "next")
    scene.wait_pending("next")

    scene.rest.delete(kind.path(scene.namespace, "one"), {"propagationPolicy": "Background"})

    scene.wait_true("next", "Admitted", "PodsReady")


@each_kind
def test_one_waits_is_evicted_restored_and_resumed(scene: Scene, kind: Manifest) -> None:
    scene.create_queue(cpus=kind.cpus)
    create(scene, kind, "first")
    before = scene.wait_workload("first")
    wait_for(lambda: running(scene) == kind.cpus, "all pods of the first")
    assert is_true(scene.wait_true("first", "PodsReady"), "Admitted")
    create(scene, kind, "second")
    scene.wait_pending("second")

    scene.set_active("first", active=False)

    scene.wait_true("second", "Admitted", "PodsReady")
    stopped = shown(scene, kind, "first")
    assert suspended(kind, stopped)
    assert not leftovers(kind, stopped, before)

    scene.rest.delete(kind.path(scene.namespace, "second"), {"propagationPolicy": "Background"})
    scene.set_active("first", active=True)
    scene.wait_true("first", "Admitted", "PodsReady")
    wait_for(lambda: not suspended(kind, shown(scene, kind, "first")), "the first started again")
    # The garbage collector deletes the Workload of the second when it comes to it.
    wait_for(lambda: not scene.workloads_of("second"), "the Workload of the second gone")
    assert [one["metadata"]["name"] for one in scene.rest.get(scene.workloads)["items"]] == [
        before["metadata"]["name"]
    ]
