"""The life of a Workload outside the decision: `reconcile_workload` says what it needs next.

`context` holds what it must be told of the cluster, `look` what one look sees, `admitted` the rules for who
holds quota, `nodes` what failed nodes mean, `misplaced` pods that run elsewhere, `ungate` which pods go
where, `saving` evictions that wait for a checkpoint, `held_back` those that wait for a budget, `reconcile`
all others and their order.
"""

from admission.reconcile.workload.context import (
    AskedPod,
    LifecycleContext,
    LifecycleResult,
    LifecycleSettings,
    Owner,
    PlacedPod,
    SavingContext,
)
from admission.reconcile.workload.reconcile import reconcile_workload

__all__ = [
    "AskedPod",
    "LifecycleContext",
    "LifecycleResult",
    "LifecycleSettings",
    "Owner",
    "PlacedPod",
    "SavingContext",
    "reconcile_workload",
]
