"""The replicas that are evicted: whom a budget keeps, and what of a budget is spoken for by groups.

A group goes where its budgets let all of its pods go (`admission.reconcile.pod.whole`). Groups of one
application share a budget, and a queue that is drained evicts all of them in one moment. So what the pods of
one group take, from the decision that it may go until they have ended, is left out of what the next one is
told. The budget's status may have counted them by then: for a moment too few may go rather than too many.

Which group stands where is read from the Workloads, so a new leader knows it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from admission.controller.cluster_state.pod_groups import PodGroups, UnitKey
from admission.engine.engine import Engine
from api.disruption_budget import DisruptionBudget
from api.jobs.pod import Pod
from api.reasons import ConditionType
from api.workload import Workload


class DisruptionBudgets:
    """Who is kept and who goes, by unit; `see` is told of each Workload."""

    def __init__(self, engine: Engine, pods: PodGroups) -> None:
        self._engine = engine
        self._pods = pods
        # For their order, as everywhere.
        self._kept: dict[UnitKey, None] = {}
        self._going: dict[UnitKey, None] = {}
        # Decided by us, and the word is on its way to the Workload.
        self._deciding: dict[UnitKey, None] = {}

    def see(self, before: Workload | None, after: Workload | None) -> None:
        """Take note of a Workload as it is now, None where it is gone."""
        was, now = _word(before), _word(after)
        if was is now:
            return
        subject = after if after is not None else before
        unit = self._pods.unit_of_workload(subject) if subject is not None else None
        if unit is None:
            return
        for word, units in ((False, self._kept), (True, self._going)):
            if now is word:
                units[unit] = None
            else:
                units.pop(unit, None)
        if was:
            # What it took is there for others.
            self.look_again(unit.namespace)

    def look_again(self, namespace: str) -> None:
        """Look again at those of a namespace whom budgets keep: more may be let go than before."""
        for unit in self._kept:
            if unit.namespace == namespace:
                self._pods.mark(unit)

    def begin(self) -> None:
        """Start a term: what an earlier one sent is answered to nobody."""
        self._deciding.clear()

    def note_sent(self, unit: UnitKey) -> None:
        """Take note that the word about a group is on its way: it counts as going until the answer."""
        self._deciding[unit] = None

    def note_answered(self, unit: UnitKey) -> None:
        """Take note of the answer, whatever it was: what the Workload says counts."""
        if unit in self._deciding:
            del self._deciding[unit]
            if unit not in self._going:
                self.look_again(unit.namespace)

    def budgets_for(self, unit: UnitKey) -> tuple[DisruptionBudget, ...]:
        """Return the budgets of the unit's namespace, of each what is left beside the others that go."""
        budgets = self._engine.disruption_budgets(unit.namespace)
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


def _word(workload: Workload | None) -> bool | None:
    """Return whether the Workload's pods may go together; None where nothing is said of it."""
    said = workload.conditions.get(ConditionType.DISRUPTION_ALLOWED) if workload is not None else None
    return None if said is None else said.status
