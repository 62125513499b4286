"""The ports besides web page and metrics: extender, visibility and webhook, each on unless its number is -1.

Their clients are not the controller's own users, so each has its own rules. The extender serves plain HTTP,
or TLS if certificate files are given. The other two always serve TLS, because kube-apiserver requires it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.http import visibility
from admission.controller.http.extender import Extender, render_error
from admission.controller.http.port_certificates import PortCertificates
from admission.controller.http.visibility import FrontProxy, Visibility, find_front_proxy
from admission.controller.http.webhooks import Webhooks
from admission.controller.runtime.large_reads import LargeReads
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
    """The three ports. Call prepare() first, then ports().

    `extender` is None if its port is off. `is_ready`: whether the control loop has taken in all first lists.
    The caller watches nodes and pods if `needs_nodes` says so.
    """

    def __init__(
        self,
        client: KubeClient,
        cluster_state: ClusterState,
        options: Options,
        *,
        certificates: PortCertificates,
        extender: Extender | None,
        reads: LargeReads,
        is_ready: Callable[[], bool],
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._options = options
        self._certificates = certificates
        self._extender = extender
        self._reads = reads
        self._is_ready = is_ready
        self._proxy: FrontProxy | None = None

    async def prepare(self) -> None:
        """Get certificates and learn which clients may call. Raises KubeError, OSError and ValueError."""
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
                tls=self._certificates.serving_tls(),
            )

    def _extender_port(self, served: Extender) -> Port:
        return Port(
            name="extender",
            number=self._options.extender_port,
            host=self._options.bind,
            routes=served.routes(),
            # Plain HTTP unless certificate files were given. kube-scheduler's configuration has to match.
            tls=self._certificates.serving_tls() if self._certificates.are_given else None,
            render_error=render_error,
        )

    def _visibility_port(self) -> Port:
        host, tls = self._options.bind, self._certificates.serving_tls()
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
            routes=Visibility(self._cluster_state, self._reads, self._is_ready, self._proxy).routes(),
            tls=tls,
            render_error=visibility.render_error,
        )

    def state_routes(self) -> list[Route]:
        """Return the routes under /v1 that show the state of these ports."""
        return self._extender.state_routes() if self._extender is not None else []

    @property
    def needs_nodes(self) -> bool:
        """Return whether these ports need nodes and pods to be watched, whether or not placement does."""
        return self._extender is not None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    # A host name: only localhost is certain.
    except ValueError:
        return host == "localhost"
