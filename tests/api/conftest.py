"""Servers with Berth's kinds installed: the real kube-apiserver and the embedded one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from api.kube.embedded.server import EmbeddedServer
from tests.controlplane import ControlPlane, Rest, clean
from tests.controlplane.definitions import install_definitions


@pytest.fixture(scope="module")
def real_server(control_plane: ControlPlane) -> Iterator[Rest]:
    """Give a client of the real server, with the CRDs installed and without objects of theirs."""
    install_definitions(control_plane.rest)
    clean(control_plane.rest)
    yield control_plane.rest
    clean(control_plane.rest)


@pytest.fixture(scope="module")
def embedded_server_in_thread() -> Iterator[Rest]:
    """Give a client of an embedded server with the CRDs installed; the client blocks, hence the thread."""
    with asyncio.Runner() as runner:
        server, loop = EmbeddedServer(), runner.get_loop()
        url = runner.run(server.start())
        thread = threading.Thread(target=loop.run_forever, name="embedded server")
        thread.start()
        try:
            install_definitions(rest := Rest(url))
            yield rest
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            runner.run(server.stop())


@pytest.fixture(
    scope="module", params=[pytest.param("real_server", marks=pytest.mark.real), "embedded_server_in_thread"]
)
def any_server(request: pytest.FixtureRequest) -> Rest:
    """Give a client of the one server, then of the other."""
    rest: Rest = request.getfixturevalue(request.param)
    return rest
