"""Deletes everything that a replay created on a cluster: work first, then queues, nodes and definitions.

Every object of a replay has a name of its own or is in a namespace of its own, so no other object is
affected. If no controller is left to remove its finalizers, or no namespace controller empties namespaces,
this module does that itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress

from api.kube.client import Body, KubeClient
from api.kube.errors import Conflict, NotFound
from api.kube.listing import ListResult
from api.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    PODS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from api.objects.common import NamedObject

_SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
# Kinds that a replay, or a controller working on it, creates in a namespace, in the order of deletion.
_NAMESPACED = (JOBS, PODS, WORKLOADS, LOCAL_QUEUES, EVENTS, LEASES, CONFIG_MAPS, SECRETS, _SERVICE_ACCOUNTS)
_NOW = json.dumps({"propagationPolicy": "Background", "gracePeriodSeconds": 0}).encode()
# How long a controller may take to remove its finalizer, and a namespace controller to empty a namespace.
_PATIENCE_SECONDS = 5.0
_NAMESPACE_SECONDS = 60.0
_POLL_SECONDS = 0.1


async def empty_namespaces(client: KubeClient, namespaces: Iterable[str]) -> None:
    """Delete all objects of these namespaces, and remove finalizers from those that remain."""
    for namespace in namespaces:
        for resource in _NAMESPACED:
            await _delete_all(client, resource, namespace)
        for resource in (JOBS, PODS, WORKLOADS):
            await _wait_empty(client, resource, namespace)


async def delete_namespaces(client: KubeClient, namespaces: Sequence[str]) -> None:
    """Delete empty namespaces, and return when they no longer exist."""
    for namespace in namespaces:
        with suppress(NotFound):
            await client.delete(NAMESPACES, namespace)
    for namespace in namespaces:
        await _wait_namespace_gone(client, namespace)


async def delete_objects(client: KubeClient, resource: Resource, names: Iterable[str]) -> None:
    """Delete cluster-scoped objects by name, and remove finalizers from those that remain.

    A controller removes its finalizers from all of them at about the same time, so they
    share one waiting time.
    """
    names = tuple(names)
    until = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
    for name in names:
        with suppress(NotFound):
            await client.delete(resource, name)
    for name in names:
        if not await _is_gone_by(client, resource, name, until):
            await _free(client, resource, name)


async def _delete_all(client: KubeClient, resource: Resource, namespace: str) -> None:
    # If the server does not serve the kind, there are no objects.
    with suppress(NotFound):
        await client.request("DELETE", resource.path(namespace), body=Body(_NOW), timeout_seconds=60.0)


async def _wait_empty(client: KubeClient, resource: Resource, namespace: str) -> None:
    deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
    while names := await _names(client, resource, namespace):
        if asyncio.get_running_loop().time() > deadline:
            for name in names:
                await _free(client, resource, name, namespace)
        await _delete_all(client, resource, namespace)
        await asyncio.sleep(_POLL_SECONDS)


async def _names(client: KubeClient, resource: Resource, namespace: str) -> list[str]:
    found: ListResult[NamedObject]
    try:
        found = await client.list(resource, namespace, type_=NamedObject)
    except NotFound:
        return []
    return [item.metadata.name for item in found.items]


async def _is_gone_by(client: KubeClient, resource: Resource, name: str, until: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            while True:
                try:
                    await client.get(resource, name)
                except NotFound:
                    return True
                await asyncio.sleep(_POLL_SECONDS)
    return False


async def _free(client: KubeClient, resource: Resource, name: str, namespace: str | None = None) -> None:
    with suppress(NotFound, Conflict):
        await client.merge_patch(resource, name, b'{"metadata":{"finalizers":null}}', namespace)


async def _wait_namespace_gone(client: KubeClient, namespace: str) -> None:
    """Wait for the namespace controller. If there is none, finalize the namespace instead of it."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        try:
            found = json.loads(await client.get(NAMESPACES, namespace))
        except NotFound:
            return
        # A working namespace controller writes conditions about what it waits for.
        is_watched_over = bool(found.get("status", {}).get("conditions"))
        waited = loop.time() - began
        if waited > _NAMESPACE_SECONDS or (waited > _PATIENCE_SECONDS and not is_watched_over):
            await _finish_namespace(client, found)
            return
        await asyncio.sleep(_POLL_SECONDS)


async def _finish_namespace(client: KubeClient, namespace: dict[str, object]) -> None:
    name = str(namespace["metadata"]["name"])  # type: ignore[index] # every object has a name
    body = json.dumps({**namespace, "spec": {"finalizers": []}}).encode()
    with suppress(NotFound, Conflict):
        await client.replace(NAMESPACES, name, body, subresource="finalize")
