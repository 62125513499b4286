"""What commands print on 80 columns: `python -m tests.admission.cli.captures` writes it to the docs.

They run in a pseudo-terminal against an API server with a small cluster, at a fixed time.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import Any

from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace
from admission.cli.trial.embedded_cluster import create, install_kinds
from api.kube.client import KubeClient
from api.kube.embedded.server import EmbeddedServer
from api.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, RESOURCE_FLAVORS, WORKLOADS

PAGE = Path(__file__).parents[3] / "docs" / "queues.md"
BEGIN, END = "<!-- begin: captured on 80 columns -->", "<!-- end -->"
WIDTH = 80
COMMANDS = ("get queues", "get workloads -n vision")

_SINCE = "2026-01-01T00:00:00Z"
_NOW = 1767246480.0  # 2026-01-01T05:48:00Z


def on_terminal(width: int, *arguments: str, now: float | None = None) -> list[str]:
    """Return the lines that a command prints on a terminal of that width, without colours.

    `now` is the time that it sees, in Unix seconds: the real one by default.
    """
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    clock = "" if now is None else f"import time; time.time = lambda: {now!r}; "
    program = f"{clock}import sys; from admission.cli.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *arguments]
    environment |= {"NO_COLOR": "1", "TERM": "xterm"}
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=environment):
        os.close(end)
        printed = b"".join(iter(lambda: _read(terminal), b""))
    os.close(terminal)
    return re.sub(r"\x1b\[[0-9;]*m", "", printed.decode()).splitlines()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # So Linux tells that the last writer has closed its side.
        return b""


async def fill(kubeconfig: str) -> None:
    """Create two teams that share a cohort: one borrows, and of the other one Job runs and three wait."""
    async with await KubeClient.connect(kubeconfig) as client:
        await install_kinds(client)
        flavor = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "a100"},
        }
        await create(client, RESOURCE_FLAVORS, flavor)
        for name, used, borrowed in (("speech", "24", "8"), ("vision", "8", "0")):
            queue = cluster_queue(name, flavor="a100", nominal={GPU: 16}, cohort="research")
            await create(client, CLUSTER_QUEUES, queue)
            await create(client, NAMESPACES, namespace(name))
            await create(client, LOCAL_QUEUES, local_queue("main", name, name))
            total = {"name": GPU, "total": used, "borrowed": borrowed}
            waiting = 3 if name == "vision" else 0
            status = {
                "flavorsReservation": [{"name": "a100", "resources": [total]}],
                "pendingWorkloads": waiting,
            }
            body = json.dumps({"status": status}).encode()
            await client.merge_patch(CLUSTER_QUEUES, name, body, subresource="status")
        for workload in _workloads():
            await create(client, WORKLOADS, workload)
            body = json.dumps({"status": workload["status"]}).encode()
            name, inside = workload["metadata"]["name"], workload["metadata"]["namespace"]
            await client.merge_patch(WORKLOADS, name, body, inside, subresource="status")


def _workloads() -> list[dict[str, Any]]:
    promised = {"berth.dev/planned-start": "2026-01-01T06:00:00Z"}
    expected = {"berth.dev/expected-start": "2026-01-01T09:30:00Z"}
    return [
        _workload("detect-street-scenes", 8, _condition("QuotaReserved", "True", "QuotaReserved")),
        _workload(
            "pretrain-llama-70b-seed-1", 16, _waits("WaitingForQuota"), priority=10, annotations=promised
        ),
        _workload("eval-checkpoints", 8, _waits("WaitingForQuota"), annotations=expected),
        _workload("pretrain-moe-on-64-gpus", 64, _waits("ExceedsMaxQuota")),
    ]


def _workload(job: str, gpus: int, condition: dict[str, str], **given: Any) -> dict[str, Any]:
    """Return a Workload of a Job in namespace vision; one with quota is admitted."""
    template = {
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {GPU: str(gpus)}}}]}
    }
    status: dict[str, Any] = {"conditions": [condition]}
    if condition["status"] == "True":
        flavors = {"name": "main", "count": 1, "flavors": {GPU: "a100"}, "resourceUsage": {GPU: str(gpus)}}
        status = {
            "conditions": [condition, {**condition, "type": "Admitted"}],
            "admission": {"clusterQueue": "vision", "podSetAssignments": [flavors]},
        }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{job}-1a2b3",
            "namespace": "vision",
            "annotations": given.get("annotations", {}),
        },
        "spec": {
            "queueName": "main",
            "priority": given.get("priority", 0),
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
        "status": status,
    }


def _waits(reason: str) -> dict[str, str]:
    return _condition("QuotaReserved", "False", reason)


def _condition(type_: str, status: str, reason: str) -> dict[str, str]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": "as said",
        "lastTransitionTime": _SINCE,
    }


def captured(kubeconfig: str) -> str:
    """Return the block of the docs."""
    lines = []
    for command in COMMANDS:
        printed = on_terminal(WIDTH, *command.split(), "--kubeconfig", kubeconfig, now=_NOW)
        lines += [f"$ berth {command}", *(line.rstrip() for line in printed)]
    return "\n".join([BEGIN, "```console", *lines, "```", END])


def shown() -> str:
    """Return the block that the page has."""
    text = PAGE.read_text()
    return text[text.index(BEGIN) : text.index(END) + len(END)]


async def _write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder, "kubeconfig")
        async with EmbeddedServer() as server:
            server.write_kubeconfig(kubeconfig)
            await fill(str(kubeconfig))
            block = await asyncio.to_thread(captured, str(kubeconfig))
    PAGE.write_text(PAGE.read_text().replace(shown(), block))


if __name__ == "__main__":
    asyncio.run(_write())
