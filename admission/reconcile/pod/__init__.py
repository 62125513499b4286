"""The integration of plain pods and groups of pods: `reconcile_pods` says what they and their Workload need.

A *unit* is what is admitted as a whole: a pod by itself, or all pods of one group. `view` holds what one
look at a unit sees, `compose` how its Workload is made and kept in step, `groups` what only groups have
(members that are too many, that are missing, that failed), `whole` when a serving one may be evicted, `start`
how pods are let go, `writes` how an answer becomes a request, `reconcile` the rules and their order.
"""

from admission.reconcile.pod.reconcile import reconcile_empty_group, reconcile_pods
from admission.reconcile.pod.view import Keeper, UnitFacts

__all__ = ["Keeper", "UnitFacts", "reconcile_empty_group", "reconcile_pods"]
