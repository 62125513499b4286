"""Fixtures of the commands' tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.kube.embedded.server import EmbeddedServer
from tests.children import Port

_KUBECONFIG = """apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {{}}}}]
"""


@pytest.fixture
def unreachable_kubeconfig(tmp_path: Path) -> Iterator[str]:
    """Give the path of a kubeconfig whose server does not listen."""
    port = Port()
    path = tmp_path / "unreachable.kubeconfig"
    path.write_text(_KUBECONFIG.format(server=f"http://127.0.0.1:{port.number}"))
    yield str(path)
    port.release()


@pytest.fixture
def bare_server(tmp_path: Path) -> Iterator[str]:
    """Give the kubeconfig of an API server with no controllers at all, which runs in a thread."""
    kubeconfig, started, stop = tmp_path / "bare.kubeconfig", threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with EmbeddedServer() as server:
            server.write_kubeconfig(kubeconfig)
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(60)
    yield str(kubeconfig)
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()
