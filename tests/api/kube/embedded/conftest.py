"""One set of tests for two servers: the embedded one, and the real one that it is compared with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from api.kube.embedded.server import EmbeddedServer
from tests.controlplane import ControlPlane

from .raw import RawApi, definition, tls_of

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WORKLOADS = "apis/battery.berth.dev/v1"
_PATIENCE_SECONDS = 20.0


@asynccontextmanager
async def embedded_api() -> AsyncIterator[RawApi]:
    """Give a new embedded server."""
    async with EmbeddedServer() as server, aiohttp.ClientSession(server.url) as session:
        yield RawApi(session, "default")


@asynccontextmanager
async def real_api(plane: ControlPlane) -> AsyncIterator[RawApi]:
    """Give a new namespace on the real server."""
    headers = {"Authorization": f"Bearer {plane.token}"}
    connector = aiohttp.TCPConnector(ssl=tls_of(plane.ca_file))
    try:
        async with aiohttp.ClientSession(
            plane.server, headers=headers, connector=connector, connector_owner=False
        ) as session:
            yield RawApi(session, plane.create_namespace())
    finally:
        # TLS connections are aborted, because an orderly shutdown would outlive the test's event loop.
        await connector.close(abort_ssl=True)


async def define(api: RawApi, crd: dict[str, Any]) -> None:
    """Create a CRD if it does not exist, and wait until its kind is served."""
    answer = await api.call("POST", CRDS, crd)
    assert answer.status in (201, 409), answer.body
    spec = crd["spec"]
    path = api.path(spec["names"]["plural"], api=f"apis/{spec['group']}/{spec['versions'][0]['name']}")
    async with asyncio.timeout(_PATIENCE_SECONDS):
        # The real server publishes a new kind in the background and returns 404 until then.
        while (await api.get(path)).status != 200:
            await asyncio.sleep(0.05)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[RawApi]:
    """Give each of the two servers in turn, with a namespace of the test's own."""
    if request.param == "embedded":
        async with embedded_api() as api:
            yield api
    else:
        async with real_api(request.getfixturevalue("bare_control_plane")) as api:
            yield api


@pytest.fixture
async def embedded() -> AsyncIterator[RawApi]:
    """Give only the embedded server, for behaviour that need not be tested on the real one."""
    async with embedded_api() as api:
        yield api


@pytest.fixture
async def workloads(api: RawApi) -> str:
    """Give the path of a custom kind with a status endpoint: spec.queueName, spec.priority, status.phase."""
    text, number = {"type": "string"}, {"type": "integer"}
    properties = {
        "spec": {"type": "object", "properties": {"queueName": text, "priority": number}},
        "status": {"type": "object", "properties": {"phase": text}},
    }
    await define(api, definition("workloads", "Workload", properties))
    return api.path("workloads", api=WORKLOADS)
