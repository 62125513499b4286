"""Translation of a Write into a request: resource, verb, path and content type."""

from __future__ import annotations

from contextlib import aclosing
from functools import cache

import msgspec

from admission.decisions.api_writes import Verb, Write
from api.jobs.owners.row import OwnerKind, Source
from api.jobs.owners.table import row_of_kind
from api.kube import resources
from api.kube.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Body, KubeClient
from api.kube.errors import KubeError, NotFound, TooManyRequests
from api.kube.listing import Reader, pages
from api.kube.resources import Resource
from api.objects.common import NamedObject


def owner_resource(row: OwnerKind) -> Resource:
    """Return where a kind of the table of owners is served."""
    return Resource(row.group, row.version, row.plural, row.kind, namespaced=True)


def source_resource(source: Source) -> Resource:
    """Return where a kind that owners refer to is served."""
    return Resource(source.group, source.version, source.plural, source.kind, source.is_namespaced)


_RESOURCES: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        resources.JOBS,
        resources.WORKLOADS,
        resources.CLUSTER_QUEUES,
        resources.LOCAL_QUEUES,
        resources.COHORTS,
        resources.ADMISSION_POLICIES,
        resources.PODS,
        resources.RESOURCE_FLAVORS,
        resources.TOPOLOGIES,
        resources.ADMISSION_CHECKS,
        resources.POD_TEMPLATES,
        resources.PROVISIONING_REQUESTS,
    )
}
_METHODS = {
    Verb.CREATE: "POST",
    Verb.REPLACE: "PUT",
    Verb.MERGE_PATCH: "PATCH",
    Verb.STRATEGIC_PATCH: "PATCH",
    Verb.DELETE: "DELETE",
    Verb.EVICT: "POST",
}
_CONTENT_TYPES = {
    Verb.MERGE_PATCH: MERGE_PATCH,
    Verb.STRATEGIC_PATCH: STRATEGIC_MERGE_PATCH,
}
# The name under which our writes appear in managedFields. Kueue writes under names of its own.
FIELD_MANAGER = {"fieldManager": "berth"}


def _resource(kind: str) -> Resource:
    """Return where a kind is served. Raises KeyError for one that is never written."""
    row = row_of_kind(kind)
    return _RESOURCES[kind] if row is None else owner_resource(row)


@cache
def _reader(resource: Resource) -> Reader[NamedObject]:
    # An answer is kept in the form in which the watch delivers the object: without managedFields.
    return Reader(NamedObject, resource)


def request_of(write: Write) -> tuple[str, str, str]:
    """Return HTTP method, path and content type of a write."""
    resource = _resource(write.kind)
    # A create goes to the collection.
    name = None if write.verb is Verb.CREATE else write.name
    subresource = "eviction" if write.verb is Verb.EVICT else write.subresource
    path = resource.path(write.namespace or None, name, subresource)
    return _METHODS[write.verb], path, _CONTENT_TYPES.get(write.verb, "application/json")


class KubeSender:
    """Sends writes and reads with one client. Its methods raise only KubeError."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def send(self, write: Write, *, timeout_seconds: float) -> bytes:
        """Send one write. Return the object in the answer, b"" after a delete or an eviction."""
        try:
            return await self._send(write, timeout_seconds=timeout_seconds)
        except TooManyRequests as error:
            if write.verb is not Verb.EVICT:
                raise
            # 429 to an eviction means that a PodDisruptionBudget protects this pod. Raised as TooManyRequests
            # it would pause all writes of the controller.
            raise KubeError(error.message, status=error.status, reason=error.reason) from error

    async def _send(self, write: Write, *, timeout_seconds: float) -> bytes:
        method, path, content_type = request_of(write)
        answer = await self._client.request(
            method,
            path,
            params=None if write.verb in (Verb.DELETE, Verb.EVICT) else FIELD_MANAGER,
            body=Body(write.body, content_type),
            timeout_seconds=timeout_seconds,
        )
        return (
            b""
            if write.verb in (Verb.DELETE, Verb.EVICT)
            else _reader(_resource(write.kind)).own_bytes(msgspec.Raw(answer))
        )

    async def list_all(self, kind: str) -> list[bytes]:
        """Return the bytes of every object of a kind, read by quorum; [] if the kind is not served."""
        reader = _reader(_resource(kind))
        raws: list[bytes] = []
        try:
            async with aclosing(pages(self._client.fetch_page, _resource(kind).path(), {})) as stream:
                async for page in stream:
                    # The list was restarted: the earlier pages are of another moment.
                    raws = [] if page.restarted else raws
                    raws += [reader.own_bytes(raw) for raw in page.items]
        except NotFound:
            return []
        return raws

    async def read(self, kind: str, namespace: str, name: str, *, timeout_seconds: float) -> bytes:
        """Return the object's bytes. Raises NotFound if it does not exist."""
        path = _resource(kind).path(namespace or None, name)
        answer = await self._client.request("GET", path, timeout_seconds=timeout_seconds)
        return _reader(_resource(kind)).own_bytes(msgspec.Raw(answer))
