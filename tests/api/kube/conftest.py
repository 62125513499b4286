"""A scripted server and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from api.kube.client import KubeClient

from .scripted import ScriptedServer


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    """Give a server whose responses the test defines."""
    async with ScriptedServer() as server:
        yield server


@pytest.fixture
async def client(scripted: ScriptedServer) -> AsyncIterator[KubeClient]:
    """Give a client of the scripted server."""
    async with KubeClient(scripted.endpoint, user_agent="berth-test") as client:
        yield client
