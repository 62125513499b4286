"""What a slice of an elastic Job takes over from the one that it replaces, and what that one still holds."""

from __future__ import annotations

from api.workload import Admission, Workload
from queues.quota.resources import Quantities


def takes_over(new: Workload, admission: Admission, former: Workload, present: Admission) -> bool:
    """Return whether a slice takes over what another holds: not from another ClusterQueue's quota."""
    return new.takes_over(former) and admission.cluster_queue == present.cluster_queue


def left_by(taken: Quantities, usage: Quantities) -> Quantities:
    """Return what a slice holds beyond its successor: its pods use that until it has finished.

    A successor may count fewer pods, or run on another flavor, and what it does not hold itself is not free.
    """
    rest = {pair: amount - taken.get(pair, 0) for pair, amount in usage.items()}
    return {pair: amount for pair, amount in rest.items() if amount > 0}
