"""Pods that are queued themselves save before they are preempted, as those of Jobs do: on both API servers.

A unit of two CPUs, a pod by itself or a group of two, fills a queue under a policy, and a more important one
comes. Its pods carry gate and label as the webhook leaves them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from api import keys
from api.parsing.times import to_rfc3339
from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import Object, is_true
from tests.integration.pods import CONFIG, KUEUE, create, is_running, make_pod, member, pod_of, wait_gone
from tests.integration.replica import Replica
from tests.integration.reporting import Reporter, create_account
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("saves")
POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
SAVES_AT_ONCE = {keys.CHECKPOINT_SAVE_SECONDS: "0"}


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that were admitted as one and run, and the more important pod that may come."""

    scene: Scene
    controller: Replica
    high: str
    queue: str
    names: tuple[str, ...]

    def submit_high(self) -> None:
        """Create the pod that needs the room."""
        create(self.scene, make_pod("high", cpus=2, labels={KUEUE + "priority-class": self.high}))

    def pods(self) -> list[Object]:
        """Return the unit's pods that are there."""
        return [pod for name in self.names if (pod := pod_of(self.scene, name)) is not None]

    def asked(self) -> list[str]:
        """Return since when each of its pods is asked for a checkpoint, empty for one that is not."""
        found = (pod["metadata"].get("annotations") or {} for pod in self.pods())
        return [str(annotations.get(keys.CHECKPOINT_REQUESTED_AT, "")) for annotations in found]

    def wait_asked(self) -> None:
        """Return when every one of its pods is asked."""
        wait_for(lambda: all(self.asked()), f"a request on {self.names}")

    def reporter(self) -> Reporter:
        """Return the first of its pods as one that reports."""
        return Reporter(self.scene, self.controller, self.pods()[0])

    def workload(self) -> Object:
        """Return its Workload: of the group's name, or owned by the pod."""
        name = "sweep" if len(self.names) > 1 else self.scene.wait_workload("solo")["metadata"]["name"]
        return self.scene.workload(name)

    def annotations(self) -> dict[str, str]:
        """Return the annotations of its Workload."""
        return dict(self.workload()["metadata"].get("annotations") or {})


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues pods."""
    return Options(config=CONFIG)


@pytest.fixture(params=["a pod by itself", "a group"])
def unit(request: pytest.FixtureRequest, cluster: Cluster, controller: Replica) -> Iterator[Unit]:
    """Give a unit that runs, and says that it can save."""
    scene = cluster.new_scene()
    create_account(scene)
    high = scene.create_priority("high", 1000)
    queue = scene.create_queue(cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
    policy = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": queue}}
    spec = {"clusterQueues": {"names": [queue]}, "preemption": {"graceSeconds": 120}}
    scene.rest.create(POLICIES, {**policy, "spec": spec})
    wait_for(lambda: scene.rest.get(f"{POLICIES}/{queue}").get("status"), "the policy seen")
    if request.param == "a group":
        names: tuple[str, ...] = ("sweep-0", "sweep-1")
        pods = [
            member(one, "sweep", 2, annotations=SAVES_AT_ONCE, serviceAccountName="trainer") for one in names
        ]
    else:
        names = ("solo",)
        pods = [make_pod("solo", cpus=2, annotations=SAVES_AT_ONCE, serviceAccountName="trainer")]
    create(scene, *pods)
    wait_for(lambda: is_running(scene, *names), f"{names} run")
    yield Unit(scene, controller, high, queue, names)
    for pod in scene.rest.get(scene.pods)["items"]:
        scene.rest.delete(f"{scene.pods}/{pod['metadata']['name']}")
    scene.rest.delete(f"{POLICIES}/{queue}")


def test_a_report_of_one_of_its_pods_reaches_its_workload(unit: Unit) -> None:
    at = to_rfc3339(time.time() - 30)
    reporter = unit.reporter()

    status, body, _ = reporter.post({"step": 500, "time": at, "saveSeconds": 12.5}, reporter.token())

    assert (status, body["time"], body["step"]) == (200, at, 500)
    wait_for(lambda: unit.annotations().get(keys.CHECKPOINT_TIME) == at, "the time on its Workload")
    assert unit.annotations()[keys.CHECKPOINT_STEP] == "500"
    measured = unit.workload()["metadata"]["annotations"][keys.CHECKPOINT_MEASURED]
    assert json.loads(measured) == {"save": [12.5]}
    # A report that goes back changes nothing, whichever pod of the unit sends it.
    last = Reporter(unit.scene, unit.controller, unit.pods()[-1])
    earlier = {"step": 1, "time": to_rfc3339(time.time() - 3600)}
    assert last.post(earlier, last.token())[0] == 409


def test_a_unit_is_asked_and_preempted_as_soon_as_it_reports_a_checkpoint(unit: Unit) -> None:
    workload, reporter = unit.workload()["metadata"]["name"], unit.reporter()
    token = reporter.token()
    unit.submit_high()
    unit.wait_asked()
    assert is_true(unit.workload(), "Admitted")

    assert reporter.post({"step": 9, "time": to_rfc3339(time.time())}, token)[0] == 200

    # Its checkpoint ends the wait: the deadline is two minutes away.
    wait_for(lambda: is_running(unit.scene, "high"), "the other one runs", timeout_seconds=90)
    unit.scene.wait_events(workload, "EvictionRequested", "CheckpointSaved", "Preempted")
    kept = unit.controller.metric("berth_eviction_saves_total", cluster_queue=unit.queue, outcome="kept")
    assert kept == 1


def test_a_unit_is_preempted_once_one_of_its_pods_is_annotated(unit: Unit) -> None:
    unit.submit_high()
    unit.wait_asked()

    patch = {"metadata": {"annotations": {keys.CHECKPOINT_TIME: to_rfc3339(time.time())}}}
    unit.scene.rest.patch(f"{unit.scene.pods}/{unit.names[-1]}", patch)

    wait_for(lambda: is_running(unit.scene, "high"), "the other one runs", timeout_seconds=90)


def test_a_unit_runs_on_when_its_room_is_no_longer_needed(unit: Unit) -> None:
    unit.submit_high()
    unit.wait_asked()

    unit.scene.rest.delete(f"{unit.scene.pods}/high")

    wait_for(lambda: keys.EVICTION not in unit.annotations(), "the request taken back")
    assert not any(unit.asked())
    assert is_running(unit.scene, *unit.names)


def test_one_that_does_not_save_is_stopped_at_its_deadline(unit: Unit) -> None:
    unit.submit_high()
    unit.wait_asked()
    workload = unit.workload()["metadata"]["name"]

    # An administrator may shorten the wait: the state is the object's.
    request = json.loads(unit.annotations()[keys.EVICTION])
    request["deadline"] = to_rfc3339(time.time() + 1)
    patch = {"metadata": {"annotations": {keys.EVICTION: json.dumps(request)}}}
    unit.scene.rest.patch(f"{unit.scene.workloads}/{workload}", patch)

    wait_for(lambda: is_running(unit.scene, "high"), "the other one runs", timeout_seconds=90)
    unit.scene.wait_events(workload, "CheckpointMissed")
    missed = unit.controller.metric("berth_eviction_saves_total", cluster_queue=unit.queue, outcome="missed")
    assert missed == 1
    if len(unit.names) == 1:
        wait_gone(unit.scene, *unit.names)
