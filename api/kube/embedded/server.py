"""The embedded API server: starting, stopping, and a kubeconfig for its clients."""

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
from api.wire.addressing import is_loopback

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITY_CLASSES: Final = (
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
)
_MANAGER: Final = "kube-apiserver"
# Maximum number of connections that wait to be accepted; a load generator opens many at once.
_BACKLOG: Final = 512
# How long a request may still run after the server is stopped. Watches end immediately.
_SHUTDOWN_SECONDS: Final = 1.0


class EmbeddedServer:
    """A Kubernetes API server in this process, on one asyncio loop, without storage on disk.

    It uses HTTP without authentication by default, so bind it to loopback. Its state is lost when it ends.
    """

    def __init__(self) -> None:
        # Above every version of an earlier server on this machine: see store.py. In microseconds, because a
        # server writes several objects in the millisecond in which it starts.
        self._store = ObjectStore(time.time_ns() // 1000)
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
        """Listen (port 0: any free one) and return the URL. Raises OSError if the address is in use."""
        self._populate()
        self._api.is_local = is_loopback(host) and tls is None
        server = web.Server(self._api.handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        # The handler closes watches itself; otherwise the runner would wait for them.
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=tls, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        # With port 0, the actual port is known only now.
        bound_host, bound_port = self._runner.addresses[0][:2]
        shown = f"[{bound_host}]" if ":" in bound_host else bound_host
        self.url = f"{'https' if tls else 'http'}://{shown}:{bound_port}"
        return self.url

    async def stop(self) -> None:
        """End every watch and stop listening. A second call has no effect."""
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

    def write_kubeconfig(self, path: str | Path) -> None:
        """Write a kubeconfig with which kubectl and other clients reach this server."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "berth", "cluster": {"server": self.url}}],
            "users": [{"name": "berth", "user": {}}],
            "contexts": [{"name": "berth", "context": {"cluster": "berth", "user": "berth"}}],
            "current-context": "berth",
        }
        Path(path).write_text(yaml.safe_dump(document, sort_keys=False))

    def _populate(self) -> None:
        """Create the objects that every new cluster has."""
        options = WriteOptions(manager=_MANAGER)
        spaces = self._catalog.find("", "v1", "namespaces")
        classes = self._catalog.find("scheduling.k8s.io", "v1", "priorityclasses")
        assert spaces is not None
        assert classes is not None
        # The server is started again with the same state.
        if self._verbs.items("", "namespaces"):
            return
        for name in _NAMESPACES:
            self._verbs.create(spaces, "", {"metadata": {"name": name}}, options)
        for name, value in _PRIORITY_CLASSES:
            self._verbs.create(classes, "", {"metadata": {"name": name}, "value": value}, options)
