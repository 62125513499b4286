"""`berth usage` against a controller's /v1, with the token of a tenant."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from admission.cli.__main__ import main
from admission.controller.http.query_api import QueryApi
from api.http.server import HttpServer
from tests.admission.controller.queries.asking import Asked
from tests.page.test_forwarding import KUBECONFIG


async def berth(folder: Path, *arguments: str) -> int:
    """Run the command as `ada` while /v1 of two teams is served."""
    asked = Asked()
    (folder / "kubeconfig").write_text(KUBECONFIG)
    (folder / "token").write_text("ada")
    async with HttpServer(QueryApi(asked.service, asked.callers).routes()) as server:
        flags = ["--kubeconfig", str(folder / "kubeconfig"), "--token-file", str(folder / "token")]
        command = ["usage", "--url", server.url, *flags, "--since", "1970-01-01T00:00:00Z", *arguments]
        return await asyncio.to_thread(main, command)


async def test_a_table_has_a_line_for_each_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = await berth(tmp_path)

    heading, row = capsys.readouterr().out.splitlines()
    assert (code, heading.split()[:2], row.split()[:2]) == (0, ["QUEUE", "WORKLOADS"], ["queue-a", "3"])


async def test_json_is_the_answer_of_the_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await berth(tmp_path, "--by", "namespace", "-o", "json")

    found = json.loads(capsys.readouterr().out)
    assert (code, found["by"], [one["name"] for one in found["items"]]) == (0, "namespace", ["ada"])
    assert found["items"][0].keys() >= {"gpuHoursUsed", "hoursWaited", "gpuHoursLost", "cost"}


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(("-n", "bob"), "kueue.x-k8s.io in namespace bob; a Role", id="of another tenant"),
        pytest.param(("--since", "once"), "since='once': expected a time such as", id="no time"),
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
