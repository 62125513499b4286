"""A victim is asked to save before it is stopped: the whole controller on both API servers.

What a kubelet does with annotations is played here: they are written into a pod's downward-API file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from api import keys
from api.parsing.times import to_rfc3339
from tests.integration.conftest import Cluster
from tests.integration.manifests import Object, condition, is_true
from tests.integration.replica import Replica
from tests.integration.reporting import create_account
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("saves")
ROOT = Path(__file__).parents[2]
POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"

# The loop of examples/, training for ever and saving nothing by itself.
ENDLESS = ("--steps", "1000000", "--step-seconds", "0.02", "--save-every", "1000000")


@dataclass(frozen=True, slots=True)
class Stage:
    """A queue of two CPUs under a policy, with a Job `train` that fills it and reports checkpoints."""

    scene: Scene
    controller: Replica
    high: str
    queue: str

    def submit_high(self, name: str = "high", *, cpus: int = 2, **fields: Any) -> None:
        """Create a more important Job that needs the room."""
        labels = {"kueue.x-k8s.io/priority-class": self.high}
        self.scene.create_job(name, cpus=cpus, labels=labels, **fields)

    def save(self, job: str = "train") -> None:
        """Have a Job report a checkpoint of now."""
        annotations = {keys.CHECKPOINT_TIME: to_rfc3339(time.time())}
        self.scene.rest.patch(f"{self.scene.jobs}/{job}", {"metadata": {"annotations": annotations}})

    def pod(self) -> Object:
        """Return the pod of `train`, once there is one that is not being deleted."""
        return wait_for(
            lambda: next(
                (one for one in self.scene.pods_of("train") if "deletionTimestamp" not in one["metadata"]),
                None,
            ),
            "the pod of train",
        )

    def asked(self) -> dict[str, str]:
        """Return the annotations of a request on the pod of `train`."""
        found = self.pod()["metadata"].get("annotations") or {}
        names = (keys.CHECKPOINT_REQUESTED_AT, keys.CHECKPOINT_DEADLINE)
        return {key: found[key] for key in names if key in found}

    def wait_asked(self) -> dict[str, str]:
        """Return the annotations once they are there."""
        return wait_for(lambda: self.asked() or None, "a request on the pod of train")

    def request(self, job: str = "train") -> str:
        """Return the state of the eviction of a Job, empty for none."""
        found = self.scene.wait_workload(job)["metadata"].get("annotations") or {}
        return str(found.get(keys.EVICTION, ""))

    def wait_request(self, job: str) -> str:
        """Return the state of the eviction of a Job once there is one."""
        return wait_for(lambda: self.request(job) or None, f"a request to {job}")

    def annotate_workload(self, value: str) -> None:
        """Change the state of the eviction of `train`."""
        name = self.scene.wait_workload("train")["metadata"]["name"]
        patch = {"metadata": {"annotations": {keys.EVICTION: value}}}
        self.scene.rest.patch(f"{self.scene.workloads}/{name}", patch)


@contextmanager
def staged(
    cluster: Cluster,
    controller: Replica,
    annotations: Object | None = None,
    *,
    cpus: int = 2,
    **pod_spec: Any,
) -> Iterator[Stage]:
    """Give a stage on which `train` runs on `cpus` of two; `annotations` are its own, by default that a
    save takes no time.
    """
    scene = cluster.new_scene()
    create_account(scene)
    high = scene.create_priority("high", 1000)
    queue = scene.create_queue(cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
    policy = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy"}
    spec = {"clusterQueues": {"names": [queue]}, "preemption": {"graceSeconds": 120}}
    scene.rest.create(POLICIES, {**policy, "metadata": {"name": queue}, "spec": spec})
    wait_for(lambda: scene.rest.get(f"{POLICIES}/{queue}").get("status"), "the policy seen")
    own = annotations or {keys.CHECKPOINT_SAVE_SECONDS: "0"}
    scene.create_job("train", cpus=cpus, serviceAccountName="trainer", annotations=own, **pod_spec)
    scene.wait_admitted("train")
    found = Stage(scene, controller, high, queue)
    found.pod()
    yield found
    scene.rest.delete(scene.jobs, {"propagationPolicy": "Background"})
    scene.rest.delete(f"{POLICIES}/{queue}")


@pytest.fixture
def stage(cluster: Cluster, controller: Replica) -> Iterator[Stage]:
    """Give a stage on which `train` runs."""
    with staged(cluster, controller) as found:
        yield found


@dataclass(slots=True)
class Process:
    """A training process in the place of a pod's."""

    child: subprocess.Popen[str]
    podinfo: Path
    lines: list[str] = field(default_factory=list)

    def read(self) -> str:
        """Return its next line."""
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def show(self, annotations: dict[str, str]) -> None:
        """Bring annotations into its pod, as the kubelet does: all at once."""
        text = "\n".join(f"{key}={json.dumps(value)}" for key, value in annotations.items())
        fresh = self.podinfo.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.podinfo)

    def end(self) -> int:
        """Stop it as the kubelet does, and return the step at which it ends."""
        # Before it has begun to train SIGTERM ends it like any process: there is nothing to save.
        wait_for(lambda: catches_sigterm(self.child.pid), "the process trains")
        self.child.send_signal(signal.SIGTERM)
        rest, _ = self.child.communicate(timeout=60)
        # Not in success, which would say that all its steps are done.
        assert self.child.returncode == 143
        return int(rest.splitlines()[-1].removeprefix("ends at step "))


