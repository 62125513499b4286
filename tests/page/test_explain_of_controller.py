"""`berth explain` of a tenant: the controller's /v1 answers where the tenant's rights show only a part."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from admission.cli.__main__ import main
from admission.controller.http.query_api import QueryApi
from api.http.server import HttpServer
from tests.admission.controller.queries.asking import Asked, running_workload, two_teams
from tests.page.tenant_server import kubeconfig_of, tenant_routes

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "new", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}],
            }
        }
    },
}


async def berth(folder: Path, *arguments: str, is_known: bool = True) -> int:
    """Run the command as the tenant `ada`, whose queue is full of work of `bob`."""
    held = (running_workload(f"held-{at}", "bob", "queue-a", at=at) for at in range(6))
    asked = Asked(*two_teams(), *held)
    async with (
        HttpServer(tenant_routes("ada")) as cluster,
        HttpServer(QueryApi(asked.service, asked.callers).routes()) as server,
    ):
        way = ["--url", server.url] if is_known else []
        command = [*arguments, "--kubeconfig", kubeconfig_of(folder, cluster.url, "ada"), *way]
        return await asyncio.to_thread(main, command)


async def test_a_tenant_learns_its_place_and_what_holds_its_quota(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await berth(tmp_path, "explain", "a")

    out, err = capsys.readouterr()
    assert (code, err) == (1, "")
    assert out.startswith("ada/a: pending in queue-a, 3 of 3 in the queue\n")
    assert "it lacks 1 of 1 cpu in flavor f" in out.replace("\n", " ")
    assert "who holds cpu of flavor f:\n  and 6 that you may not see (6)\n" in out
    assert "bob" not in out


async def test_json_is_the_controllers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await berth(tmp_path, "explain", "a", "-o", "json")

    found = json.loads(capsys.readouterr().out)
    assert found["heldByHidden"] == {"count": 6, "amount": "6"}
    assert found["isPartial"] is False


async def test_without_a_controller_the_workload_itself_answers_and_a_line_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    code = await berth(tmp_path, "explain", "a", is_known=False)

    out, err = capsys.readouterr()
    assert code == 1
    assert out.startswith("ada/a: pending in queue-a")
    assert "With your rights, flavors, nodes and what others hold are not shown." in out
    assert err == (
        "berth explain: the controller knows more, and cannot be asked: kubectl is not installed, which"
        " forwards the controller's port; give its --url\n"
    )


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param(
            "bob/d", "forbidden: /apis/kueue.x-k8s.io/v1beta2/namespaces/bob/workloads", id="Workloads"
        ),
        pytest.param("ada/j", "forbidden: /apis/batch/v1/namespaces/ada/jobs/j", id="Jobs"),
    ],
)
async def test_what_may_not_be_read_is_not_said_to_be_missing(
    name: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await berth(tmp_path, "explain", name)

    out, err = capsys.readouterr()
    assert (code, out) == (3, "")
    assert want in err
    assert "has no" not in err


@pytest.mark.parametrize(
    ("is_known", "want_code", "want"),
    [
        pytest.param(True, 1, "would not start as it is", id="the controller answers"),
        pytest.param(False, 3, "clusterqueues may not be read", id="no controller can be asked"),
    ],
)
async def test_a_job_before_it_is_submitted(
    is_known: bool,
    want_code: int,
    want: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    (tmp_path / "job.json").write_text(json.dumps(JOB))

    code = await berth(tmp_path, "explain", "-f", str(tmp_path / "job.json"), is_known=is_known)

    out, err = capsys.readouterr()
    assert code == want_code
    assert want in out + err
