"""Reports of checkpoints: a pod's own token against the whole controller, on both API servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api import keys
from api.workload import to_rfc3339
from tests.integration.conftest import Cluster
from tests.integration.replica import Replica
from tests.integration.reporting import Reporter, create_account
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("checkpoints")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Trainer(Reporter):
    """A Job that runs, by its pod."""

    def annotations(self) -> dict[str, str]:
        """Return the Job's annotations."""
        return dict(self.scene.job("train")["metadata"].get("annotations") or {})

    def wait_workload_saved(self, at: str) -> None:
        """Return when its Workload tells of this checkpoint."""
        self.scene.wait_workload(
            "train",
            lambda found: found["metadata"].get("annotations", {}).get(keys.CHECKPOINT_TIME) == at,
            f"a checkpoint of {at}",
        )


@pytest.fixture
def trainer(cluster: Cluster, controller: Replica) -> Iterator[Trainer]:
    """Give a Job named train whose only pod is bound to a node."""
    scene = cluster.new_scene()
    create_account(scene)
    scene.create_queue()
    scene.create_job("train", serviceAccountName="trainer")
    scene.wait_admitted("train")
    pod = wait_for(lambda: next(iter(scene.pods_of("train")), None), "the Job's pod")
    yield Trainer(scene, controller, pod)
    scene.rest.delete(scene.jobs, {"propagationPolicy": "Background"})


def ago(seconds: float) -> str:
    """Return the instant so long ago."""
    return to_rfc3339(time.time() - seconds)


@pytest.mark.parametrize("audience", ["berth.dev", ""], ids=["a token for berth", "the pod's ordinary token"])
def test_a_report_stands_on_the_job_and_reaches_its_workload(trainer: Trainer, audience: str) -> None:
    at = ago(30)

    status, body, _ = trainer.post(
        {"step": 500, "time": at, "saveSeconds": 12.5}, trainer.token(audience=audience)
    )

    assert (status, body["time"], body["step"]) == (200, at, 500)
    told = trainer.annotations()
    assert told[keys.CHECKPOINT_TIME] == at
    assert told[keys.CHECKPOINT_STEP] == "500"
    assert json.loads(told[keys.CHECKPOINT_MEASURED]) == {"save": [12.5]}
    trainer.wait_workload_saved(at)


def test_what_is_refused_is_told_and_changes_nothing(trainer: Trainer) -> None:
    token, at = trainer.token(), ago(30)
    assert trainer.post({"step": 500, "time": at}, token)[0] == 200
    before = trainer.annotations()

    for report, credentials, want_status, want_words in (
        ({"step": 1, "time": ago(10)}, None, 401, "the pod's own token"),
        ({"step": 1, "time": ago(10)}, "not-a-token", 401, "no token of a ServiceAccount"),
        ({"step": 1, "time": ago(10)}, token[:-8] + "AAAAAAAA", 401, "does not accept"),
        ({"step": 1, "time": ago(10)}, trainer.token(is_bound=False), 403, "not bound to a pod"),
        ({"step": 1, "time": ago(3600)}, token, 409, "a newer checkpoint"),
        ({"step": 1, "time": to_rfc3339(time.time() + 3600)}, token, 422, "in the future"),
        ({"step": -1, "time": ago(10)}, token, 422, "step is -1"),
        ({"step": 1, "time": ago(10), "saveSecond": 3}, token, 422, "'saveSecond' is no field"),
        (b"{", token, 400, "no JSON"),
        (b" " * 5000, token, 413, "up to 4096 bytes"),
    ):
        status, body, headers = trainer.post(report, credentials)
        assert (status, want_words in body["error"]) == (want_status, True), body
        assert ("WWW-Authenticate" in headers) == (want_status == 401)

    assert trainer.annotations() == before
    trainer.scene.wait_events("train", "CheckpointRefused")
    assert trainer.controller.metric("berth_checkpoint_reports_total", result="outdated") >= 1


def test_a_pod_that_no_managed_job_controls_may_not_report(trainer: Trainer) -> None:
    scene = trainer.scene
    container = {"name": "c", "image": "none"}
    stray = scene.rest.create(
        scene.pods,
        {"metadata": {"name": "stray"}, "spec": {"serviceAccountName": "trainer", "containers": [container]}},
    )

    outsider = Reporter(scene, trainer.controller, stray)
    status, body, _ = outsider.post({"step": 1, "time": ago(1)}, outsider.token())

    assert (status, "not controlled by a Job" in body["error"]) == (403, True), body
    assert keys.CHECKPOINT_TIME not in trainer.annotations()


def test_a_loop_that_went_wrong_is_told_to_come_later(trainer: Trainer) -> None:
    token = trainer.token()

    answers = [trainer.post({"step": step, "time": ago(1)}, token) for step in range(40)]

    statuses = {status for status, _, _ in answers}
    assert statuses <= {200, 429}
    assert 429 in statuses
    assert all(int(headers["Retry-After"]) >= 1 for status, _, headers in answers if status == 429)


def test_an_annotation_that_goes_back_is_named_and_passed_over(trainer: Trainer) -> None:
    at = ago(30)
    assert trainer.post({"step": 500, "time": at}, trainer.token())[0] == 200
    trainer.wait_workload_saved(at)

    trainer.scene.rest.patch(
        f"{trainer.scene.jobs}/train", {"metadata": {"annotations": {keys.CHECKPOINT_TIME: ago(7200)}}}
    )

    note = wait_for(
        lambda: next((one for one in trainer.scene.notes_about("train") if "last one known" in one), None),
        "an Event that names it",
    )
    assert at in note
    trainer.wait_workload_saved(at)


HELPER = """
import berth_checkpoint
assert berth_checkpoint.resumed()
with berth_checkpoint.saving(700):
    pass
"""


def test_the_helper_of_training_jobs_is_heard(trainer: Trainer, tmp_path: Path) -> None:
    (tmp_path / "berth_checkpoint.py").write_text((ROOT / "api" / "checkpoint.py").read_text())
    (tmp_path / "token").write_text(trainer.token())
    environment = {
        **os.environ,
        "BERTH_URL": trainer.controller.urls()["http"],
        "BERTH_TOKEN_FILE": str(tmp_path / "token"),
        "PYTHONPATH": str(tmp_path),
    }

    subprocess.run([sys.executable, "-c", HELPER], check=True, env=environment, timeout=120)

    told = wait_for(lambda: trainer.annotations().get(keys.CHECKPOINT_STEP), "the step on the Job")
    assert told == "700"
    measured = json.loads(trainer.annotations()[keys.CHECKPOINT_MEASURED])
    assert len(measured["save"]) == len(measured["restart"]) == 1