def catches_sigterm(pid: int) -> bool:
    """Return whether the process has a handler for SIGTERM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line for line in lines if line.startswith("SigCgt")).split()[1]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@contextmanager
def training(stage: Stage, folder: Path) -> Iterator[Process]:
    """Give a process that trains for the present pod of `train`, and reports with its token."""
    metadata = stage.pod()["metadata"]
    reference = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
    accounts = f"/api/v1/namespaces/{stage.scene.namespace}/serviceaccounts/trainer/token"
    body = {"spec": {"audiences": ["berth.dev"], "boundObjectRef": reference}}
    token, podinfo = folder / "token", folder / f"annotations-{metadata['uid']}"
    # An image that knows nothing of Berth but this file.
    shutil.copy(ROOT / "api/checkpoint.py", folder / "berth_checkpoint.py")
    token.write_text(str(stage.scene.rest.create(accounts, body)["status"]["token"]))
    podinfo.write_text("")
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "BERTH_URL": stage.controller.urls()["http"],
        "BERTH_TOKEN_FILE": str(token),
        "BERTH_PODINFO": str(podinfo),
    }
    arguments = [sys.executable, str(ROOT / "examples/checkpoint_loop.py"), str(folder / "saved"), *ENDLESS]
    child = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield Process(child, podinfo)
    finally:
        child.kill()
        child.communicate()


@pytest.mark.covers("001_35")
def test_a_process_saves_on_request_and_resumes_from_its_step(stage: Stage, tmp_path: Path) -> None:
    with training(stage, tmp_path) as process:
        assert process.read() == "starts at step 0"
        stage.submit_high(seconds=0.5)
        process.show(stage.wait_asked())

        # Its checkpoint ends the wait: the deadline is two minutes away.
        stage.scene.wait_finished("high", timeout_seconds=90)
        stopped = process.end()

    saved = json.loads((tmp_path / "saved").read_text())["step"]
    reported = int(stage.scene.job("train")["metadata"]["annotations"][keys.CHECKPOINT_STEP])
    # The reported checkpoint is the one that ended the wait. SIGTERM has the process save once more, when its
    # pod may be gone and its token with it: that one is not reported, and yet the Job resumes from it.
    assert 0 < reported <= saved == stopped
    workload = stage.scene.wait_workload(
        "train", lambda found: is_true(found, "Admitted") and not is_true(found, "Evicted"), "running again"
    )
    stage.scene.wait_events(
        workload["metadata"]["name"], "EvictionRequested", "CheckpointSaved", "Preempted", "WorkLost"
    )
    assert (
        stage.controller.metric("berth_eviction_saves_total", cluster_queue=stage.queue, outcome="kept") == 1
    )
    with training(stage, tmp_path) as process:
        assert process.read() == f"starts at step {saved}"


def test_a_process_that_saves_at_sigterm_is_not_asked_before_and_what_it_saves_counts(
    cluster: Cluster, controller: Replica, tmp_path: Path
) -> None:
    annotations = {keys.CHECKPOINT_SAVE_SECONDS: "1", keys.CHECKPOINT_ON_SIGTERM: "true"}
    with staged(cluster, controller, annotations, terminationGracePeriodSeconds=300) as stage:
        scene, name = stage.scene, stage.pod()["metadata"]["name"]
        pods = f"/api/v1/namespaces/{scene.namespace}/pods/{name}"
        # Its pod ends when the process has, and not before.
        slow = {"berth.dev/simulated-shutdown-seconds": "300"}
        scene.rest.patch(pods, {"metadata": {"annotations": slow}})
        with training(stage, tmp_path) as process:
            assert process.read() == "starts at step 0"
            stage.submit_high(seconds=0.5)
            wait_for(lambda: "deletionTimestamp" in scene.rest.get(pods)["metadata"], "SIGTERM to its pod")
            assert stage.request() == ""
            stopped = process.end()
        scene.rest.delete(pods, {"gracePeriodSeconds": 0})

        # The room is free as soon as the pod has ended.
        scene.wait_finished("high", timeout_seconds=90)
        assert int(scene.job("train")["metadata"]["annotations"][keys.CHECKPOINT_STEP]) == stopped
        workload = scene.wait_workload("train")["metadata"]["name"]
        scene.wait_events(workload, "CheckpointExpected", "Preempted")
        assert "EvictionRequested" not in scene.reasons_about(workload)
        labels = {"cluster_queue": stage.queue, "outcome": "kept"}
        assert controller.metric("berth_eviction_saves_total", **labels) == 1
        lost = {"cluster_queue": stage.queue, "reason": "Preempted"}
        assert controller.metric("berth_evicted_device_seconds_lost_total", **lost) == 0


@pytest.mark.covers("001_34")
def test_one_that_does_not_save_is_stopped_at_its_deadline_and_what_it_lost_is_counted(stage: Stage) -> None:
    stage.submit_high()
    stage.wait_asked()

    # An administrator may shorten the wait: the state is the object's.
    request = json.loads(stage.request())
    request["deadline"] = to_rfc3339(time.time() + 1)
    stage.annotate_workload(json.dumps(request))

    stage.scene.wait_admitted("high", timeout_seconds=90)
    workload = stage.scene.wait_workload("train")
    assert condition(workload, "Evicted")["reason"] == "Preempted"
    stage.scene.wait_events(workload["metadata"]["name"], "CheckpointMissed")
    labels = {"cluster_queue": stage.queue, "reason": "Preempted"}
    assert stage.controller.metric("berth_evicted_device_seconds_lost_total", **labels) > 0


def test_one_whose_own_next_checkpoint_comes_in_time_is_left_to_it_and_not_asked(stage: Stage) -> None:
    scene = stage.scene

    def report(**annotations: str) -> None:
        """Report a checkpoint of now, as the Job's helper does."""
        reported = {keys.CHECKPOINT_TIME: to_rfc3339(time.time()), **annotations}
        scene.rest.patch(f"{scene.jobs}/train", {"metadata": {"annotations": reported}})
        scene.wait_workload(
            "train",
            lambda found: (
                (found["metadata"].get("annotations") or {}).get(keys.CHECKPOINT_TIME)
                == reported[keys.CHECKPOINT_TIME]
            ),
            "the reported checkpoint",
        )

    # The next one is due in a minute, well within the two minutes of grace.
    report(**{keys.CHECKPOINT_INTERVAL_SECONDS: "60"})
    name = scene.wait_workload("train")["metadata"]["name"]
    saved_at = time.time()
    # What has saved just now would be stopped at once.
    wait_for(lambda: time.time() > saved_at + 2, "something to lose")
    stage.submit_high()
    wait_for(lambda: stage.request(), "the eviction decided on")
    pod = stage.pod()["metadata"]["name"]
    assert stage.asked() == {}
    assert not is_true(scene.wait_workload("train"), "Evicted")

    # Its checkpoint comes: instants are whole seconds, one of the request's own second counts.
    scene.rest.patch(
        f"{scene.jobs}/train", {"metadata": {"annotations": {keys.CHECKPOINT_TIME: to_rfc3339(time.time())}}}
    )

    scene.wait_admitted("high", timeout_seconds=90)
    scene.wait_events(name, "CheckpointSaved", "Preempted")
    assert "CheckpointRequested" not in scene.reasons_about(pod)
    assert (
        stage.controller.metric("berth_eviction_saves_total", cluster_queue=stage.queue, outcome="kept") == 1
    )


