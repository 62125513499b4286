"""The life of a Workload apart from scheduling decisions: `reconcile_workload` returns what it needs next.

`context` holds the state of the cluster that the rules depend on, `look` a Workload during one look.
`admitted` has the rules for Workloads that hold quota, `nodes` those for failed nodes, `misplaced`
those for pods that run elsewhere, `ungate` decides which pod goes to which domain, `saving` handles
evictions that wait for a checkpoint, and `held_back` those that wait for a budget. `reconcile` has all
other rules and their order.
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
