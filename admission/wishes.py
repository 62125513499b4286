"""From a policy and a Workload's annotations to the wishes that its placement follows."""

from __future__ import annotations

from dataclasses import replace

from admission.placement.request import Bandwidth, PlacementRequest
from admission.placement.wishes import Strategy, Wishes
from api import keys
from api.policy import AdmissionPolicy, Aliases, StrategyChoice
from api.requests import gpus_of
from api.wishes import STRATEGIES, Metadata, parse_bandwidth, read_key
from api.workload import PodSet, Workload

_CHOICES = {
    StrategyChoice.CONSOLIDATED: Strategy.CONSOLIDATED,
    StrategyChoice.DISTRIBUTED: Strategy.DISTRIBUTED,
    StrategyChoice.BALANCED: Strategy.BALANCED,
}
# Training waits for its slowest link, serving must outlive a node; what says nothing gets the middle.
_BY_TYPE = {"training": Strategy.CONSOLIDATED, "inference": Strategy.DISTRIBUTED}


def with_wishes(
    request: PlacementRequest, policy: AdmissionPolicy, workload: Workload, pod_set: PodSet
) -> PlacementRequest:
    """Return the request with what the policy and the Workload's annotations ask of its placement."""
    rules = policy.placement
    if rules is None:
        return request
    sources, with_aliases = _sources(workload, pod_set), policy.aliases is Aliases.ARTICLES

    def read(key: str) -> str:
        return read_key(key, sources, with_aliases=with_aliases)

    wishes = Wishes(
        strategy=_strategy(rules.strategy, read(keys.PLACEMENT_STRATEGY), read(keys.WORKLOAD_TYPE)),
        rules=rules.domain_rules,
        weights=rules.weights,
        gpus_per_pod=gpus_of(request.per_pod),
        preferred_domain=read(keys.PREFERRED_DOMAIN),
        is_latency_sensitive=read(keys.LATENCY_SENSITIVE).lower() == "true",
        avoids_fragmentation=rules.avoids_fragmentation,
    )
    needed = parse_bandwidth(read(keys.NETWORK_BANDWIDTH))
    if needed is None:
        return replace(request, wishes=wishes)
    limited = replace(request.rules, bandwidth=Bandwidth(mbits=needed, label=rules.bandwidth_label))
    return replace(request, wishes=wishes, rules=limited)


def _strategy(choice: StrategyChoice, asked: str, workload_type: str) -> Strategy:
    if asked.lower() in STRATEGIES:
        return Strategy(asked.lower())
    if choice is not StrategyChoice.BY_WORKLOAD_TYPE:
        return _CHOICES[choice]
    return _BY_TYPE.get(workload_type.lower(), Strategy.BALANCED)


def _sources(workload: Workload, pod_set: PodSet) -> Metadata:
    metadata = pod_set.template.metadata
    own = (metadata.annotations, metadata.labels) if metadata is not None else ()
    return (workload.annotations, *own)
