"""`berth get workloads --controller` against a controller's /v1, with the token of a tenant."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from admission.cli.__main__ import main
from admission.cli.listing import from_controller
from admission.cli.views.tables import between_text
from admission.cli.views.workload_view import WorkloadRow
from admission.controller.http.query_api import QueryApi
from api.http.server import HttpServer
from tests.admission.controller.queries.asking import Asked
from tests.page.tenant_server import kubeconfig_of, tenant_routes
from tests.page.test_forwarding import KUBECONFIG


async def berth(folder: Path, *arguments: str) -> int:
    """Run the command as `ada` while /v1 of two teams is served."""
    asked = Asked()
    (folder / "kubeconfig").write_text(KUBECONFIG)
    (folder / "token").write_text("ada")
    async with HttpServer(QueryApi(asked.service, asked.callers).routes()) as server:
        flags = ["--kubeconfig", str(folder / "kubeconfig"), "--token-file", str(folder / "token")]
        command = ["get", arguments[0], "--controller", "--url", server.url, *flags, *arguments[1:]]
        return await asyncio.to_thread(main, command)


async def test_workloads_are_as_the_controller_knows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # With pages of one item, so that all of them are read.
    monkeypatch.setattr(from_controller, "_PAGE", 1)

    code = await berth(tmp_path, "workloads", "-A", "-o", "json")

    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [(one["name"], one["position"], one["clusterQueue"]) for one in found] == [
        ("c", 1, "queue-a"),
        ("b", 2, "queue-a"),
        ("a", 3, "queue-a"),
    ]
    assert found[0].keys() >= {"earliestStart", "latestStart"}


async def as_tenant(folder: Path, *arguments: str, is_known: bool) -> int:
    """Run the command with rights in the namespace of `ada` alone; `is_known`: the controller's address."""
    asked = Asked()
    async with (
        HttpServer(tenant_routes("ada")) as cluster,
        HttpServer(QueryApi(asked.service, asked.callers).routes()) as server,
    ):
        way = ["--url", server.url] if is_known else []
        command = ["get", "workloads", "--kubeconfig", kubeconfig_of(folder, cluster.url, "ada"), *way]
        return await asyncio.to_thread(main, [*command, *arguments])


async def test_positions_that_a_tenants_rights_do_not_show_are_asked_of_the_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await as_tenant(tmp_path, "-o", "json", is_known=True)

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert [(one["name"], one["position"]) for one in json.loads(out)] == [("c", 1), ("b", 2), ("a", 3)]


async def test_without_a_controller_a_tenant_sees_its_objects_and_why_positions_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")

    code = await as_tenant(tmp_path, "-o", "json", is_known=False)

    out, err = capsys.readouterr()
    assert code == 0
    assert [(one["name"], one["position"]) for one in json.loads(out)] == [(name, None) for name in "abc"]
    assert err == (
        "berth get: the controller, which knows all positions, cannot be asked: kubectl is not installed,"
        " which forwards the controller's port; give its --url\n"
    )


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(("workloads", "-n", "bob"), "ada may not list", id="of another tenant"),
        pytest.param(("queues",), "--controller shows workloads; give queues without it", id="another kind"),
        pytest.param(("workloads", "-l", "a=b"), "-l is read by the API server", id="labels"),
    ],
)
async def test_what_is_refused_is_one_sentence(
    arguments: tuple[str, ...], want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await berth(tmp_path, *arguments)

    said = capsys.readouterr().err
    assert code != 0
    assert want in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("earliest", "latest", "want"),
    [
        pytest.param("1970-01-01T00:26:40Z", "1970-01-01T03:00:00Z", "10m-2h43m", id="an interval"),
        pytest.param("1970-01-01T00:00:00Z", "1970-01-01T00:17:00Z", "0s-20s", id="from now on"),
        pytest.param("", "", "", id="none that is known"),
    ],
)
def test_the_interval_of_a_start(earliest: str, latest: str, want: str) -> None:
    row = WorkloadRow(
        namespace="team",
        name="w",
        job="",
        queue="lq",
        cluster_queue="cq",
        status="pending",
        position=1,
        priority=0,
        reason="",
        message="",
        age_seconds=0.0,
        earliest_start=earliest,
        latest_start=latest,
    )

    assert between_text(row, now=1000.0) == want
