"""The ports besides web page and metrics: extender, visibility and webhook, each on unless its number is -1.

Their clients are not the controller's own users, so each has its own rules. The extender serves plain HTTP,
or TLS if certificate files are given. The other two always serve TLS, because kube-apiserver requires it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.cluster_state.node_pod_watch import NodePodWatch
from admission.controller.http import extender, visibility
from admission.controller.http.ca_injector import TrustPublisher
from admission.controller.http.extender import Extender
from admission.controller.http.extender_profiles import extender_rules
from admission.controller.http.serving_certificates import (
    CertificateSource,
    FileCertificates,
    OwnCertificates,
)
from admission.controller.http.visibility import FrontProxy, Visibility, find_front_proxy
from admission.controller.http.webhooks import Webhooks
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.settings import Options
from api.http.certificates import ServingTls
from api.http.server import HttpServer, Response, Route, error_as_json
from api.kube.client import KubeClient

log = Log("berth.ports")

LOOPBACK = "127.0.0.1"
_NO_PROXY = (
    "the authority of kube-apiserver's front proxy is not in ConfigMap"
    " kube-system/extension-apiserver-authentication, or may not be read; without it any client that reaches"
    " the port could list pending Workloads"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One address to serve on. `name` identifies it in the output that lists the URLs."""

    name: str
    number: int
    host: str
    routes: list[Route]
    tls: ServingTls | None = None
    render_error: Callable[[int, str], Response] = error_as_json


async def listen(stack: AsyncExitStack, port: Port) -> str:
    """Serve on the port until the stack ends. Return its URL. Raises ListenError."""
    server = HttpServer(
        port.routes,
        host=port.host,
        port=port.number,
        tls=port.tls.context if port.tls is not None else None,
        render_error=port.render_error,
    )
    return (await stack.enter_async_context(server)).url


class SidePorts:
    """The three ports. Call prepare() first, then ports() and tasks().

    `is_ready`: whether the control loop has taken in all first lists. The caller runs `watch`
    if `needs_ground` says so.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        cluster_state: ClusterState,
        options: Options,
        *,
        namespace: str,
        is_ready: Callable[[], bool],
        watch: NodePodWatch,
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._options = options
        self._is_ready = is_ready
        self._extender = (
            Extender(watch, clock, rules=extender_rules(options.config.berth.extender))
            if options.extender_port >= 0
            else None
        )
        self._trust = TrustPublisher(client, namespace=namespace, trusted=self._trusted)
        self._certificates = self._source(clock, namespace)
        self._proxy: FrontProxy | None = None

    def _source(self, clock: Clock, namespace: str) -> CertificateSource | None:
        # Certificate files are renewed by others. A self-issued certificate is for kube-apiserver only.
        options = self._options
        if options.tls_certificate is not None and options.tls_key is not None:
            return FileCertificates(Path(options.tls_certificate), Path(options.tls_key))
        # Neither of the ports that need TLS is on, so no Secret is read or written.
        if max(options.visibility_port, options.webhook_port) < 0:
            return None
        return OwnCertificates(
            self._client,
            clock,
            namespace=namespace,
            host=options.bind,
            may_write=not options.observe,
            on_renewed=self._trust.publish,
        )

    def _trusted(self) -> bytes | None:
        return self._certificates.trusted if self._certificates is not None else None

    async def prepare(self) -> None:
        """Get certificates and learn which clients may call. Raises KubeError, OSError and ValueError."""
        if self._certificates is not None:
            await self._certificates.open()
        # On loopback only this machine can call, so no front proxy is needed.
        if self._options.visibility_port >= 0 and not is_loopback(self._options.bind):
            self._proxy = await find_front_proxy(self._client)

    def ports(self) -> Iterator[Port]:
        """Yield the ports that are on."""
        if self._extender is not None:
            yield self._extender_port(self._extender)
        if self._options.visibility_port >= 0:
            yield self._visibility_port()
        if self._options.webhook_port >= 0:
            yield Port(
                name="webhook",
                number=self._options.webhook_port,
                host=self._options.bind,
                routes=Webhooks(self._cluster_state, self._is_ready).routes(),
                tls=self._tls(),
            )

    def _extender_port(self, served: Extender) -> Port:
        return Port(
            name="extender",
            number=self._options.extender_port,
            host=self._options.bind,
            routes=served.routes(),
            # Plain HTTP unless certificate files were given. kube-scheduler's configuration has to match.
            tls=self._tls() if isinstance(self._certificates, FileCertificates) else None,
            render_error=extender.render_error,
        )

    def _visibility_port(self) -> Port:
        host, tls = self._options.bind, self._tls()
        # Requests come through kube-apiserver, which presents its own client certificate.
        if self._proxy is not None:
            self._proxy.require(tls.context)
        # Callers cannot be identified, so only this machine may call.
        elif not is_loopback(host):
            log.info("visibility-on-loopback", note=_NO_PROXY)
            host = LOOPBACK
        return Port(
            name="visibility",
            number=self._options.visibility_port,
            host=host,
            routes=Visibility(self._cluster_state, self._is_ready, self._proxy).routes(),
            tls=tls,
            render_error=visibility.render_error,
        )

    def _tls(self) -> ServingTls:
        assert self._certificates is not None, "ports with TLS have certificates"
        return self._certificates.serving_tls()

    def state_routes(self) -> list[Route]:
        """Return the routes under /v1 that show the state of these ports."""
        return self._extender.state_routes() if self._extender is not None else []

    @property
    def needs_ground(self) -> bool:
        """Return whether these ports need nodes and pods to be watched, whether or not placement does."""
        return self._extender is not None

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that have to run along with the ports, by name."""
        if self._certificates is not None:
            yield "certificates", self._certificates.run()
            # In observe mode nothing is written, caBundles included.
            if isinstance(self._certificates, OwnCertificates) and not self._options.observe:
                yield "trust", self._trust.run()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    # A host name: only localhost is certain.
    except ValueError:
        return host == "localhost"
