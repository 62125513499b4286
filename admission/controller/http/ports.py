"""The ports that kube-apiserver calls: visibility and webhook, each on unless its number is -1.

They always serve TLS, because kube-apiserver requires it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.http import visibility
from admission.controller.http.listening import LOOPBACK, Port, is_loopback
from admission.controller.http.port_certificates import PortCertificates
from admission.controller.http.visibility import FrontProxy, Visibility, find_front_proxy
from admission.controller.http.webhooks import Webhooks
from admission.controller.runtime.large_reads import LargeReads
from admission.controller.runtime.logs import Log
from admission.controller.settings import Options
from api.kube.client import KubeClient

log = Log("berth.ports")

_NO_PROXY = (
    "the authority of kube-apiserver's front proxy is not in ConfigMap"
    " kube-system/extension-apiserver-authentication, or may not be read; without it any client that reaches"
    " the port could list pending Workloads"
)


class SidePorts:
    """The two ports. Call prepare() first, then ports().

    `is_ready`: whether the control loop has taken in all first lists.
    """

    def __init__(
        self,
        client: KubeClient,
        cluster_state: ClusterState,
        options: Options,
        *,
        certificates: PortCertificates,
        reads: LargeReads,
        is_ready: Callable[[], bool],
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._options = options
        self._certificates = certificates
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
