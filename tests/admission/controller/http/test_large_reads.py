"""Answers about a large cluster do not hold up the event loop, on which the lease is renewed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import aiohttp
import pytest

from admission.controller.gauges.collector import QueueCollector
from admission.controller.gauges.reader import GaugeReader, GaugeSettings
from admission.controller.http.state_api import StateApi, metrics_route
from admission.controller.http.visibility import Visibility
from admission.controller.metrics.labels import MetricLabels
from admission.controller.metrics.placement_metrics import DomainCollector
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.runtime.clock import SystemClock
from admission.controller.runtime.large_reads import LargeReads
from api.http.server import HttpServer, Route
from tests.admission.controller.known import (
    Known,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)
from tests.admission.controller.queries.asking import open_api, see_everything
from tests.steps import measured_steps

# What a step of the event loop may take: a lease is renewed every two seconds, a watch brings thousands of
# events a second.
MOST_SECONDS = 0.05
PENDING = 15_000
QUEUES = 1_000
VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"


@pytest.fixture(scope="module")
def cluster() -> Known:
    """Give a cluster with one long queue and many short ones."""
    queues = (
        one
        for n in range(QUEUES)
        for one in (cluster_queue_object(f"cq{n}", "4"), local_queue_object(f"lq{n}", "team", f"cq{n}"))
    )
    return Known(
        namespace_object("team"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("long"),
        local_queue_object("long", "team", "long"),
        *queues,
        *(workload_object(f"w{n}", "team", "long", priority=n % 7) for n in range(PENDING)),
    )


@pytest.fixture(autouse=True)
def _without_collector(cluster: Known) -> Iterator[None]:
    """Do as the controller does while it runs, after the cluster was read."""
    del cluster
    gc.disable()
    yield
    gc.enable()


def routes(known: Known) -> list[Route]:
    """Return what is large of the routes of a controller."""
    clock, series = SystemClock(), QueueSeries(MetricLabels())
    reads, engine = LargeReads(clock), known.cluster_state.engine
    reader = GaugeReader(known.cluster_state, series.labels, settings=GaugeSettings(with_quotas=True))
    queues = QueueCollector(known.metrics, reader, clock, reads=reads, series=series, statistics=engine.tally)
    domains = DomainCollector(known.metrics, engine.nodes.domain_usages, reads)
    return [
        *StateApi(known.cluster_state, reads, see_everything).routes(),
        *open_api(known.cluster_state),
        *Visibility(known.cluster_state, reads, lambda: True).routes(),
        metrics_route(known.metrics, queues, domains),
    ]


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("/v1/clusterqueues/long/pendingworkloads?limit=100000", PENDING, id="a whole queue"),
        pytest.param("/v1/clusterqueues/long/pendingworkloads?offset=14000", 1000, id="the end of a queue"),
        pytest.param("/v1/clusterqueues?limit=1000", QUEUES, id="all ClusterQueues"),
        pytest.param("/v1/workloads?limit=1000&sort=position", 1000, id="a page of Workloads"),
        pytest.param(
            f"{VISIBILITY}/clusterqueues/long/pendingworkloads?limit=100000", PENDING, id="by visibility"
        ),
        pytest.param(
            f"{VISIBILITY}/namespaces/team/localqueues/long/pendingworkloads?limit=100000",
            PENDING,
            id="of a LocalQueue",
        ),
        pytest.param("/metrics", QUEUES, id="metrics of all queues"),
    ],
)
async def test_a_large_answer_takes_short_steps(cluster: Known, path: str, want: int) -> None:
    # What the first read of a new cluster builds is built by the first cycle of a controller.
    cluster.cluster_state.engine.queues.pending("long")
    async with HttpServer(routes(cluster)) as server, aiohttp.ClientSession() as session:
        with measured_steps() as steps:
            bodies = await asyncio.gather(*(_read(session, server.url + path) for _ in range(3)))

    for body in bodies:
        counted = b"kueue_admitted_active_workloads{" if path == "/metrics" else b'"name"'
        assert body.count(counted) >= want
    assert steps.longest_seconds < MOST_SECONDS, steps


async def _read(session: aiohttp.ClientSession, url: str) -> bytes:
    async with session.get(url) as answer:
        assert answer.status == 200
        # Piece by piece, so that what the client does is no long step.
        return b"".join([piece async for piece in answer.content.iter_any()])
