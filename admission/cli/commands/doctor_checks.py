"""Checks of `berth doctor` other than node labels: leftovers of a Kueue, and flavors without their Topology.

If Kueue's Deployment is deleted but its webhook configurations are not, they remain in effect. With
failurePolicy Fail, the API server then rejects every Job, Pod and ClusterQueue. Its message names a service
without endpoints, which does not lead to the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import (
    MUTATING_WEBHOOKS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from api.objects.common import Meta
from api.objects.queues import ResourceFlavorObject, TopologyObject


class _Service(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _ClientConfig(msgspec.Struct):
    service: _Service | None = None


class _Webhook(msgspec.Struct, rename="camel"):
    name: str = ""
    client_config: _ClientConfig = msgspec.field(default_factory=_ClientConfig)
    failure_policy: str = "Fail"


class _Webhooks(msgspec.Struct):
    metadata: Meta
    webhooks: tuple[_Webhook, ...] | None = None


T = TypeVar("T", _Webhooks, TopologyObject, ResourceFlavorObject)


async def leftover_webhooks(client: KubeClient) -> list[str]:
    """Return one sentence for each webhook configuration of Kueue, with the command that removes it."""
    problems = []
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for one in await _listed(client, resource, _Webhooks):
            called = [hook.client_config.service for hook in one.webhooks or ()]
            services = [
                service
                for service in called
                if service is not None and "kueue" in f"{service.namespace}/{service.name}"
            ]
            if services:
                problems.append(_left_over(resource, one, services[0]))
    return problems


def _left_over(resource: Resource, one: _Webhooks, service: _Service) -> str:
    name = one.metadata.name
    refused = any(hook.failure_policy == "Fail" for hook in one.webhooks or ())
    effect = "rejects every object" if refused else "fails on every request"
    return (
        f"{resource.kind} {name} calls {service.namespace}/{service.name} and {effect} once that is gone: "
        f"kubectl delete {resource.plural} {name}"
    )


async def flavor_problems(client: KubeClient) -> list[str]:
    """Return one sentence for each ResourceFlavor whose Topology does not exist."""
    topologies = {one.metadata.name for one in await _listed(client, TOPOLOGIES, TopologyObject)}
    return [
        f"ResourceFlavor {one.metadata.name} names the Topology {one.spec.topology_name!r}, which does not "
        "exist; its ClusterQueues are inactive until it does"
        for one in await _listed(client, RESOURCE_FLAVORS, ResourceFlavorObject)
        if one.spec.topology_name and one.spec.topology_name not in topologies
    ]


async def _listed(client: KubeClient, resource: Resource, type_: type[T]) -> Sequence[T]:
    """Return the objects, or none if the kind is not served or reading it is not permitted."""
    try:
        return (await client.list(resource, type_=type_)).items
    except (Forbidden, NotFound):
        return ()
