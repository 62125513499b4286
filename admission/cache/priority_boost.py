"""The priority of a Workload with the annotation `kueue.x-k8s.io/priority-boost`.

With Kueue's gate PriorityBoost, the annotation is added to `spec.priority` wherever priorities are compared:
in the order of a queue, among heads, and in preemption. The object keeps its own priority.
Source: Kueue, pkg/util/priority/priority.go, EffectivePriority.
"""

from __future__ import annotations

from dataclasses import replace

from api import keys
from api.workload import Workload


def boosted(workload: Workload) -> Workload:
    """Return the Workload with its effective priority; unchanged if the annotation is no whole number."""
    try:
        boost = int(workload.annotations.get(keys.PRIORITY_BOOST, "0"))
    except ValueError:
        return workload
    return replace(workload, priority=workload.priority + boost) if boost else workload
