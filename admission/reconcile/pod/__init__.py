"""The integration of plain pods and groups of pods: `reconcile_pods` returns what they need next.

A *unit* is admitted as a whole: a single pod, or all pods of one group. `view` holds the state of a unit
during one look, `compose` builds its Workload and keeps it up to date, `groups` has the rules that apply only
to groups (surplus, missing and failed members), `whole` decides when a serving unit may be evicted, `start`
ungates pods, `writes` builds requests and Events, and `reconcile` has the rules and their order.
"""

from admission.reconcile.pod.reconcile import reconcile_empty_group, reconcile_pods
from admission.reconcile.pod.view import Keeper, UnitFacts

__all__ = ["Keeper", "UnitFacts", "reconcile_empty_group", "reconcile_pods"]
