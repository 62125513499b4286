"""Disruption budgets of serving groups: which groups they hold back, and how much groups already use.

A group is evicted once its budgets let all of its pods go (`admission.reconcile.pod.whole`). Groups of one
application share a budget, and draining a queue evicts all of them at the same time. So what the pods of one
group use of a budget, from the decision to evict them until they have ended, is subtracted from what the next
group may use. The budget's status may have counted these pods by then, so for a moment too few groups may go,
but never too many.

The state of each group is read from its Workload, so a new leader knows it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.cluster_state.pod_groups import PodGroups, UnitKey
from admission.engine.engine import Engine
from api.disruption_budget import DisruptionBudget
from api.jobs.pod import Pod
from api.reasons import ConditionType
from api.workload import Workload


class DisruptionBudgets:
    """Which groups are held back and which are going, by unit. It observes all Workloads."""

    def __init__(self, engine: Engine, pods: PodGroups) -> None:
        self._engine = engine
        self._pods = pods
        # Dictionaries for their order.
        self._kept: dict[UnitKey, None] = {}
        self._going: dict[UnitKey, None] = {}
        # Decided by this leader, while the write on the Workload is in flight.
        self._deciding: dict[UnitKey, None] = {}

    def observe(self, change: WorkloadTransition) -> None:
        """Take a Workload as it is now."""
        was, now = _is_allowed(change.before), _is_allowed(change.after)
        if was is now:
            return
        unit = self._pods.unit_of_workload(change.workload)
        if unit is None:
            return
        for word, units in ((False, self._kept), (True, self._going)):
            if now is word:
                units[unit] = None
            else:
                units.pop(unit, None)
        if was:
            # What this group used is available to others.
            self.mark_held_back(unit.namespace)

    def mark_held_back(self, namespace: str) -> None:
        """Mark the held-back groups of a namespace: more may be allowed to go than before."""
        for unit in self._kept:
            if unit.namespace == namespace:
                self._pods.mark(unit)

    def begin(self) -> None:
        """Start a term: answers to writes of an earlier term do not arrive here."""
        self._deciding.clear()

    def note_sent(self, unit: UnitKey) -> None:
        """Record that the write for a group is in flight: the group counts as going until the answer."""
        self._deciding[unit] = None

    def note_answered(self, unit: UnitKey) -> None:
        """Record the answer, whatever it is: from now on the Workload's condition counts."""
        if unit in self._deciding:
            del self._deciding[unit]
            if unit not in self._going:
                self.mark_held_back(unit.namespace)

    def budgets_for(self, unit: UnitKey) -> tuple[DisruptionBudget, ...]:
        """Return the budgets of the unit's namespace, less what the other groups that are going use."""
        budgets = self._engine.nodes.disruption_budgets(unit.namespace)
        others = [one for one in {**self._going, **self._deciding} if one != unit]
        pods = [
            seen.value
            for one in others
            if one.namespace == unit.namespace
            for seen in self._pods.members(one)
            if seen.value.is_active
        ]
        return tuple(_less(budget, pods) for budget in budgets)


def _less(budget: DisruptionBudget, pods: Sequence[Pod]) -> DisruptionBudget:
    taken = sum(budget.covers(pod.namespace, pod.labels) for pod in pods)
    return replace(budget, allowed=max(0, budget.allowed - taken)) if taken else budget


def _is_allowed(workload: Workload | None) -> bool | None:
    """Return whether the Workload's pods may be evicted together; None if it has no such condition."""
    said = workload.conditions.get(ConditionType.DISRUPTION_ALLOWED) if workload is not None else None
    return None if said is None else said.status
