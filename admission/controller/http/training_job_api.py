"""TrainingJobPlacement for kubectl: where the pods with a label `training-job-id` run, and in which fabrics.

The extender derives the same from its watch (`/v1/trainingjobs`). This API is for people and asks the API
server for the pods at each call, because a controller without topologies watches no pods.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from admission.controller.http.client_authority import Clients
from api import keys
from api.http.server import Handler, HttpError, Request, Response, Route, json_response
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import KubeError
from api.node import is_finished
from api.objects.cluster import NodeObject, PodObject
from api.wire import training_jobs as wire

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_ROOT = f"/apis/{wire.GROUP}"


class TrainingJobApi:
    """The routes. `proxy`: which clients may call, which have been authorised by kube-apiserver."""

    def __init__(self, client: KubeClient, proxy: Clients | None = None) -> None:
        self._client = client
        self._proxy = proxy

    def routes(self) -> list[Route]:
        """Return the API's routes, with those of discovery."""
        version = f"{_ROOT}/{wire.VERSION}"
        within = f"{version}/namespaces/{{namespace}}/{wire.PLURAL}"
        return [
            Route("GET", _ROOT, self._guarded(_document(wire.group()))),
            Route("GET", version, self._guarded(_document(wire.resource_list()))),
            Route("GET", f"{version}/{wire.PLURAL}", self._guarded(self._list)),
            Route("GET", within, self._guarded(self._list)),
            Route("GET", f"{within}/{{name}}", self._guarded(self._get)),
        ]

    def _guarded(self, handler: Handler) -> Handler:
        return handler if self._proxy is None else self._proxy.guarded(handler)

    async def _list(self, request: Request) -> Response:
        found = await self._placements(request.parameters.get("namespace"))
        return json_response(wire.table(found) if _wants_table(request) else wire.placement_list(found))

    async def _get(self, request: Request) -> Response:
        name = request.parameters["name"]
        found = await self._placements(request.parameters["namespace"], name)
        if not found:
            raise HttpError(404, f'{wire.PLURAL}.{wire.GROUP} "{name}" not found')
        return json_response(wire.table(found) if _wants_table(request) else found[0])

    async def _placements(
        self, namespace: str | None, name: str | None = None
    ) -> list[wire.TrainingJobPlacement]:
        """Return the training jobs with pods on nodes, of one namespace or all, and of this name or any."""
        # It becomes part of a path that is read with the controller's rights.
        if namespace is not None and not _NAMESPACE.fullmatch(namespace):
            raise HttpError(404, f'namespaces "{namespace}" not found')
        try:
            pods = await self._client.list(
                resources.PODS, namespace, type_=PodObject, params={"labelSelector": keys.TRAINING_JOB}
            )
            nodes = await self._client.list(
                resources.NODES, type_=NodeObject, params={"labelSelector": keys.NODE_FABRIC}
            )
        except KubeError as error:
            raise HttpError(503, f"the pods cannot be read: {error}") from error
        fabrics = {node.metadata.name: (node.metadata.labels or {})[keys.NODE_FABRIC] for node in nodes.items}
        jobs: dict[tuple[str, str], list[PodObject]] = {}
        for pod in pods.items:
            job = (pod.metadata.labels or {}).get(keys.TRAINING_JOB, "")
            if pod.spec.node_name and not is_finished(pod) and job and name in (None, job):
                jobs.setdefault((pod.metadata.namespace, job), []).append(pod)
        return [_placement(key, jobs[key], fabrics) for key in sorted(jobs)]


def _placement(
    key: tuple[str, str], pods: list[PodObject], fabrics: Mapping[str, str]
) -> wire.TrainingJobPlacement:
    nodes = Counter(pod.spec.node_name or "" for pod in pods)
    return wire.TrainingJobPlacement(
        metadata=wire.PlacementMeta(
            name=key[1],
            namespace=key[0],
            creation_timestamp=min(pod.metadata.creation_timestamp or "" for pod in pods) or None,
        ),
        status=wire.PlacementStatus(
            pods=len(pods),
            nodes=[wire.PodsOnNode(name, count) for name, count in sorted(nodes.items())],
            fabrics=sorted({fabrics[name] for name in nodes if fabrics.get(name)}),
        ),
    )


def _wants_table(request: Request) -> bool:
    """Return whether the client prefers a Table, as kubectl does unless an output format is named."""
    return "as=Table" in request.headers.get("accept", "").partition(",")[0]


def _document(document: dict[str, object]) -> Handler:
    async def answer(_: Request) -> Response:
        return json_response(document)

    return answer
