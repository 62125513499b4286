"""The ports of a controller, each on unless its number is -1: where, by TLS or not, and for which clients.

http, metrics          people and Prometheus: plain on loopback, otherwise TLS and what RBAC allows
extender               kube-scheduler, from a child process
visibility, webhook    kube-apiserver, which requires TLS
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.http import visibility
from admission.controller.http.client_authority import ClientAuthority, Clients
from admission.controller.http.extender_process import ExtenderProcess
from admission.controller.http.extender_profiles import extender_rules
from admission.controller.http.extender_server import ExtenderOptions
from admission.controller.http.front_proxy import find_front_proxy, read_front_proxy
from admission.controller.http.listening import LOOPBACK, Port
from admission.controller.http.port_certificates import PortCertificates, is_secure
from admission.controller.http.review_process import ReviewProcess
from admission.controller.http.shared_fabrics import StoreOptions
from admission.controller.http.training_job_api import TrainingJobApi
from admission.controller.http.visibility import Visibility
from admission.controller.http.webhooks import Webhooks
from admission.controller.queries.authorization import Authorization
from admission.controller.runtime.large_reads import LargeReads
from admission.controller.runtime.logs import Log
from admission.controller.settings import Options
from api.http.server import Route
from api.kube.client import KubeClient
from api.wire.addressing import is_loopback

log = Log("berth.ports")

_NO_PROXY = (
    "the authority of kube-apiserver's front proxy is not in ConfigMap"
    " kube-system/extension-apiserver-authentication, or may not be read; without it any client that reaches"
    " the port could list pending Workloads"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRoutes:
    """The routes of the ports http (`state`, `reports`) and metrics; `health` is on both."""

    health: list[Route]
    state: list[Route]
    reports: list[Route]
    metrics: list[Route]


def read_ports(
    options: Options, routes: ReadRoutes, *, certificates: PortCertificates, authorization: Authorization
) -> tuple[Port, Port]:
    """Return the ports http and metrics. On other addresses than loopback RBAC says who reads them."""
    is_safe = is_secure(options)

    def port(name: str, number: int, served: list[Route]) -> Port:
        tls = certificates.serving_tls() if is_safe and number >= 0 else None
        return Port(
            name=name,
            number=number,
            host=options.bind,
            routes=[*routes.health, *served],
            tls=tls,
            is_for_all=options.insecure,
        )

    # Reports are authenticated by the token of their pod, and each query by that of its caller.
    metrics = [*map(authorization.guarded, routes.metrics)] if is_safe else routes.metrics
    return (
        port("http", options.http_port, [*routes.reports, *routes.state]),
        port("metrics", options.metrics_port, metrics),
    )


def extender_process(options: Options, on_refused: Callable[[str, int], None]) -> ExtenderProcess | None:
    """Return the process that serves the extender's port, None if that is off."""
    if options.extender_port < 0:
        return None
    given = ExtenderOptions(
        kubeconfig=options.kubeconfig,
        bind=options.bind,
        port=options.extender_port,
        tls_certificate=options.tls_certificate,
        tls_key=options.tls_key,
        client_ca=options.client_ca,
        client_names=options.client_names,
        rules=extender_rules(options.config.berth.extender, options.scheduler_names),
        config_file=options.config_file,
        store=_store_options(options),
    )
    return ExtenderProcess(given, options.logs, on_refused=on_refused)


def _store_options(options: Options) -> StoreOptions | None:
    # An embedded Redis belongs to one replica, so there is nothing to agree on.
    if options.redis_url is None:
        return None
    return StoreOptions(
        url=options.redis_url,
        access=options.store_access,
        keys=options.store_keys,
        cluster_id=options.cluster_id,
        shard=options.config.berth.shard,
    )


class SidePorts:
    """The two ports that kube-apiserver calls. Call prepare() first, then ports(), and close() at the end.

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
        self._proxy: ClientAuthority | None = None
        self._callers: Clients | None = None
        self._reviews, self._conversions = ReviewProcess(), ReviewProcess()

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
                routes=Webhooks(
                    self._cluster_state,
                    self._is_ready,
                    reviews=self._reviews,
                    conversions=self._conversions,
                ).routes(),
                tls=self._certificates.serving_tls(),
            )

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that keep what ports() has yielded up to date, by name."""
        if self._callers is not None:
            yield "front-proxy", self._callers.follow(partial(read_front_proxy, self._client))

    async def close(self) -> None:
        """End the child processes that answer large reviews."""
        await self._reviews.close()
        await self._conversions.close()

    def _visibility_port(self) -> Port:
        host, tls = self._options.bind, self._certificates.serving_tls()
        # Requests come through kube-apiserver, which presents its own client certificate.
        if self._proxy is not None:
            self._callers = Clients(self._proxy, tls, is_required=True)
        # Callers cannot be identified, so only this machine may call.
        elif not is_loopback(host):
            log.info("visibility-on-loopback", note=_NO_PROXY)
            host = LOOPBACK
        return Port(
            name="visibility",
            number=self._options.visibility_port,
            host=host,
            routes=[
                *Visibility(self._cluster_state, self._reads, self._is_ready, self._callers).routes(),
                *TrainingJobApi(self._client, self._callers).routes(),
            ],
            tls=tls,
            render_error=visibility.render_error,
        )
