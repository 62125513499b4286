"""How many replicas of an application a search may still take: its floor, and its PodDisruptionBudgets.

Inference is evicted replica by replica (rule `preferInference`), and an application must not be taken away
by halves that each looked harmless. So a search counts what it takes:

    spare(application) = replicas that serve − those on their way out − berth.dev/min-replicas (1)
    spare(budget)      = disruptionsAllowed − pods of those on their way out

A replica that does not serve (it crashes, or starts) takes nothing from the floor, and may go while as many
serve as must. Below the floor nobody goes: who does not serve may be about to. That is a budget's own rule
where `unhealthyPodEvictionPolicy` says nothing; who stays below for good, waitForPodsReady evicts.

A replica is a pod, or a group of pods of a LeaderWorkerSet. It may be taken while its application can spare
one, and each budget that it falls under all its pods. Those of a StatefulSet are one Workload and go all at
once: they count as one, which is the last, and go where the floor is 0. Who is on the way out is subtracted
from the budget though its status may count it already: for as long as it takes to end, too few are taken
rather than too many. The server has the last word (the eviction subresource); what is counted here keeps a
Workload from being evicted whose pod the server would then not let go.

The counters belong to one attempt of one search, because an attempt may be given up; what they start from
is worked out once for each picture of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from admission.snapshot.snapshot import HeldWorkload, QueueState, Snapshot
from api import keys
from api.disruption_budget import DisruptionBudget
from api.jobs.checkpoint_annotations import checkpoint_facts
from api.parsing.decimals import whole_number
from api.policy import AdmissionPolicy, Aliases
from api.reasons import ConditionType, DisruptionReason
from api.workload import PodSet, Workload, WorkloadKey, to_rfc3339

DEFAULT_MIN_REPLICAS = 1
# Stands between names of budgets, and in none of them.
_AND = " and "


class Keeps(StrEnum):
    """What kind of thing keeps replicas."""

    FLOOR = "Floor"
    BUDGET = "Budget"
    SERVER = "Server"


class Guard(NamedTuple):
    """What keeps replicas: the floor of an application, named as `berth.dev/replica-of` says, a budget, or
    the API server, which has refused to evict the Workload of that name.

    Two budgets over one pod are a guard of their own, of both names: they keep it for good.
    """

    kind: Keeps
    namespace: str
    name: str


@dataclass(slots=True)
class Floors:
    """The counters of one attempt of a search on a snapshot."""

    snapshot: Snapshot
    _taken: dict[Guard, int] = field(default_factory=dict)
    _spares: Mapping[Guard, int] | None = None

    def guards(self, held: HeldWorkload, queue: QueueState) -> Mapping[Guard, int]:
        """Return what keeps this Workload, and how much of each it takes: from its application's floor one
        replica, none where it does not serve, and from every budget as many as it has pods that count there.

        Nothing for whoever may always be taken: who is leaving already, and whatever is no replica under a
        policy that prefers inference.
        """
        workload = held.workload
        application = workload.annotations.get(keys.REPLICA_OF)
        # Only replicas that serve are bounded; a single pod of somebody's notebook is a
        # victim like any other.
        if application is None or held.is_evicted or not is_counted(workload, queue.policy):
            return {}
        guards = {
            Guard(Keeps.FLOOR, workload.key.namespace, application): int(is_serving(held)),
            **_budgets_over(held, self.snapshot),
        }
        # Nothing is spare there either.
        if refused_at(workload) is not None:
            guards[Guard(Keeps.SERVER, *workload.key)] = 1
        # The server evicts no pod that falls under more than one; nothing is ever spare there.
        if (at_odds := _budgets_at_odds(workload, self.snapshot)) is not None:
            guards[at_odds] = 1
        return guards

    def spare(self, guard: Guard) -> int:
        """Return how much may still be taken from under this one; below 0: not even who takes nothing."""
        # Once a search and not once a candidate: it walks over everybody who holds quota.
        if self._spares is None:
            self._spares = _spares(self.snapshot)
        return self._spares.get(guard, 0) - self._taken.get(guard, 0)

    def take(self, held: HeldWorkload, queue: QueueState) -> Guard | None:
        """Return what keeps this Workload, None where the search may take it: then it is counted."""
        guards = self.guards(held, queue)
        # Each must have as much to spare.
        for guard, amount in guards.items():
            if self.spare(guard) < amount:
                return guard
        # Counted when it is taken; a candidate that is refused has taken nothing.
        for guard, amount in guards.items():
            self._taken[guard] = self._taken.get(guard, 0) + amount
        return None


def is_counted(workload: Workload, policy: AdmissionPolicy) -> bool:
    """Return whether the Workload is replicas of inference, under a policy that prefers inference: they are
    counted before they are taken, and their pods go by the eviction subresource.
    """
    section = policy.preemption
    return (
        section is not None
        and section.rules.prefers_inference
        and keys.REPLICA_OF in workload.annotations
        and checkpoint_facts(workload, with_aliases=policy.aliases is Aliases.ARTICLES).is_inference
    )


def _spares(snapshot: Snapshot) -> dict[Guard, int]:
    """Return how many replicas of each application, and of those under each budget, may be taken now."""
    spares = {_guard_of(one): one.allowed for one in snapshot.budgets.values()}
    for queue in snapshot.queues.values():
        for held in queue.held.values():
            application = held.workload.annotations.get(keys.REPLICA_OF)
            if application is None:
                continue
            guard = Guard(Keeps.FLOOR, held.key.namespace, application)
            # The floor is the same for all of them, whoever comes first.
            spares.setdefault(guard, -min_replicas(held.workload))
            # `DisruptionsAllowed` may count it already; to subtract it once more errs on the side of too few.
            if held.is_evicted or snapshot.is_gone(held):
                for budget, pods in _budgets_over(held, snapshot).items():
                    spares[budget] -= pods
            elif is_serving(held):
                spares[guard] += 1
    return spares


@dataclass(slots=True)
class KeptReplicas:
    """Who could not be taken for one Workload, and what kept each: what it is told that waits for them."""

    _guards: dict[WorkloadKey, Guard] = field(default_factory=dict)
    _floors: dict[Guard, int] = field(default_factory=dict)
    # By the setting that spares them, and until when.
    _spared: dict[str, dict[WorkloadKey, float]] = field(default_factory=dict)

    def note_spared(self, held: HeldWorkload, rule: str, until: float) -> None:
        """Note that a setting of its policy spares a candidate until then."""
        self._spared.setdefault(rule, {})[held.key] = until

    def note(self, held: HeldWorkload, guard: Guard) -> None:
        """Note that `guard` keeps a candidate, the first time that a search meets it."""
        self._guards.setdefault(held.key, guard)
        if guard.kind is Keeps.FLOOR:
            self._floors[guard] = min_replicas(held.workload)

    def words(self) -> str:
        """Return how many are kept, an example, and what would let them go; as long as nothing changes the
        same.
        """
        sentences = []
        if floored := self._by(Keeps.FLOOR):
            guard = self._guards[floored[0]]
            sentences.append(
                f"{_candidates(floored)} kept by {keys.MIN_REPLICAS}, such as Workload {floored[0]}:"
                f" {_remedy(guard, self._floors[guard])}"
            )
        if budgeted := self._by(Keeps.BUDGET):
            guard = self._guards[budgeted[0]]
            is_one = _AND not in guard.name
            remedy = "let it allow more disruptions" if is_one else "let each pod fall under one alone"
            sentences.append(
                f"{_candidates(budgeted)} kept by a PodDisruptionBudget, such as Workload {budgeted[0]} by"
                f" {guard.namespace}/{guard.name}: {remedy}"
            )
        if refused := self._by(Keeps.SERVER):
            sentences.append(
                f"{_candidates(refused)} kept by the API server, which has refused to evict the pods, such as"
                f" Workload {refused[0]}: its condition {ConditionType.DISRUPTION_ALLOWED} quotes it"
            )
        for rule, spared in sorted(self._spared.items()):
            first = min(spared, key=lambda key: (spared[key], key))
            until = "" if spared[first] == inf else f" until {to_rfc3339(spared[first])}"
            sentences.append(f"{_candidates(list(spared))} spared by {rule}, such as Workload {first}{until}")
        return ". ".join(sentences)

    def _by(self, kind: Keeps) -> list[WorkloadKey]:
        return sorted(key for key, guard in self._guards.items() if guard.kind is kind)


def _remedy(guard: Guard, floor: int) -> str:
    if guard.name.startswith("StatefulSet/"):
        return f'{guard.name} goes whole or not at all, and may go where the annotation is "0"'
    return f"at least {floor} of {guard.name} stay, so let it have more replicas, or lower that number"


def _candidates(some: Sequence[WorkloadKey]) -> str:
    return "1 candidate for preemption is" if len(some) == 1 else f"{len(some)} candidates for preemption are"


def is_serving(held: HeldWorkload) -> bool:
    """Return whether the replica runs and answers, as far as it is known."""
    ready = held.workload.conditions.get(ConditionType.PODS_READY)
    # Nothing said counts as ready: without waitForPodsReady the condition does not exist.
    return held.is_admitted and (ready is None or ready.status)


def refused_at(workload: Workload) -> float | None:
    """Return when the server refused to evict the Workload's pods, None where it is not known to."""
    allowed = workload.conditions.get(ConditionType.DISRUPTION_ALLOWED)
    is_refused = allowed is not None and not allowed.status
    if allowed is None or not is_refused or allowed.reason != DisruptionReason.EVICTION_REFUSED:
        return None
    return allowed.at


