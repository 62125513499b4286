"""Plain HTTP to an API server: the exact requests of a client and the responses."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One response: the HTTP status, the decoded body, the headers."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def reason(self) -> str:
        """The reason of a Status object, "" for any other body."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The message of a Status object, "" for any other body."""
        return str(self.body.get("message", ""))

    @property
    def metadata(self) -> JsonObject:
        """The object's metadata."""
        metadata: JsonObject = self.body["metadata"]
        return metadata


class RawApi:
    """An API server, and a namespace of the test's own in it."""

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self.session = session
        self.namespace = namespace

    def path(self, plural: str, name: str = "", *, api: str = "api/v1", subresource: str = "") -> str:
        """Return the path of a namespaced kind, or of an object of it."""
        parts = [api, "namespaces", self.namespace, plural, name, subresource]
        return "/" + "/".join(part for part in parts if part)

    def jobs(self, name: str = "", subresource: str = "") -> str:
        """Return the path of the Jobs, or of one."""
        return self.path("jobs", name, api="apis/batch/v1", subresource=subresource)

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **params: str,
    ) -> Answer:
        """Send one request. `body` is sent as JSON, or as it is where it is bytes."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": content_type, "Accept": accept}
        async with self.session.request(
            method, path, params=params, data=data and BytesIO(data), headers=sent
        ) as response:
            text = await response.text()
            decoded = json.loads(text) if text.startswith(("{", "[")) else text
            return Answer(response.status, decoded, response.headers.copy())

    async def create(self, path: str, body: JsonObject, **params: str) -> JsonObject:
        """Create an object and return it. Fails the test if the server rejects it."""
        answer = await self.call("POST", path, body, **params)
        assert answer.status == 201, answer.body
        created: JsonObject = answer.body
        return created

    async def get(self, path: str, **params: str) -> Answer:
        """Read an object or a list."""
        return await self.call("GET", path, **params)

    async def merge(self, path: str, body: object, **params: str) -> Answer:
        """Send a merge patch."""
        return await self.call("PATCH", path, body, content_type=MERGE, **params)

    async def apply(self, path: str, body: object, manager: str, *, force: bool = False) -> Answer:
        """Apply server-side."""
        params = {"fieldManager": manager, **({"force": "true"} if force else {})}
        return await self.call("PATCH", path, body, content_type=APPLY, **params)

    @asynccontextmanager
    async def watch(self, path: str, **params: str) -> AsyncIterator[AsyncIterator[JsonObject]]:
        """Open a watch and give its events; it ends when the server says so, or with the block."""
        async with self.session.get(
            path, params={"watch": "true", "timeoutSeconds": "5", **params}
        ) as response:
            assert response.status == 200, await response.text()
            yield _events(response)

    async def watched(self, path: str, **params: str) -> list[JsonObject]:
        """Return all events of a watch of one second."""
        async with self.watch(path, **{"timeoutSeconds": "1", **params}) as events:
            return [event async for event in events]


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[JsonObject]:
    async for line in response.content:
        if line.strip():
            yield json.loads(line)


def job(name: str, labels: Mapping[str, str] | None = None, **spec: object) -> JsonObject:
    """Return the body of a suspended Job."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": dict(labels or {"app": "x"})},
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": template, **spec},
    }


def pod(name: str, **spec: object) -> JsonObject:
    """Return the body of a Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "busybox"}], **spec},
    }


def config_map(name: str, labels: Mapping[str, str] | None = None, **data: str) -> JsonObject:
    """Return the body of a ConfigMap."""
    metadata = {"name": name, **({"labels": dict(labels)} if labels else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def definition(
    plural: str,
    kind: str,
    properties: JsonObject,
    *,
    group: str = "battery.berth.dev",
    status: bool = True,
    **version: object,
) -> JsonObject:
    """Return the body of a namespaced CRD with one version, v1."""
    schema = {"type": "object", "properties": properties}
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **({"subresources": {"status": {}}} if status else {}),
        **version,
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def tls_of(ca_file: str) -> ssl.SSLContext:
    """Return the TLS settings of a client that trusts one authority."""
    return ssl.create_default_context(cafile=ca_file)
