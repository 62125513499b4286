"""The embedded API server as tests use it: in this process, on a port of its own, with a kubeconfig."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from api.kube.embedded.server import EmbeddedServer


class EmbeddedCluster(EmbeddedServer):
    """An embedded API server on loopback, and the path of a kubeconfig that leads to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.kubeconfig = str(folder / "embedded.kubeconfig")

    async def __aenter__(self) -> Self:
        await self.start()
        self.write_kubeconfig(self.kubeconfig)
        return self