def may_free_others(before: Workload, after: Workload) -> bool:
    """Return whether more replicas may be taken than before: one serves that did not, or is spared no
    more.
    """
    if keys.REPLICA_OF not in after.annotations:
        return False
    type_ = ConditionType.PODS_READY
    is_ready_again = after.is_true(type_) and not before.is_true(type_)
    return is_ready_again or (refused_at(before) is not None and refused_at(after) is None)


def _budgets_over(held: HeldWorkload, snapshot: Snapshot) -> dict[Guard, int]:
    """Return the budgets that the Workload's pods fall under, each with how many of them it has to let go."""
    workload = held.workload
    # Of several that do not all serve nobody knows here how many do.
    is_unready = not is_serving(held) and sum(one.count for one in workload.pod_sets) == 1
    found: dict[Guard, int] = {}
    for pod_set in workload.pod_sets:
        # Those that it was scaled down by have gone already.
        pods = pod_set.count - workload.reclaimable.get(pod_set.name, 0)
        for budget in _budgets_of(pod_set, workload, snapshot):
            guard = _guard_of(budget)
            taken = 0 if is_unready and not budget.keeps_unready else pods
            found[guard] = found.get(guard, 0) + taken
    return found


def _budgets_at_odds(workload: Workload, snapshot: Snapshot) -> Guard | None:
    """Return the budgets as one guard that a pod falls under together, None where none does."""
    for pod_set in workload.pod_sets:
        found = sorted(one.name for one in _budgets_of(pod_set, workload, snapshot))
        if len(found) > 1:
            return Guard(Keeps.BUDGET, workload.key.namespace, _AND.join(found))
    return None


def _budgets_of(pod_set: PodSet, workload: Workload, snapshot: Snapshot) -> list[DisruptionBudget]:
    metadata, namespace = pod_set.template.metadata, workload.key.namespace
    labels = (metadata.labels if metadata is not None else None) or {}
    return [one for one in snapshot.budgets.values() if one.covers(namespace, labels)]


def _guard_of(budget: DisruptionBudget) -> Guard:
    return Guard(Keeps.BUDGET, budget.namespace, budget.name)


def min_replicas(workload: Workload) -> int:
    """Return how many replicas of the application are to stay, whatever waits; 1 where nothing is said."""
    told = whole_number(workload.annotations.get(keys.MIN_REPLICAS))
    return DEFAULT_MIN_REPLICAS if told is None else told
