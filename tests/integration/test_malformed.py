"""Thousands of malformed requests on each port of a leader: it leads on, and its memory is level."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.admission.controller.extending import THREE_NODES, pod_object
from tests.api.samples import full
from tests.integration.conftest import Cluster, Controllers
from tests.integration.replica import Replica
from tests.malformed import Sample, malformed
from tests.owners import SAMPLES

pytestmark = pytest.mark.xdist_group("malformed")

PER_PORT = 2_000
SEED = 17
AT_ONCE = 32
ANSWER_SECONDS = 0.5
# What is documented: 503 if too much is asked at once or the API server does not answer, and on the
# extender's port 500 for a body that does not match its encoding.
UNAVAILABLE, UNREADABLE = 503, 500
# Buffers, caches and what the allocator keeps. Without bounds one request of 2 KiB could hold 8 MiB.
MOST_GROWN_BYTES = 64 << 20

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "j",
        "namespace": "a",
        "labels": {"kueue.x-k8s.io/queue-name": "q"},
        "annotations": {},
    },
    "spec": {
        "parallelism": 2,
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}},
    },
}
QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "cq"},
    "spec": {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
            }
        ],
    },
}


def review(new: Mapping[str, object], group: str, version: str, plural: str) -> dict[str, object]:
    """Return the review of a creation."""
    request = {
        "uid": "review",
        "kind": {"group": group, "version": version, "kind": new["kind"]},
        "resource": {"group": group, "version": version, "resource": plural},
        "operation": "CREATE",
        "namespace": "a",
        "userInfo": {"username": "tester"},
        "object": new,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


CONFIGURATION = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"
JOB_REVIEW = review(JOB, "batch", "v1", "jobs")
QUEUE_REVIEW = review(QUEUE, "kueue.x-k8s.io", "v1beta2", "clusterqueues")
# Of all kinds that are queued, and of Kueue's own.
REVIEWS = (
    *(review(one.object(), one.row.group, one.row.version, one.row.plural) for one in SAMPLES),
    review(pod_object(gpus=1), "", "v1", "pods"),
    *(
        review(full(kind), "kueue.x-k8s.io", "v1beta2", plural)
        for kind, plural in (("Workload", "workloads"), ("LocalQueue", "localqueues"), ("Cohort", "cohorts"))
    ),
)
PORTS = {
    "http": (
        Sample("GET", "/v1/clusterqueues/cq/pendingworkloads"),
        Sample("GET", "/v1/workloads/a/b"),
        Sample("GET", "/v1/decisions"),
        Sample("POST", "/v1/checkpoints", {"step": 5, "time": "2026-01-31T12:00:00Z", "saveSeconds": 2.5}),
    ),
    "metrics": (Sample("GET", "/metrics"), Sample("GET", "/readyz")),
    "extender": (
        Sample("POST", "/filter", {"Pod": pod_object(model="a", gpus=1), "NodeNames": ["n"]}),
        Sample(
            "POST", "/filter", {"Pod": pod_object(job="j", gpus=1), "Nodes": {"items": list(THREE_NODES)}}
        ),
        Sample("POST", "/prioritize", {"Pod": pod_object(numa="1", gpus=1), "NodeNames": ["n"]}),
        Sample("GET", "/v1/trainingjobs"),
    ),
    "visibility": (
        Sample("GET", f"{VISIBILITY}/clusterqueues/cq/pendingworkloads"),
        Sample("GET", f"{VISIBILITY}/namespaces/a/localqueues/q/pendingworkloads"),
    ),
    "webhook": (
        Sample("POST", "/mutate", JOB_REVIEW),
        Sample("POST", "/validate", JOB_REVIEW),
        Sample("POST", "/validate", QUEUE_REVIEW),
        *(Sample("POST", path, body) for path in ("/mutate", "/validate") for body in REVIEWS),
    ),
}


@pytest.fixture(scope="module")
def replica(embedded_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    """Give a controller with all its ports that leads."""
    controllers = Controllers(tmp_path_factory.mktemp("malformed"))
    namespace = embedded_cluster.new_scene().namespace
    flags = ["--namespace", namespace, "--log-level", "info"]
    for name in ("extender", "visibility", "webhook"):
        flags += [f"--{name}-port", "0"]
    frameworks = ", ".join(["batch/job", "pod", *(one.row.framework for one in SAMPLES)])
    kinds = f"{CONFIGURATION}integrations: {{frameworks: [{frameworks}]}}\n"
    replica = controllers.start(embedded_cluster.kubeconfig, *flags, config=kinds)
    replica.wait_ready()
    replica.wait_leading()
    yield replica
    controllers.stop()


def resident_bytes(replica: Replica) -> int:
    """Return the memory of the controller; its extender is another process."""
    status = Path(f"/proc/{replica.child.pid}/status").read_text()
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
    return int(kib) << 10


async def send(url: str, requests: Iterator[bytes]) -> Counter[int]:
    """Send each on a connection of its own. Return how often each status came back, 0 where none did."""
    parts, tls = urlsplit(url), None
    if parts.scheme == "https":
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    statuses = Counter[int]()

    async def work() -> None:
        for request in requests:
            statuses[await _status(parts.hostname or "", parts.port or 0, tls, request)] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return statuses


async def _status(host: str, port: int, tls: ssl.SSLContext | None, request: bytes) -> int:
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        writer.write(request)
        # An incomplete request would keep the connection until the server's deadline.
        async with asyncio.timeout(ANSWER_SECONDS):
            return _parsed(await reader.readline())
    # The server may close while the request is still sent.
    except (ConnectionError, TimeoutError):
        return 0
    finally:
        writer.transport.abort()


def _parsed(line: bytes) -> int:
    return int(line.split()[1]) if line.startswith(b"HTTP/") else 0


@pytest.mark.parametrize("port", PORTS)
def test_malformed_requests_cost_neither_leadership_nor_memory(replica: Replica, port: str) -> None:
    url = replica.urls()[port]
    # The first requests fill what is kept: connections, buffers, compiled patterns.
    asyncio.run(send(url, malformed(PORTS[port], PER_PORT // 10, seed=0)))
    before = resident_bytes(replica)

    statuses = asyncio.run(send(url, malformed(PORTS[port], PER_PORT, seed=SEED)))

    assert statuses.total() == PER_PORT
    server_errors = {status for status in statuses if status >= 500}
    assert server_errors <= {UNAVAILABLE, *([UNREADABLE] if port == "extender" else [])}, statuses
    # Most are answered: what is sent is read, and not only refused as no HTTP.
    assert statuses.total() - statuses[0] > PER_PORT // 2, statuses
    assert "Traceback" not in replica.log()
    assert not replica.has_logged("stopped_leading")
    assert resident_bytes(replica) - before < MOST_GROWN_BYTES
    assert replica.is_ready()
