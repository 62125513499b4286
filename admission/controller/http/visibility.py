"""The visibility API: who waits in a ClusterQueue or a LocalQueue, and at which place.

kube-apiserver passes requests on (an APIService) after it has authenticated and authorised them, and shows
a client certificate of its own with each. On loopback nobody else can call; on any other address that
certificate is asked for, signed by the front proxy's authority and bearing an allowed name, and without that
authority the port stays on loopback. So a request that arrives is allowed: it is not reviewed a second time
(no SubjectAccessReview), and the X-Remote headers that tell the user are not read.
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

import msgspec

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.runtime.logs import Log
from admission.status.views import PendingWorkloadView
from api.http.server import Handler, HttpError, Request, Response, Route, json_response, text_response
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.wire import visibility as wire
from api.workload import WorkloadKey

log = Log("berth.visibility")

_T = TypeVar("_T")
# Numbers of more digits than 64 bits hold are no offsets.
_MOST_DIGITS = 18
_ROOT = f"/apis/{wire.GROUP}"
_CONFIG_MAP = ("kube-system", "extension-apiserver-authentication")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxy:
    """Whom kube-apiserver is when it passes requests on: `authority` is PEM, no names allow every name."""

    authority: str
    allowed_names: tuple[str, ...] = ()

    def is_allowed(self, name: str) -> bool:
        """Return whether a certificate of this common name, signed by the authority, may ask."""
        return not self.allowed_names or name in self.allowed_names

    def require(self, context: ssl.SSLContext) -> None:
        """Let only clients with a certificate of the authority connect. Raises ValueError for no PEM."""
        try:
            context.load_verify_locations(cadata=self.authority)
        except ssl.SSLError as error:
            raise ValueError(f"the front proxy's authority cannot be read: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


async def find_front_proxy(client: KubeClient) -> FrontProxy | None:
    """Return what the cluster publishes about its front proxy.

    None where it publishes nothing that can be used, or we may not read it. Raises KubeError where the API
    server does not answer.
    """
    namespace, name = _CONFIG_MAP
    try:
        raw = await client.get(resources.CONFIG_MAPS, name, namespace)
    # Neither is a fault: then the port serves loopback alone.
    except (Forbidden, NotFound):
        return None
    data = msgspec.json.decode(raw, type=_ConfigMap).data or {}
    authority = data.get("requestheader-client-ca-file", "").strip()
    if not authority:
        return None
    try:
        proxy = FrontProxy(authority=authority, allowed_names=_names(data))
        # Tried now on a context of no use, so that a broken authority is told by its ConfigMap's name.
        proxy.require(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    except (msgspec.DecodeError, ValueError) as error:
        log.warning("front-proxy-unreadable", config_map="/".join(_CONFIG_MAP), error=error)
        return None
    return proxy


def _names(data: Mapping[str, str]) -> tuple[str, ...]:
    text = data.get("requestheader-allowed-names") or "[]"
    return msgspec.json.decode(text, type=tuple[str, ...])


class Visibility:
    """The routes. `is_ready`: whether every queue and Workload is known. `proxy`: who may ask."""

    def __init__(
        self, cluster_state: ClusterState, is_ready: Callable[[], bool], proxy: FrontProxy | None = None
    ) -> None:
        self._cluster_state = cluster_state
        self._is_ready = is_ready
        self._proxy = proxy

    def routes(self) -> list[Route]:
        """Return the API's routes with those of discovery and health."""
        routes = [
            Route("GET", "/healthz", self._guarded(_tell_ok)),
            Route("GET", "/apis", self._guarded(partial(_tell, wire.group_list()))),
            Route("GET", _ROOT, self._guarded(partial(_tell, wire.group()))),
        ]
        for version in wire.VERSIONS:
            root = f"{_ROOT}/{version}"
            of_cluster, of_local = partial(self._of_cluster, version), partial(self._of_local, version)
            cluster = f"{root}/clusterqueues/{{name}}/pendingworkloads"
            local = f"{root}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads"
            routes += [
                Route("GET", root, self._guarded(partial(_tell, wire.resource_list(version)))),
                Route("GET", cluster, self._guarded(of_cluster)),
                Route("GET", local, self._guarded(of_local)),
            ]
        return routes

    def _guarded(self, handler: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            if self._proxy is not None and not self._proxy.is_allowed(request.client_name):
                # The certificate is of the right authority, yet the authority signs for others than
                # the front proxy, too.
                raise HttpError(403, f"{request.client_name or 'a client without a name'} may not ask here")
            answer = await handler(request)
            assert isinstance(answer, Response)
            return answer

        return handle

    async def _of_cluster(self, version: str, request: Request) -> Response:
        self._require_ready()
        name = request.parameters["name"]
        if name not in self._cluster_state.specs.cluster_queues:
            raise HttpError(404, f'clusterqueue.{wire.GROUP} "{name}" not found')
        found = (one for _, one in self._pending(name))
        return Response(body=wire.summary(version, _page(found, request)))

    async def _of_local(self, version: str, request: Request) -> Response:
        self._require_ready()
        key = (request.parameters["namespace"], request.parameters["name"])
        queue = self._cluster_state.specs.local_queues.get(key)
        if queue is None:
            raise HttpError(404, f'localqueue.{wire.GROUP} "{key[1]}" not found')
        found = (one for local_queue, one in self._pending(queue.cluster_queue) if local_queue == key)
        return Response(body=wire.summary(version, _page(found, request)))

    def _require_ready(self) -> None:
        if not self._is_ready():
            raise HttpError(503, "the caches have not synced yet")

    def _pending(self, cluster_queue: str) -> Iterator[tuple[tuple[str, str], wire.PendingWorkload]]:
        """Yield who waits in the ClusterQueue in its order, each with the LocalQueue it came by."""
        # Counted on the way: the place within a LocalQueue is nowhere kept.
        places = Counter[tuple[str, str]]()
        for position, one in enumerate(self._cluster_state.engine.pending(cluster_queue)):
            yield one.local_queue, self._shown(one, position, places[one.local_queue])
            places[one.local_queue] += 1

    def _shown(self, one: PendingWorkloadView, position: int, local_position: int) -> wire.PendingWorkload:
        return wire.PendingWorkload(
            metadata=self._metadata(one.key),
            priority=one.priority,
            local_queue_name=one.local_queue[1],
            position_in_cluster_queue=position,
            position_in_local_queue=local_position,
        )

    def _metadata(self, key: WorkloadKey) -> wire.PendingMeta:
        seen = self._cluster_state.workloads.get((key.namespace, key.name))
        # Decided on and not yet seen, as a name is all that Kueue's clients need of it.
        if seen is None:
            return wire.PendingMeta(name=key.name, namespace=key.namespace)
        return wire.pending_meta(seen.metadata)


def render_error(status: int, message: str) -> Response:
    """Return an error as Kubernetes tells it."""
    return json_response(wire.status(status, message), status=status)


def _page(found: Iterable[_T], request: Request) -> list[_T]:
    """Return the entries that `offset` and `limit` ask for. Raises HttpError for what is no such number."""
    offset, limit = _number(request, "offset", 0), _number(request, "limit", wire.DEFAULT_LIMIT)
    # A page alone is made: behind it may stand fifteen thousand others.
    return list(islice(found, offset, offset + min(limit, wire.MAX_LIMIT)))


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise HttpError(400, f"{name} is {text!r}: must be a whole number that is not negative")
    return int(text)


async def _tell(document: dict[str, object], request: Request) -> Response:
    del request
    return json_response(document)


async def _tell_ok(request: Request) -> Response:
    del request
    return text_response("ok")
