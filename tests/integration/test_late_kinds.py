"""Kinds that a cluster does not have yet, has for a while, or has in two versions, beside one that it has.

The controller is the same from the first test to the last, so that it goes on through all of this.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import pytest

from api.jobs.owners.jobset import JOB_SET
from tests.controlplane import Rest
from tests.controlplane.definitions import CRDS, install_crds
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import QUEUE_NAME, Object, is_true
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.owners import SAMPLES, definition

pytestmark = pytest.mark.xdist_group("late-kinds")

OTHER_VERSION = "v1beta1"
(SAMPLE,) = (one for one in SAMPLES if one.row is JOB_SET)


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues JobSets."""
    return Options(
        config=f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, {JOB_SET.framework}]
"""
    )


@pytest.fixture
def scene(cluster: Cluster, controller: Replica) -> Iterator[Scene]:
    """Give a scene with a queue, in which JobSets are not defined once it ends."""
    scene = cluster.new_scene()
    scene.create_queue(cpus=20)
    yield scene
    assert controller.child.is_running()
    undefine(scene.rest)


def two_versions() -> Object:
    """Return the definition of JobSets in the row's version, and in another that is the stored one."""
    made = copy.deepcopy(definition(JOB_SET))
    (ours,) = made["spec"]["versions"]
    made["spec"]["versions"] = [{**ours, "storage": False}, {**ours, "name": OTHER_VERSION}]
    return made


def undefine(rest: Rest) -> None:
    """Delete the definition of JobSets, and wait until it has gone."""
    path = f"{CRDS}/{JOB_SET.plural}.{JOB_SET.group}"
    rest.delete(path)
    wait_for(lambda: not rest.exists(path), "the definition gone")


def path_of(scene: Scene, name: str = "", *, version: str = JOB_SET.version) -> str:
    """Return the path of a JobSet, or of all."""
    collection = f"/apis/{JOB_SET.group}/{version}/namespaces/{scene.namespace}/{JOB_SET.plural}"
    return f"{collection}/{name}" if name else collection


def create(scene: Scene, name: str, *, version: str = JOB_SET.version) -> None:
    """Create a suspended JobSet."""
    body = SAMPLE.object()
    body["apiVersion"] = f"{JOB_SET.group}/{version}"
    body["metadata"] = {"name": name, "labels": {QUEUE_NAME: "main"}}
    scene.rest.create(path_of(scene, version=version), body)


def wait_started(scene: Scene, name: str) -> None:
    """Wait until a JobSet runs on the admission of its Workload."""
    scene.wait_true(name, "Admitted")
    wait_for(lambda: scene.rest.get(path_of(scene, name))["spec"]["suspend"] is False, "its start")


def has_ended(scene: Scene, name: str) -> bool:
    """Return whether no Workload of a JobSet holds quota any more."""
    return all(is_true(one, "Finished") for one in scene.workloads_of(name))


def test_without_the_kind_the_others_are_admitted(scene: Scene) -> None:
    scene.create_job("job")

    scene.wait_admitted("job")


def test_a_kind_that_comes_goes_and_comes_again_is_queued_each_time(scene: Scene) -> None:
    for turn in ("first", "second"):
        install_crds(scene.rest, [definition(JOB_SET)])
        create(scene, turn)
        wait_started(scene, turn)

        undefine(scene.rest)

        scene.create_job(f"job-{turn}")
        scene.wait_admitted(f"job-{turn}")
        # Its objects went with it, and what they had is free.
        wait_for(partial(has_ended, scene, turn), "its Workload ended")


def test_of_a_kind_in_two_versions_each_object_has_one_workload(scene: Scene) -> None:
    install_crds(scene.rest, [two_versions()])

    create(scene, "ours")
    create(scene, "other", version=OTHER_VERSION)

    for name in ("ours", "other"):
        wait_started(scene, name)
        assert len(scene.workloads_of(name)) == 1
