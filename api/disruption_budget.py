"""PodDisruptionBudgets as frozen values: how many pods of an application may be evicted now.

The disruption controller maintains this number in the status of the budget; the eviction subresource enforces
it and decrements it immediately. Berth reads it to avoid choosing a victim whose eviction the API server
would reject. Source: policy/v1 PodDisruptionBudget; Kubernetes, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.objects.cluster import PodDisruptionBudgetObject
from api.objects.common import WireSelector
from api.selectors import matches_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """One budget.

    `allowed` pods may be evicted now; 0 if the spec changed and its status is not up to date yet.

    `keeps_unready`: the budget also applies to running pods that are not ready. Otherwise any number of
    these may be evicted.
    """

    namespace: str
    name: str
    selector: WireSelector | None = None
    allowed: int = 0
    keeps_unready: bool = False

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the budget selects a pod with these labels in this namespace."""
        return namespace == self.namespace and matches_selector(self.selector, labels)


def to_disruption_budget(wire: PodDisruptionBudgetObject) -> DisruptionBudget:
    """Return the budget as a value."""
    meta, status = wire.metadata, wire.status
    is_current = status.observed_generation >= meta.generation
    # The policy defaults to IfHealthyBudget. A budget with no desired pods is treated as not counted yet.
    is_healthy = status.current_healthy >= status.desired_healthy > 0
    return DisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        selector=wire.spec.selector,
        allowed=max(0, status.disruptions_allowed) if is_current else 0,
        keeps_unready=wire.spec.unhealthy_pod_eviction_policy != "AlwaysAllow" and not is_healthy,
    )
