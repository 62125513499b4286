"""The embedded API server as tests use it: in this process, on a port of its own, with a kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from api.kube.embedded.server import EmbeddedServer
from api.kube.embedded.store import Collection, Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """All objects at a version, by collection and namespace."""

    version: int
    objects: dict[Collection, dict[str, dict[str, Stored]]]


class EmbeddedCluster(EmbeddedServer):
    """An embedded API server on loopback, and the path of a kubeconfig that leads to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.kubeconfig = str(folder / "embedded.kubeconfig")

    async def __aenter__(self) -> Self:
        await self.start()
        self.write_kubeconfig(self.kubeconfig)
        return self

    def back_up(self) -> Backup:
        """Return the present state."""
        collections = self._store.collections()
        return Backup(version=self._store.version, objects={one: _copy(one._objects) for one in collections})

    def restore(self, backup: Backup) -> None:
        """Return to an earlier state, versions included. Watches end as if their version had expired."""
        self._store.version = backup.version
        for collection in self._store.collections():
            collection._objects = _copy(backup.objects.get(collection, {}))
            collection.oldest_version = backup.version
            # The changes after the backup are forgotten, so that no watcher can go on where it is.
            collection._dropped = collection.position + 1
            collection._log.clear()
            collection.wake()


def _copy(objects: dict[str, dict[str, Stored]]) -> dict[str, dict[str, Stored]]:
    return {namespace: dict(named) for namespace, named in objects.items()}
