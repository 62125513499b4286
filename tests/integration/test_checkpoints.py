"""Reports of checkpoints: a pod's own token against the whole controller, on both API servers."""

from __future__ import annotations

import base64
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
from api.parsing.times import to_rfc3339
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

    def refused(self, word: str) -> float:
        """Return how many reports were counted by this word."""
        return self.controller.metric("berth_checkpoint_reports_total", result=word)

    def measured(self) -> str:
        """Return the measured costs that its Workload shows, "" without any."""
        workload = self.scene.wait_workload("train")
        return str(workload["metadata"].get("annotations", {}).get(keys.CHECKPOINT_MEASURED, ""))

    def wait_workload_saved(self, at: str) -> None:
        """Return when its Workload shows this checkpoint."""
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
def test_a_report_is_recorded_on_the_job_and_reaches_its_workload(trainer: Trainer, audience: str) -> None:
    at = ago(30)

    status, body, _ = trainer.post(
        {"step": 500, "time": at, "saveSeconds": 12.5}, trainer.token(audience=audience)
    )

    assert (status, body["time"], body["step"]) == (200, at, 500)
    annotations = trainer.annotations()
    assert annotations[keys.CHECKPOINT_TIME] == at
    assert annotations[keys.CHECKPOINT_STEP] == "500"
    assert json.loads(trainer.measured()) == {"save": [12.5]}
    trainer.wait_workload_saved(at)


# The word by which each status is counted.
COUNTED = {
    400: "malformed",
    401: "unauthenticated",
    403: "forbidden",
    409: "outdated",
    413: "too-large",
    422: "invalid",
}


def run_out(token: str) -> str:
    """Return the token as if it had run out an hour ago."""
    head, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    claims["exp"] = int(time.time()) - 3600
    aged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{head}.{aged}.{signature}"


def test_a_refused_report_is_answered_and_counted_and_changes_nothing(trainer: Trainer) -> None:
    token, at = trainer.token(), ago(30)
    assert trainer.post({"step": 500, "time": at}, token)[0] == 200
    before = trainer.annotations()

    for report, credentials, want_status, want_words in (
        ({"step": 1, "time": ago(10)}, None, 401, "the pod's own token"),
        ({"step": 1, "time": ago(10)}, "not-a-token", 401, "no token of a ServiceAccount"),
        ({"step": 1, "time": ago(10)}, token[:-8] + "AAAAAAAA", 401, "does not accept"),
        ({"step": 1, "time": ago(10)}, run_out(token), 401, "has expired"),
        ({"step": 1, "time": ago(10)}, trainer.token(is_bound=False), 403, "not bound to a pod"),
        ({"step": 1, "time": ago(3600)}, token, 409, "a newer checkpoint"),
        ({"step": 1, "time": to_rfc3339(time.time() + 3600)}, token, 422, "in the future"),
        ({"resumedAt": to_rfc3339(time.time() + 3600)}, token, 422, "in the future"),
        ({"step": 1, "time": "noon"}, token, 422, "RFC 3339"),
        ({"step": -1, "time": ago(10)}, token, 422, "step is -1"),
        ({"step": 1, "time": ago(10), "saveSeconds": 1e9}, token, 422, "seconds from 0 to 86400"),
        ({"step": 1, "time": ago(10), "saveSecond": 3}, token, 422, "'saveSecond' is no field"),
        (b"{", token, 400, "no JSON"),
        (b" " * 5000, token, 413, "up to 4096 bytes"),
    ):
        counted = trainer.refused(COUNTED[want_status])
        status, body, headers = trainer.post(report, credentials)
        assert (status, want_words in body["error"]) == (want_status, True), body
        assert ("WWW-Authenticate" in headers) == (want_status == 401)
        assert trainer.refused(COUNTED[want_status]) == counted + 1

    assert trainer.annotations() == before
    trainer.scene.wait_events("train", "CheckpointRefused")


