"""The embedded API server: start it, stop it, tell clients where it is."""

import ssl
import time
from pathlib import Path
from typing import Final

import yaml
from aiohttp import web

from api.kube.embedded.garbage import GarbageCollector
from api.kube.embedded.handlers import Api
from api.kube.embedded.kinds.builtin_kinds import serve_builtin_kinds
from api.kube.embedded.kinds.catalog import Catalog
from api.kube.embedded.kinds.crds import CustomKinds
from api.kube.embedded.options import WriteOptions
from api.kube.embedded.store import ObjectStore
from api.kube.embedded.verbs import Verbs

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITY_CLASSES: Final = (
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
)
_MANAGER: Final = "kube-apiserver"
# Connections that may wait to be accepted; a generator of load opens many at once.
_BACKLOG: Final = 512
# How long a request may still run once the server stops. Watches end at once by themselves.
_SHUTDOWN_SECONDS: Final = 1.0


class EmbeddedServer:
    """A Kubernetes API server inside this process, on one asyncio loop, without a disk.

    It speaks plain HTTP and asks nobody for credentials: bind it to loopback. Its state ends with it.
    """

    def __init__(self) -> None:
        # Above every version that an earlier server of this machine gave out: see store.py.
        self._store = ObjectStore(int(time.time() * 1000))
        self._catalog = Catalog()
        self._verbs = Verbs(self._store, self._catalog)
        self._api = Api(self._store, self._catalog, self._verbs)
        self._garbage = GarbageCollector(
            self._store, self._catalog, self._verbs, CustomKinds(self._store, self._catalog)
        )
        self._runner: web.ServerRunner | None = None
        self.url = ""
        serve_builtin_kinds(self._store, self._catalog)

    async def start(
        self, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None
    ) -> str:
        """Listen (port 0: any free one) and return the URL. Raises OSError when the address is taken."""
        self._populate()
        server = web.Server(self._api.handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        # A watch is closed by the handler itself; the runner would wait for it.
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=tls, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        # Port 0 has become a number only now.
        bound_host, bound_port = self._runner.addresses[0][:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        self.url = f"{'https' if tls else 'http'}://{shown}:{bound_port}"
        return self.url

    async def stop(self) -> None:
        """End every watch and stop listening. Stopping twice is harmless."""
        self._api.close()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def __aenter__(self) -> "EmbeddedServer":
        """Start on a free port of loopback."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    def write_kubeconfig(self, path: str | Path, *, namespace: str = "default") -> None:
        """Write a kubeconfig that leads kubectl and every other client here."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "berth", "cluster": {"server": self.url}}],
            "users": [{"name": "berth", "user": {}}],
            "contexts": [
                {
                    "name": "berth",
                    "context": {"cluster": "berth", "user": "berth", "namespace": namespace},
                }
            ],
            "current-context": "berth",
        }
        Path(path).write_text(yaml.safe_dump(document, sort_keys=False))

    def _populate(self) -> None:
        """Create what every cluster has from its first moment."""
        options = WriteOptions(manager=_MANAGER)
        spaces = self._catalog.find("", "v1", "namespaces")
        classes = self._catalog.find("scheduling.k8s.io", "v1", "priorityclasses")
        assert spaces is not None
        assert classes is not None
        # Started a second time on the same state.
        if self._verbs.items("", "namespaces"):
            return
        for name in _NAMESPACES:
            self._verbs.create(spaces, "", {"metadata": {"name": name}}, options)
        for name, value in _PRIORITY_CLASSES:
            self._verbs.create(classes, "", {"metadata": {"name": name}, "value": value}, options)
