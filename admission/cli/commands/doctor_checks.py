"""Checks of `berth doctor` beside node labels: a Kueue's leftovers, Topologies, quotas, policies, Workloads.

If Kueue's Deployment is deleted but its webhook configurations are not, they remain in effect. With
failurePolicy Fail, the API server then rejects every Job, Pod and ClusterQueue. Its message names a service
without endpoints, which does not lead to the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from admission.cli.views.effective_policy import Policies
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import (
    ADMISSION_POLICIES,
    CLUSTER_QUEUES,
    COHORTS,
    MUTATING_WEBHOOKS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    VALIDATING_WEBHOOKS,
    WORKLOADS,
    Resource,
)
from api.node import NodeInfo
from api.objects.common import Meta
from api.objects.policies import AdmissionPolicyObject
from api.objects.queues import (
    ClusterQueueObject,
    CohortObject,
    ResourceFlavorObject,
    TopologyObject,
    WireResourceGroup,
)
from api.objects.workloads import WorkloadObject
from api.parsing.quantities import QuantityError, amount, to_text
from api.reasons import ConditionType, PendingReason


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


T = TypeVar(
    "T",
    _Webhooks,
    TopologyObject,
    ResourceFlavorObject,
    ClusterQueueObject,
    CohortObject,
    WorkloadObject,
    AdmissionPolicyObject,
)
_MISCONFIGURED = (ConditionType.QUOTA_RESERVED, "False", PendingReason.MISCONFIGURED)
# One mistake in a pipeline may be in a thousand Jobs.
_MOST_WORKLOADS = 10


class Reader:
    """Lists the kinds that are served and may be read, each once. `skipped` names those that may not be."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._listed: dict[str, Sequence[Any]] = {}
        self.skipped: list[str] = []

    async def list(self, resource: Resource, type_: type[T]) -> Sequence[T]:
        """Return the objects, or none if the kind is not served or may not be read."""
        if resource.plural not in self._listed:
            found: Sequence[T] = ()
            try:
                found = (await self._client.list(resource, type_=type_)).items
            except NotFound:
                pass
            except Forbidden:
                self.skipped.append(resource.plural)
            self._listed[resource.plural] = found
        return self._listed[resource.plural]


async def leftover_webhooks(reader: Reader) -> list[str]:
    """Return one sentence for each webhook configuration of Kueue, with the command that removes it."""
    problems = []
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for one in await reader.list(resource, _Webhooks):
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


async def flavor_problems(reader: Reader) -> list[str]:
    """Return one sentence for each ResourceFlavor whose Topology does not exist."""
    topologies = {one.metadata.name for one in await reader.list(TOPOLOGIES, TopologyObject)}
    return [
        f"ResourceFlavor {one.metadata.name} names the Topology {one.spec.topology_name!r}, which does not "
        "exist; its ClusterQueues are inactive until it does"
        for one in await reader.list(RESOURCE_FLAVORS, ResourceFlavorObject)
        if one.spec.topology_name and one.spec.topology_name not in topologies
    ]


async def misconfigured_workloads(reader: Reader) -> list[str]:
    """Return one sentence for each Workload that no node, queue or flavor will ever suit as it is."""
    found = [
        (f"{one.metadata.namespace}/{one.metadata.name}", condition.message)
        for one in await reader.list(WORKLOADS, WorkloadObject)
        for condition in one.status.conditions or ()
        if (condition.type, condition.status, condition.reason) == _MISCONFIGURED
    ]
    shown = [f"Workload {name} cannot start: {message}" for name, message in sorted(found)[:_MOST_WORKLOADS]]
    others = len(found) - len(shown)
    return [*shown, *([f"{others} more Workloads are misconfigured: berth get workloads"] if others else ())]


async def policy_problems(reader: Reader) -> list[str]:
    """Return one sentence for each AdmissionPolicy that is not in force, such as one without its base."""
    policies = Policies(await reader.list(ADMISSION_POLICIES, AdmissionPolicyObject), ())
    return [f"AdmissionPolicy {name}: {problem}" for name, problem in policies.problems().items()]


async def quota_problems(reader: Reader, nodes: Sequence[NodeInfo]) -> list[str]:
    """Return one sentence for each resource of a flavor with more quota than its ready nodes have.

    Work that gets such quota finds no node, and its pods stay pending.
    """
    flavors = {one.metadata.name: one for one in await reader.list(RESOURCE_FLAVORS, ResourceFlavorObject)}
    quotas = _quotas(
        (
            *(one.spec.resource_groups for one in await reader.list(CLUSTER_QUEUES, ClusterQueueObject)),
            *(one.spec.resource_groups for one in await reader.list(COHORTS, CohortObject)),
        )
    )
    problems = []
    for (name, resource), quota in sorted(quotas.items()):
        flavor = flavors.get(name)
        if flavor is None:
            # Its ClusterQueues are inactive and say so.
            continue
        own = [node for node in nodes if node.is_ready and _is_of(flavor, node)]
        there = sum(node.allocatable.get(resource, 0) for node in own)
        if quota > there:
            problems.append(
                f"ResourceFlavor {name}: quotas add up to {to_text(resource, quota)} {resource}, and its"
                f" {len(own)} ready nodes have {to_text(resource, there)}; lower the quotas, or add nodes"
                " with its labels"
            )
    return problems


def _is_of(flavor: ResourceFlavorObject, node: NodeInfo) -> bool:
    labels = flavor.spec.node_labels or {}
    return all(node.labels.get(key) == value for key, value in labels.items())


def _quotas(
    of_all: Iterable[tuple[WireResourceGroup, ...] | None],
) -> dict[tuple[str, str], int]:
    """Return the nominal quotas, summed up by flavor and resource; unreadable quantities count as 0."""
    total: dict[tuple[str, str], int] = {}
    for groups in of_all:
        for flavor in (flavor for group in groups or () for flavor in group.flavors):
            for quota in flavor.resources:
                with suppress(QuantityError):
                    pair = (flavor.name, quota.name)
                    total[pair] = total.get(pair, 0) + amount(quota.name, quota.nominal_quota)
    return total