def test_a_pod_that_no_managed_job_controls_may_not_report(trainer: Trainer) -> None:
    scene = trainer.scene
    container = {"name": "c", "image": "none"}
    stray = scene.rest.create(
        scene.pods,
        {"metadata": {"name": "stray"}, "spec": {"serviceAccountName": "trainer", "containers": [container]}},
    )

    outsider = Reporter(scene, trainer.controller, stray)
    counted = trainer.refused("forbidden")
    status, body, _ = outsider.post({"step": 1, "time": ago(1)}, outsider.token())

    assert (status, "not controlled by a Job" in body["error"]) == (403, True), body
    assert trainer.refused("forbidden") == counted + 1
    assert keys.CHECKPOINT_TIME not in trainer.annotations()


def test_a_pod_reports_for_its_own_job_alone(trainer: Trainer) -> None:
    trainer.scene.create_job("other", serviceAccountName="trainer")
    trainer.scene.wait_admitted("other")
    pod = wait_for(lambda: next(iter(trainer.scene.pods_of("other")), None), "the other Job's pod")
    other = Reporter(trainer.scene, trainer.controller, pod)

    status, body, _ = other.post({"step": 9, "time": ago(1)}, other.token())

    assert (status, body["job"]) == (200, f"{trainer.scene.namespace}/other")
    assert keys.CHECKPOINT_TIME not in trainer.annotations()


def test_the_token_of_a_deleted_pod_is_refused(trainer: Trainer) -> None:
    token, name = trainer.token(), trainer.pod["metadata"]["name"]
    trainer.scene.rest.delete(f"{trainer.scene.pods}/{name}", {"gracePeriodSeconds": 0})
    wait_for(
        lambda: all(
            one["metadata"]["name"] != name for one in trainer.scene.rest.get(trainer.scene.pods)["items"]
        ),
        "the pod gone",
    )

    status, _, _ = trainer.post({"step": 9, "time": ago(1)}, token)

    assert status == 401
    assert keys.CHECKPOINT_TIME not in trainer.annotations()


def test_a_pod_that_reports_in_a_loop_is_throttled_and_delays_no_other(trainer: Trainer) -> None:
    trainer.scene.create_job("other", serviceAccountName="trainer")
    trainer.scene.wait_admitted("other")
    pod = wait_for(lambda: next(iter(trainer.scene.pods_of("other")), None), "the other Job's pod")
    other = Reporter(trainer.scene, trainer.controller, pod)
    token, counted = trainer.token(), trainer.refused("too-many")

    answers = [trainer.post({"step": step, "time": ago(1)}, token) for step in range(40)]

    statuses = [status for status, _, _ in answers]
    assert set(statuses) == {200, 429}
    assert all(int(headers["Retry-After"]) >= 1 for status, _, headers in answers if status == 429)
    assert trainer.refused("too-many") == counted + statuses.count(429)
    assert other.post({"step": 9, "time": ago(1)}, other.token())[0] == 200


def test_absurd_costs_are_named_and_count_as_not_said(trainer: Trainer) -> None:
    annotations = {keys.CHECKPOINT_SAVE_SECONDS: "1e12", keys.CHECKPOINT_RESTART_SECONDS: "-1"}
    trainer.scene.create_job("absurd", annotations=annotations)

    note = wait_for(
        lambda: next((one for one in trainer.scene.notes_about("absurd") if "it is ignored" in one), None),
        "an Event that names them",
    )

    assert keys.CHECKPOINT_SAVE_SECONDS in note
    assert keys.CHECKPOINT_RESTART_SECONDS in note
    trainer.scene.wait_admitted("absurd")


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


def test_a_report_of_the_training_helper_is_recorded(trainer: Trainer, tmp_path: Path) -> None:
    (tmp_path / "berth_checkpoint.py").write_text((ROOT / "api" / "checkpoint.py").read_text())
    (tmp_path / "token").write_text(trainer.token())
    environment = {
        **os.environ,
        "BERTH_URL": trainer.controller.urls()["http"],
        "BERTH_TOKEN_FILE": str(tmp_path / "token"),
        "PYTHONPATH": str(tmp_path),
    }

    subprocess.run([sys.executable, "-c", HELPER], check=True, env=environment, timeout=120)

    step = wait_for(lambda: trainer.annotations().get(keys.CHECKPOINT_STEP), "the step on the Job")
    assert step == "700"
    measured = json.loads(wait_for(trainer.measured, "the costs on the Workload"))
    assert len(measured["save"]) == len(measured["restart"]) == 1
