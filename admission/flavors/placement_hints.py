"""Placement options of a Workload, read from its annotations and from the policy of its ClusterQueue.

A Workload that has joined the reservation of a domain is placed in that domain, whatever else is free.
"""

from __future__ import annotations

from msgspec.structs import replace

from admission.calendar.reserved_domains import ReservedDomain
from admission.flavors.hardware_needs import hardware_need
from admission.placement.topology.placement_options import PlacementOptions, Strategy
from admission.placement.topology.request import Bandwidth, PlacementRequest
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api import keys
from api.excluded_nodes import parse_excluded
from api.jobs.placement_annotations import STRATEGIES, parse_bandwidth, read_key, sources_of
from api.jobs.resource_requests import gpus_of
from api.policy import StrategyChoice
from api.workload import PodSet, Workload

_CHOICES = {
    StrategyChoice.CONSOLIDATED: Strategy.CONSOLIDATED,
    StrategyChoice.DISTRIBUTED: Strategy.DISTRIBUTED,
    StrategyChoice.BALANCED: Strategy.BALANCED,
    StrategyChoice.PACKED: Strategy.PACKED,
}
# Training is as slow as its slowest link, so its pods are packed. Serving must survive the loss of a node, so
# its pods are spread. A Workload that declares neither gets the strategy between the two.
_BY_TYPE = {"training": Strategy.CONSOLIDATED, "inference": Strategy.DISTRIBUTED}


def with_hints(
    snapshot: Snapshot, request: PlacementRequest, queue: QueueState, workload: Workload, pod_set: PodSet
) -> PlacementRequest:
    """Return the request with what the policy and the Workload's annotations ask of its placement.

    Without a `placement` section in the policy only hardware, the reserved domain and excluded nodes apply.
    An annotation with an unknown value counts as absent: a strategy falls back to that of the policy, and a
    bandwidth that cannot be parsed is no condition.
    """
    need = hardware_need(snapshot, queue, workload, pod_set, gpus_of(request.per_pod))
    if need is not None:
        request = replace(request, rules=replace(request.rules, hardware=need))
    request = _without_excluded(_inside_reservation(request, queue, workload), workload)
    if keys.ADDRESS in request.per_pod:
        rule = snapshot.topology_cache.addresses.rule(workload.key, pod_set.name, request.count)
        request = replace(request, rules=replace(request.rules, addresses=rule))
    policy, rules = queue.policy, queue.policy.placement
    if rules is None:
        return request
    sources, with_aliases = sources_of(workload, pod_set), policy.reads_aliases

    def read(key: str) -> str:
        return read_key(key, sources, with_aliases=with_aliases)

    asked = read(keys.PLACEMENT_STRATEGY)
    is_by_kueue = rules.strategy is StrategyChoice.KUEUE and asked.lower() not in STRATEGIES
    options = PlacementOptions(
        strategy=_strategy(rules.strategy, asked, read(keys.WORKLOAD_TYPE)),
        rules=rules.domain_rules,
        weights=rules.weights,
        gpus_per_pod=gpus_of(request.per_pod),
        preferred_domain=read(keys.PREFERRED_DOMAIN),
        is_latency_sensitive=read(keys.LATENCY_SENSITIVE).lower() == "true",
        avoids_fragmentation=rules.avoids_fragmentation,
    )
    if not is_by_kueue:
        request = replace(request, options=options)
    needed = parse_bandwidth(read(keys.NETWORK_BANDWIDTH))
    if needed is None:
        return request
    limited = replace(request.rules, bandwidth=Bandwidth(mbits=needed, label=rules.bandwidth_label))
    return replace(request, rules=limited)


def _inside_reservation(request: PlacementRequest, queue: QueueState, workload: Workload) -> PlacementRequest:
    """Return the request limited to the Workload's reserved domain; the same request where it has none.

    Only nodes in that domain are offered then. The domain is given by the values of its levels, widest first.
    """
    domain = reserved_domain(queue, workload)
    if domain is None:
        return request
    return replace(request, rules=replace(request.rules, domain=domain.values))


def _without_excluded(request: PlacementRequest, workload: Workload) -> PlacementRequest:
    """Return the request without the nodes that are excluded for the Workload."""
    text = workload.annotations.get(keys.EXCLUDED_NODES)
    if text is None:
        return request
    return replace(request, rules=replace(request.rules, excluded=frozenset(parse_excluded(text))))


def reserved_domain(queue: QueueState, workload: Workload) -> ReservedDomain | None:
    """Return the domain reserved for the Workload, None where it has joined no reservation of a domain."""
    return next((kept.domain for kept, _ in queue.reservations if kept.is_joined_by(workload)), None)


def _strategy(choice: StrategyChoice, asked: str, workload_type: str) -> Strategy:
    """Return the strategy that the annotation asks for, else the policy's, which may depend on the Workload's
    type.
    """
    if asked.lower() in STRATEGIES:
        return Strategy(asked.lower())
    if choice in _CHOICES:
        return _CHOICES[choice]
    return _BY_TYPE.get(workload_type.lower(), Strategy.BALANCED)
