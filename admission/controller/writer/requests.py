"""From a Write to a request: which resource, verb and content type. Nothing is decided here."""

from __future__ import annotations

import msgspec

from admission.decisions.api_writes import Verb, Write
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import KubeError, TooManyRequests
from api.kube.listing import Reader
from api.kube.resources import Resource
from api.objects import NamedObject

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
    )
}
# Answers are kept as the watch would have brought them: without managedFields.
_READERS = {kind: Reader(NamedObject, resource) for kind, resource in _RESOURCES.items()}
_METHODS = {
    Verb.CREATE: "POST",
    Verb.REPLACE: "PUT",
    Verb.MERGE_PATCH: "PATCH",
    Verb.STRATEGIC_PATCH: "PATCH",
    Verb.DELETE: "DELETE",
    Verb.EVICT: "POST",
}
_CONTENT_TYPES = {
    Verb.MERGE_PATCH: "application/merge-patch+json",
    Verb.STRATEGIC_PATCH: "application/strategic-merge-patch+json",
}
# Names our writes in managedFields, as Kueue's do by its own managers.
FIELD_MANAGER = {"fieldManager": "berth"}


def request_of(write: Write) -> tuple[str, str, str]:
    """Return method, path and content type of a write."""
    resource = _RESOURCES[write.kind]
    # A create goes to the collection.
    name = None if write.verb is Verb.CREATE else write.name
    subresource = "eviction" if write.verb is Verb.EVICT else write.subresource
    path = resource.path(write.namespace or None, name, subresource)
    return _METHODS[write.verb], path, _CONTENT_TYPES.get(write.verb, "application/json")


class KubeSender:
    """Sends writes with one client; raises KubeError alone."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def send(self, write: Write, *, timeout_seconds: float) -> bytes:
        """Send one write; return the object in the answer, b"" after a delete and after an eviction."""
        try:
            return await self._send(write, timeout_seconds=timeout_seconds)
        except TooManyRequests as error:
            if write.verb is not Verb.EVICT:
                raise
            # A budget's 429 is about one pod; as a TooManyRequests it would stop every write of the
            # controller.
            # Here it is no call for patience with all writes, but the budget's word on this pod.
            raise KubeError(error.message, status=error.status, reason=error.reason) from error

    async def _send(self, write: Write, *, timeout_seconds: float) -> bytes:
        method, path, content_type = request_of(write)
        answer = await self._client.request(
            method,
            path,
            params=None if write.verb in (Verb.DELETE, Verb.EVICT) else FIELD_MANAGER,
            body=write.body,
            content_type=content_type,
            timeout_seconds=timeout_seconds,
        )
        return (
            b""
            if write.verb in (Verb.DELETE, Verb.EVICT)
            else _READERS[write.kind].own_bytes(msgspec.Raw(answer))
        )

    async def read(self, kind: str, namespace: str, name: str, *, timeout_seconds: float) -> bytes:
        """Return the object's bytes; raises NotFound where it is gone."""
        path = _RESOURCES[kind].path(namespace or None, name)
        answer = await self._client.request("GET", path, timeout_seconds=timeout_seconds)
        return _READERS[kind].own_bytes(msgspec.Raw(answer))
