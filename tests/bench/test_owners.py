"""A run whose owners get no further ends with what was reached."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.embedded.server import EmbeddedServer
from bench.owners import JOBS, NothingEnds, Player
from bench.shape import NAMESPACE


async def play_without_a_controller(kubeconfig: Path) -> None:
    """Create two Jobs that no controller starts."""
    async with EmbeddedServer() as server:
        server.write_kubeconfig(str(kubeconfig))
        async with await KubeClient.connect(str(kubeconfig)) as client:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await client.create(resources.NAMESPACES, msgspec.json.encode(namespace))
            await Player(client, [JOBS], total=2, patience_seconds=0.1).run()


def test_owners_that_no_controller_starts_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(NothingEnds, match="0 of 2 owners ended"):
        asyncio.run(play_without_a_controller(tmp_path / "kubeconfig"))
