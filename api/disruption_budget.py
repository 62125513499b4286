"""PodDisruptionBudgets as frozen values: how many of an application's pods may be taken just now.

The disruption controller keeps the number in the budget's status; the eviction subresource holds to it and
counts it down at once. Here it is read so that nobody is chosen whom the server would not let go.
Source: policy/v1 PodDisruptionBudget; Kubernetes, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from api.objects import PodDisruptionBudgetObject, WireSelector
from api.selectors import matches_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """One budget. `allowed` pods may be taken now; a budget that was just changed allows none as yet.

    `keeps_unready`: pods that run and are not ready count like the others. Else they may go in any number.
    """

    namespace: str
    name: str
    selector: WireSelector | None = None
    allowed: int = 0
    keeps_unready: bool = False

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels is one of the application's."""
        return namespace == self.namespace and matches_selector(self.selector, labels)


def to_disruption_budget(wire: PodDisruptionBudgetObject) -> DisruptionBudget:
    """Return the budget as a value."""
    meta, status = wire.metadata, wire.status
    is_current = status.observed_generation >= meta.generation
    # Where the policy is not said it is IfHealthyBudget. A budget of none is taken for one not counted yet.
    is_healthy = status.current_healthy >= status.desired_healthy > 0
    return DisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        selector=wire.spec.selector,
        allowed=max(0, status.disruptions_allowed) if is_current else 0,
        keeps_unready=wire.spec.unhealthy_pod_eviction_policy != "AlwaysAllow" and not is_healthy,
    )
