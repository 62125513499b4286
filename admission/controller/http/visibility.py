"""The visibility API: which Workloads wait in a ClusterQueue or a LocalQueue, and at which position.

kube-apiserver forwards requests (through an APIService) after it has authenticated and authorised them, and
presents a client certificate of its own with each. On loopback only this machine can call. On any other
address that certificate is required: it must be signed by the front proxy's authority and have an allowed
name. Without a known authority the port stays on loopback. A request that arrives is therefore authorised:
there is no second SubjectAccessReview, and the X-Remote headers, which name the user, are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.http.client_authority import Clients
from admission.controller.runtime.large_reads import LargeReads, encoded
from admission.status.views import PendingWorkloadView
from api.http.server import Handler, HttpError, Request, Response, Route, json_response, text_response
from api.wire import visibility as wire
from api.workload import WorkloadKey

_T = TypeVar("_T")
# A number with more digits may not fit into 64 bits, and is no offset.
_MOST_DIGITS = 18
_ROOT = f"/apis/{wire.GROUP}"


class _Place(NamedTuple):
    """A pending Workload, and how many others are before it in its ClusterQueue and in its LocalQueue."""

    view: PendingWorkloadView
    in_cluster_queue: int
    in_local_queue: int


class Visibility:
    """The routes. `is_ready`: whether every queue and Workload is known. `proxy`: which clients may call."""

    def __init__(
        self,
        cluster_state: ClusterState,
        reads: LargeReads,
        is_ready: Callable[[], bool],
        proxy: Clients | None = None,
    ) -> None:
        self._cluster_state = cluster_state
        self._reads = reads
        self._is_ready = is_ready
        self._proxy = proxy

    def routes(self) -> list[Route]:
        """Return the API's routes, including those of discovery and health."""
        routes = [
            Route("GET", "/healthz", self._guarded(_answer_ok)),
            Route("GET", "/apis", self._guarded(partial(_answer, wire.group_list()))),
            Route("GET", _ROOT, self._guarded(partial(_answer, wire.group()))),
        ]
        for version in wire.VERSIONS:
            root = f"{_ROOT}/{version}"
            of_cluster, of_local = partial(self._of_cluster, version), partial(self._of_local, version)
            cluster = f"{root}/clusterqueues/{{name}}/pendingworkloads"
            local = f"{root}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads"
            routes += [
                Route("GET", root, self._guarded(partial(_answer, wire.resource_list(version)))),
                Route("GET", cluster, self._guarded(of_cluster)),
                Route("GET", local, self._guarded(of_local)),
            ]
        return routes

    def _guarded(self, handler: Handler) -> Handler:
        return handler if self._proxy is None else self._proxy.guarded(handler)

    async def _of_cluster(self, version: str, request: Request) -> Response:
        self._require_ready()
        name = request.parameters["name"]
        if name not in self._cluster_state.specs.cluster_queues:
            raise HttpError(404, f'clusterqueue.{wire.GROUP} "{name}" not found')
        return await self._summary(version, await self._places(name), request)

    async def _of_local(self, version: str, request: Request) -> Response:
        self._require_ready()
        key = (request.parameters["namespace"], request.parameters["name"])
        queue = self._cluster_state.specs.local_queues.get(key)
        if queue is None:
            raise HttpError(404, f'localqueue.{wire.GROUP} "{key[1]}" not found')
        places = await self._places(queue.cluster_queue)
        return await self._summary(version, [one for one in places if one.view.local_queue == key], request)

    async def _summary(self, version: str, places: Sequence[_Place], request: Request) -> Response:
        items = await encoded(self._reads, map(self._shown, _page(places, request)))
        return Response(body=wire.summary(version, items))

    def _require_ready(self) -> None:
        if not self._is_ready():
            raise HttpError(503, "the caches have not synced yet")

    async def _places(self, cluster_queue: str) -> list[_Place]:
        """Return the pending Workloads of the ClusterQueue in order."""
        # Counted on the way, because the position within a LocalQueue is not stored.
        before = Counter[tuple[str, str]]()

        def places() -> Iterator[_Place]:
            for position, view in enumerate(self._cluster_state.engine.queues.iter_pending(cluster_queue)):
                yield _Place(view, position, before[view.local_queue])
                before[view.local_queue] += 1

        return await self._reads.collect(places())

    def _shown(self, place: _Place) -> wire.PendingWorkload:
        view, position, local_position = place
        return wire.PendingWorkload(
            metadata=self._metadata(view.key),
            priority=view.priority,
            local_queue_name=view.local_queue[1],
            position_in_cluster_queue=position,
            position_in_local_queue=local_position,
        )

    def _metadata(self, key: WorkloadKey) -> wire.PendingMeta:
        seen = self._cluster_state.workloads.get((key.namespace, key.name))
        # Queued but no longer in the cache: Kueue's clients need only the name.
        if seen is None:
            return wire.PendingMeta(name=key.name, namespace=key.namespace)
        return wire.pending_meta(seen.metadata)


def render_error(status: int, message: str) -> Response:
    """Return an error in the form of a Kubernetes Status."""
    return json_response(wire.status(status, message), status=status)


def _page(found: Sequence[_T], request: Request) -> Sequence[_T]:
    """Return the entries that `offset` and `limit` select. Raises HttpError if one of them is invalid."""
    offset, limit = _number(request, "offset", 0), _number(request, "limit", wire.DEFAULT_LIMIT)
    return found[offset : offset + min(limit, wire.MAX_LIMIT)]


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise HttpError(400, f"{name} is {text!r}: must be a whole number that is not negative")
    return int(text)


async def _answer(document: dict[str, object], request: Request) -> Response:
    del request
    return json_response(document)


async def _answer_ok(request: Request) -> Response:
    del request
    return text_response("ok")
