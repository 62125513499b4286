"""`berth replay`: short traces on the embedded cluster, on a bare API server, and on the real one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from api.kube.client import KubeClient
from api.kube.errors import NotFound
from api.kube.resources import (
    CLUSTER_QUEUES,
    COHORTS,
    CRDS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOADS,
)
from api.objects.common import NamedObject
from tests.controlplane import ControlPlane

HEADING = "job_id,user,num_gpu,submit_time,duration\n"
# Twelve Jobs of two tenants on 2 × 4 GPUs: some wait, one is a gang of whole nodes, one needs no GPU.
TRACE = HEADING + "".join(
    f"{number},{user},{gpus},{at},{minutes}\n"
    for number, (user, gpus, at, minutes) in enumerate(
        [("a", 4, 0, 3), ("a", 4, 0, 3), ("b", 1, 1, 2), ("b", 2, 1, 2), ("a", 8, 2, 2), ("b", 0, 2, 1)] * 2
    )
)
GOOD = "jobs 12 finished 12 failed 0 lost 0 quota-exceeded 0"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Give the path of the short trace."""
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_a_trace_is_replayed_and_reported_as_a_table(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["replay", "--jobs", str(trace), "--nodes", "2x4", "--speed", "240"])

    output = capsys.readouterr().out.splitlines()
    assert (code, output[-1]) == (ExitCode.DONE, GOOD)
    assert [line.split()[0] for line in output[:4]] == ["TENANT", "a", "b", "all"]
    assert any("is machine latency" in line for line in output)


def test_the_report_as_json_comes_before_the_last_line(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--limit", "8", "--nodes", "2x4", "--speed", "240", "-o", "json"]

    assert main(["replay", "--jobs", str(trace), *arguments]) == ExitCode.DONE

    report, last = capsys.readouterr().out.splitlines()
    figures = json.loads(report)
    assert last == "jobs 8 finished 8 failed 0 lost 0 quota-exceeded 0"
    assert figures["totals"] == {"jobs": 8, "finished": 8, "failed": 0, "lost": 0, "exceeded": 0}
    assert set(figures["tenants"]) == {"a", "b"}
    assert figures["everyone"]["mean_wait_seconds"] > 0
    assert figures["audit"]["exceeded"] == []


@pytest.mark.parametrize(
    ("text", "arguments", "want"),
    [
        pytest.param("tenant,gpus\n", [], "has the columns tenant, gpus; expected user", id="wrong columns"),
        pytest.param(HEADING + "1,a,99,0,1\n", ["--nodes", "2x4"], "wants 99 GPUs", id="an impossible size"),
        pytest.param(HEADING + "1,a,1,0,x\n", [], "line 2: duration is 'x'", id="a broken number"),
        pytest.param(TRACE, ["--controller"], "goes with --kubeconfig", id="a second controller"),
        pytest.param(TRACE, ["--nodes", "many"], "NODESxGPUS", id="broken nodes"),
        pytest.param(TRACE, ["--speed", "0"], "above 0", id="no speed"),
        pytest.param(TRACE, ["--stand-ins", "none"], "'none'", id="unknown stand-ins"),
    ],
)
def test_wrong_input_is_refused_before_anything_starts(
    text: str, arguments: list[str], want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text)

    assert main(["replay", "--jobs", str(path), *arguments]) == ExitCode.WRONG_USAGE

    sentence = capsys.readouterr().err
    assert want in sentence
    assert sentence.count("\n") == 1


def test_a_cluster_without_the_kinds_gets_a_hint_how_to_install_them(
    trace: Path, bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--jobs", str(trace), "--kubeconfig", bare_server]) == ExitCode.WRONG_USAGE

    assert "berth crds | kubectl apply --server-side -f -" in capsys.readouterr().err


def test_an_unreachable_server_is_exit_code_3(
    trace: Path, unreachable_kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["replay", "--jobs", str(trace), "--kubeconfig", unreachable_kubeconfig, "--controller"])

    assert (code, "cannot reach the API server" in capsys.readouterr().err) == (ExitCode.UNREACHABLE, True)


@pytest.mark.slow
def test_a_bare_api_server_is_completed_and_left_as_it_was(
    trace: Path, bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["replay", "--jobs", str(trace), "--nodes", "2x4", "--speed", "240"]

    code = main([*command, "--kubeconfig", bare_server, "--controller"])

    printed = capsys.readouterr()
    assert (code, printed.out.splitlines()[-1]) == (ExitCode.DONE, GOOD)
    assert "has no Job controller and no scheduler of its own: simulated" in printed.err
    assert asyncio.run(_left_behind(bare_server)) == {}


def test_a_real_cluster_is_left_as_it_was(
    trace: Path, clean_cluster: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    clean_cluster.start_controllers()
    before = asyncio.run(_left_behind(clean_cluster.kubeconfig))
    command = ["replay", "--jobs", str(trace), "--nodes", "2x4", "--speed", "60"]

    code = main([*command, "--kubeconfig", clean_cluster.kubeconfig, "--controller"])

    printed = capsys.readouterr()
    assert (code, printed.out.splitlines()[-1]) == (ExitCode.DONE, GOOD), printed.err
    assert asyncio.run(_left_behind(clean_cluster.kubeconfig)) == before


async def _left_behind(kubeconfig: str) -> dict[str, list[str]]:
    """Return by kind the names of all objects that a replay may have made."""
    found: dict[str, list[str]] = {}
    kinds = (JOBS, PODS, WORKLOADS, CLUSTER_QUEUES, COHORTS, RESOURCE_FLAVORS, NODES, CRDS, NAMESPACES)
    async with await KubeClient.connect(kubeconfig) as client:
        for kind in kinds:
            try:
                items = (await client.list(kind, type_=NamedObject)).items
            except NotFound:
                continue
            names = [item.metadata.name for item in items]
            if kind is NAMESPACES:
                names = [name for name in names if name.startswith(("replay-", "berth"))]
            if names:
                found[kind.plural] = names
    return found
