"""An API server for one tenant: it may read its own Workloads and LocalQueues, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from api.http.server import HttpError, Request, Response, Route, json_response
from tests.admission.controller.known import Object
from tests.admission.controller.queries.asking import two_teams

_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_PLURALS = {"Workload": "workloads", "LocalQueue": "localqueues"}


def tenant_routes(namespace: str) -> list[Route]:
    """Return the routes of the server whose objects are those of `two_teams`."""

    async def own(request: Request) -> Response:
        kind = next(kind for kind, plural in _PLURALS.items() if request.path.endswith(plural))
        found = [_stored(one) for one in two_teams() if one["kind"] == kind]
        items = [one for one in found if one["metadata"].get("namespace") == namespace]
        return json_response({"metadata": {"resourceVersion": "1"}, "items": items})

    async def refused(request: Request) -> Response:
        raise HttpError(403, f"forbidden: {request.path}")

    paths = (f"{_KUEUE}/namespaces/{namespace}/{plural}" for plural in _PLURALS.values())
    return [
        *(Route("GET", path, own) for path in paths),
        Route("GET", f"{_KUEUE}/{{plural}}", refused),
        Route("GET", f"{_KUEUE}/namespaces/bob/{{plural}}", refused),
        Route("GET", "/apis/batch/v1/namespaces/{namespace}/jobs/{name}", refused),
        Route("GET", "/api/v1/{plural}", refused),
    ]


def kubeconfig_of(folder: Path, server: str, namespace: str) -> str:
    """Write a kubeconfig whose user is the tenant, known by its namespace, and return its path."""
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": namespace}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def _stored(one: Object) -> Object:
    metadata = {**one["metadata"], "uid": one["metadata"]["name"], "resourceVersion": "1"}
    return {**one, "metadata": metadata}