def test_it_runs_on_when_its_room_is_no_longer_needed(stage: Stage) -> None:
    stage.submit_high()
    asked = stage.wait_asked()
    name = stage.scene.wait_workload("train")["metadata"]["name"]
    answer = stage.controller.get("http", f"/v1/workloads/{stage.scene.namespace}/{name}")[1]
    assert json.loads(answer)["eviction"]["deadline"] == asked[keys.CHECKPOINT_DEADLINE]

    stage.scene.delete_job("high")

    wait_for(lambda: not stage.request(), "the request taken back")
    assert stage.asked() == {}
    workload = stage.scene.wait_workload("train")
    assert is_true(workload, "Admitted")
    assert not is_true(workload, "Evicted")


def test_a_request_that_cannot_be_read_is_taken_off_and_named(stage: Stage) -> None:
    stage.annotate_workload('{"reason": "Hunger"}')

    name = stage.scene.wait_workload("train")["metadata"]["name"]
    stage.scene.wait_events(name, "EvictionUnreadable")
    assert stage.request() == ""
    (note,) = [one for one in stage.scene.notes_about(name) if keys.EVICTION in one]
    assert "Hunger" in note


def test_two_save_side_by_side_and_each_makes_room_when_it_has(cluster: Cluster, controller: Replica) -> None:
    with staged(cluster, controller, cpus=1) as stage:
        scene = stage.scene
        scene.create_job("other", cpus=1, annotations={keys.CHECKPOINT_SAVE_SECONDS: "0"})
        scene.wait_admitted("other")
        started_at = time.time()
        # What has only just started is stopped without a request.
        wait_for(lambda: time.time() > started_at + 2, "something to lose")
        for name in ("first", "second"):
            stage.submit_high(name, cpus=1)

        # Neither of them has room yet, and both have been asked for.
        made_way = {json.loads(stage.wait_request(job))["preemptor"]: job for job in ("train", "other")}
        by_name = {name: scene.wait_workload(name)["metadata"]["name"] for name in ("first", "second")}
        victims = {name: made_way[f"{scene.namespace}/{by_name[name]}"] for name in by_name}

        # The one that was asked last saves first.
        for name in ("second", "first"):
            stage.save(victims[name])
            scene.wait_admitted(name, timeout_seconds=90)
        labels = {"cluster_queue": stage.queue}
        assert controller.metric("berth_eviction_saves_total", outcome="kept", **labels) == 2


def test_an_eviction_passes_on_to_the_next_in_line_without_a_word_to_the_pod(stage: Stage) -> None:
    scene = stage.scene
    stage.submit_high()
    asked = stage.wait_asked()
    stage.submit_high("second", seconds=0.5)
    scene.wait_workload(
        "second", lambda found: "QuotaReserved" in str(found.get("status")), "a reason to wait"
    )

    scene.delete_job("high")
    workload = scene.wait_workload("train")["metadata"]["name"]
    scene.wait_events(workload, "EvictionPassedOn")

    assert stage.asked() == asked
    stage.save()
    scene.wait_finished("second", timeout_seconds=90)
    assert "EvictionCancelled" not in scene.reasons_about(workload)
    for outcome, want in (("requested", 1), ("kept", 1)):
        labels = {"cluster_queue": stage.queue, "outcome": outcome}
        assert stage.controller.metric("berth_eviction_saves_total", **labels) == want
