"""What a table shows on terminals of three widths. The commands run in a pseudo-terminal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace
from admission.cli.trial.embedded_cluster import create, install_kinds
from admission.cli.views.columns import Column, print_rows
from api.kube.client import KubeClient
from api.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, WORKLOADS
from tests.admission.cli import captures
from tests.admission.cli.captures import on_terminal

LONG = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100"
NAME = "job-pretrain-llama-70b-seed-1-of-4-c9f2e"


async def fill(kubeconfig: str) -> None:
    """Create a queue, and a Workload with a long name, a long reason and a promised start."""
    pod_set = {
        "name": "main",
        "count": 1,
        "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}},
    }
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": NAME,
            "namespace": "speech",
            "annotations": {"berth.dev/planned-start": "2099-01-01T00:00:00Z"},
        },
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }
    why = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "WaitingForQuota",
        "message": LONG,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with await KubeClient.connect(kubeconfig) as client:
        await install_kinds(client)
        await create(
            client, CLUSTER_QUEUES, cluster_queue("speech", flavor="a100", nominal={GPU: 8}, cohort="c")
        )
        await create(client, NAMESPACES, namespace("speech"))
        await create(client, LOCAL_QUEUES, local_queue("main", "speech", "speech"))
        await create(client, WORKLOADS, body)
        status = json.dumps({"status": {"conditions": [why]}}).encode()
        await client.merge_patch(WORKLOADS, NAME, status, "speech", subresource="status")


@pytest.mark.parametrize(
    ("width", "want", "is_whole"),
    [
        pytest.param(80, ["NAME", "STATUS", "POSITION", "STARTS"], False, id="80 columns"),
        pytest.param(
            120,
            ["NAMESPACE", "NAME", "STATUS", "POSITION", "STARTS", "AGE", "REASON"],
            False,
            id="120 columns",
        ),
        pytest.param(
            200,
            [
                *("NAMESPACE", "NAME", "STATUS", "POSITION", "STARTS", "AGE"),
                *("QUEUE", "CLUSTERQUEUE", "REASON", "MESSAGE"),
            ],
            True,
            id="200 columns",
        ),
    ],
)
def test_the_columns_that_matter_stay_whole(
    width: int, want: list[str], is_whole: bool, bare_server: str
) -> None:
    asyncio.run(fill(bare_server))

    lines = on_terminal(width, "get", "workloads", "-A", "--kubeconfig", bare_server)

    assert [heading for heading in lines[0].split() if heading in want] == want
    assert [NAME in line and "pending" in line for line in lines].count(True) == 1
    assert max(map(len, (line.rstrip() for line in lines))) <= width
    assert (LONG.split()[0] in " ".join(lines)) is is_whole


def test_the_docs_show_what_the_commands_print_on_80_columns(bare_server: str) -> None:
    """python -m tests.admission.cli.captures writes it again."""
    asyncio.run(captures.fill(bare_server))

    assert captures.captured(bare_server) == captures.shown()


def output_of(script: Path) -> str:
    """Return what a script prints, which must succeed."""
    return subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("answers", "want_code"),
    [
        pytest.param(True, 0, id="which is printed"),
        pytest.param(False, 3, id="which no server answers"),
    ],
)
def test_a_list_of_queues_loads_little(
    answers: bool, want_code: int, bare_server: str, unreachable_kubeconfig: str, tmp_path: Path
) -> None:
    asyncio.run(fill(bare_server))
    kubeconfig = bare_server if answers else unreachable_kubeconfig
    # Their imports took most of the command's time: engine, models, a server, and what is read of Workloads.
    heavy = {
        *("pydantic", "aiohttp.web", "cryptography", "api.http.server", "api.policy", "api.workload"),
        *("admission.engine.engine", "admission.reconcile.decision_texts", "admission.simulation"),
    }
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from admission.cli.__main__ import main\n"
        f"assert main(['get', 'queues', '--kubeconfig', {kubeconfig!r}]) == {want_code}\n"
        "import aiohttp\n"
        "authorities = aiohttp.connector._SSL_CONTEXT_VERIFIED.cert_store_stats()['x509']\n"
        f"print(sorted({heavy!r} & set(sys.modules)), authorities)\n"
    )

    assert output_of(script).splitlines()[-1] == "[] 0"


def test_a_file_gets_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    columns: list[Column[str]] = [
        Column(heading="NAME", cell=lambda row: row),
        Column(heading="MESSAGE", cell=lambda _: LONG * 3, leaves=1, is_sentence=True),
        Column(heading="JOB", cell=lambda _: "j", is_wide=True),
    ]

    print_rows(["a"], columns)
    print_rows(["a"], columns, is_wide=True)

    assert capsys.readouterr().out.splitlines() == [
        "NAME   MESSAGE",
        f"a      {LONG * 3}",
        f"NAME   MESSAGE{' ' * (len(LONG) * 3 - 7)}   JOB",
        f"a      {LONG * 3}   j",
    ]
