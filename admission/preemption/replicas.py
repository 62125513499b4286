"""How many replicas of an application a search may still take: its floor, and its PodDisruptionBudgets.

Inference is evicted replica by replica (rule `preferInference`), and a series of single evictions must not
take down an application. So a search counts what it takes:

    spare(application) = serving replicas that are not leaving − berth.dev/min-replicas (default 1)
    spare(budget)      = disruptionsAllowed − pods of replicas that are leaving

A replica that does not serve (it crashes, or is starting) takes nothing from the floor, and may be evicted
while as many serve as must. Below the floor no replica is evicted, since one that does not serve may be about
to. A PodDisruptionBudget has the same rule where `unhealthyPodEvictionPolicy` is not set. A replica that
never becomes ready is evicted by waitForPodsReady.

A replica is a pod, or a group of pods of a LeaderWorkerSet. It may be taken while its application can
spare one replica, and each budget over it can spare all its pods. The pods of a StatefulSet are one
Workload and leave together: they count as one replica, which is the last, so they may be evicted where the
floor is 0. Pods that are leaving are subtracted from a budget even though its status may count them
already. While they end, too few replicas are taken rather than too many. The API server decides in the end
(eviction subresource); the counters here prevent the eviction of a Workload whose pods the API server
would then refuse to evict.

The counters belong to one attempt of one search, because an attempt may be given up. Their initial values are
computed once for each state of the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api import keys
from api.disruption_budget import DisruptionBudget
from api.jobs.checkpoint_annotations import checkpoint_facts
from api.parsing.decimals import whole_number
from api.parsing.times import to_rfc3339
from api.policy import AdmissionPolicy
from api.reasons import ConditionType, DisruptionReason
from api.workload import PodSet, Workload, WorkloadKey

DEFAULT_MIN_REPLICAS = 1
# Joins the names of several budgets; it cannot occur in a name.
_AND = " and "


class GuardKind(StrEnum):
    """The kind of a guard."""

    FLOOR = "Floor"
    BUDGET = "Budget"
    SERVER = "Server"


class Guard(NamedTuple):
    """What keeps replicas from eviction.

    The floor of an application, named as in `berth.dev/replica-of`; a PodDisruptionBudget; or the API server,
    after it has refused to evict the Workload of that name. Several budgets over one pod are a guard of their
    own, with their names joined: the pod can never be evicted.
    """

    kind: GuardKind
    namespace: str
    name: str


@dataclass(slots=True)
class Floors:
    """The counters of one attempt of a search on a snapshot.

    It is created for each attempt, so nothing has to be taken back: an attempt that is given up takes its
    counters with it.
    """

    snapshot: Snapshot
    _taken: dict[Guard, int] = field(default_factory=dict)
    _spares: Mapping[Guard, int] | None = None

    def guards(self, held: HeldWorkload, queue: QueueState) -> Mapping[Guard, int]:
        """Return the guards over this Workload, each with how much its eviction takes.

        From the floor of its application it takes one replica, or none where it does not serve. From every
        budget it takes as many as it has pods that count there. Empty for a Workload that is leaving already,
        and for one that is no replica under a policy that prefers inference.
        """
        workload = held.workload
        application = workload.annotations.get(keys.REPLICA_OF)
        # Only replicas of inference are bounded; a single pod without an application is a
        # victim like any other.
        if application is None or held.is_evicted or not is_counted(workload, queue.policy):
            return {}
        guards = {
            Guard(GuardKind.FLOOR, workload.key.namespace, application): int(is_serving(held)),
            **_budgets_over(held, self.snapshot),
        }
        # The API server has refused it, so this guard has nothing to spare.
        if refused_at(workload) is not None:
            guards[Guard(GuardKind.SERVER, *workload.key)] = 1
        # The API server never evicts a pod under more than one budget, so this guard has nothing to spare.
        if (at_odds := _budgets_at_odds(workload, self.snapshot)) is not None:
            guards[at_odds] = 1
        return guards

    def spare(self, guard: Guard) -> int:
        """Return how much may still be taken under this guard.

        Below 0, not even a replica that takes nothing may be evicted.

        In replicas for the floor of an application, in pods for a budget.
        """
        # Once for each search: this reads every Workload that holds quota.
        if self._spares is None:
            self._spares = _spares(self.snapshot)
        return self._spares.get(guard, 0) - self._taken.get(guard, 0)

    def take(self, held: HeldWorkload, queue: QueueState) -> Guard | None:
        """Count the Workload as taken and return None, or return the guard that does not allow it.

        Where a guard refuses, nothing is counted. Workloads that are no replicas have no guard and are always
        taken.
        """
        guards = self.guards(held, queue)
        # Every guard must have enough to spare before anything is counted.
        for guard, amount in guards.items():
            if self.spare(guard) < amount:
                return guard
        # A candidate that is refused has taken nothing, so the counters change only here.
        for guard, amount in guards.items():
            self._taken[guard] = self._taken.get(guard, 0) + amount
        return None


def is_counted(workload: Workload, policy: AdmissionPolicy) -> bool:
    """Return whether the Workload is a replica of inference, under a policy that prefers inference.

    Such replicas are counted before they are taken, and their pods are evicted by the eviction subresource.

    Read from the annotations of the Workload, so a follower and the next leader come to the same answer.
    """
    section = policy.preemption
    return (
        section is not None
        and section.rules.prefers_inference
        and keys.REPLICA_OF in workload.annotations
        and checkpoint_facts(workload, with_aliases=policy.reads_aliases).is_inference
    )


def _spares(snapshot: Snapshot) -> dict[Guard, int]:
    """Return how many replicas of each application, and under each budget, may be taken now."""
    spares = {_guard_of(one): one.allowed for one in snapshot.objects.budgets.values()}
    for queue in snapshot.queues.values():
        for held in queue.held.values():
            application = held.workload.annotations.get(keys.REPLICA_OF)
            if application is None:
                continue
            guard = Guard(GuardKind.FLOOR, held.key.namespace, application)
            # All replicas declare the same floor, so the first one sets it.
            spares.setdefault(guard, -min_replicas(held.workload))
            # `disruptionsAllowed` may count it already; subtracting it again errs on the side of too few.
            if held.is_evicted or snapshot.evictions.is_gone(held):
                for budget, pods in _budgets_over(held, snapshot).items():
                    spares[budget] -= pods
            elif is_serving(held):
                spares[guard] += 1
    return spares


@dataclass(slots=True)
class KeptReplicas:
    """The candidates that could not be taken for one preemptor, and why, for the preemptor's message."""

    _guards: dict[WorkloadKey, Guard] = field(default_factory=dict)
    _floors: dict[Guard, int] = field(default_factory=dict)
    # By the name of the setting: the Workloads that it spares, and until when.
    _spared: dict[str, dict[WorkloadKey, float]] = field(default_factory=dict)

    def note_spared(self, held: HeldWorkload, rule: str, until: float) -> None:
        """Note that a setting of its policy spares a candidate until then."""
        self._spared.setdefault(rule, {})[held.key] = until

    def note(self, held: HeldWorkload, guard: Guard) -> None:
        """Note that `guard` keeps a candidate; only the first guard of a candidate is kept.

        Each candidate is thus counted once in the message.
        """
        self._guards.setdefault(held.key, guard)
        if guard.kind is GuardKind.FLOOR:
            self._floors[guard] = min_replicas(held.workload)

    def description(self, namespace: str) -> str:
        """Return how many candidates are kept, with an example, and what would release them.

        The example is one of `namespace`, where the message is read; without any there, none is named. The
        message stays the same as long as nothing changes.
        """
        sentences = []
        if floored := self._by(GuardKind.FLOOR):
            sentence = f"{_candidates(floored)} kept by {keys.MIN_REPLICAS}"
            for key in _own(floored, namespace):
                guard = self._guards[key]
                sentence += f", such as Workload {key}: {_remedy(guard, self._floors[guard])}"
            sentences.append(sentence)
        if budgeted := self._by(GuardKind.BUDGET):
            sentence = f"{_candidates(budgeted)} kept by a PodDisruptionBudget"
            for key in _own(budgeted, namespace):
                guard = self._guards[key]
                is_one = _AND not in guard.name
                remedy = "let it allow more disruptions" if is_one else "let each pod be covered by only one"
                sentence += f", such as Workload {key} by {guard.namespace}/{guard.name}: {remedy}"
            sentences.append(sentence)
        if refused := self._by(GuardKind.SERVER):
            sentence = f"{_candidates(refused)} kept by the API server, which has refused to evict the pods"
            for key in _own(refused, namespace):
                condition = ConditionType.DISRUPTION_ALLOWED
                sentence += f", such as Workload {key}: its condition {condition} quotes its answer"
            sentences.append(sentence)
        sentences += [self._spared_by(rule, namespace) for rule in sorted(self._spared)]
        return ". ".join(sentences)

    def _spared_by(self, rule: str, namespace: str) -> str:
        """Return the sentence about those that a setting spares: the first of `namespace`, and until when."""
        spared = self._spared[rule]
        sentence = f"{_candidates(list(spared))} spared by {rule}"
        first = min(spared, key=lambda key: (spared[key], key))
        until = "" if spared[first] == inf else f" until {to_rfc3339(spared[first])}"
        if first.namespace != namespace:
            return f"{sentence}, the first of them{until}" if until else sentence
        return f"{sentence}, such as Workload {first}{until}"

    def _by(self, kind: GuardKind) -> list[WorkloadKey]:
        """Return the candidates that guards of this kind keep, sorted by key."""
        return sorted(key for key, guard in self._guards.items() if guard.kind is kind)


def _own(some: Iterable[WorkloadKey], namespace: str) -> list[WorkloadKey]:
    """Return the first of them in the namespace, if any is there."""
    return [key for key in some if key.namespace == namespace][:1]


def _remedy(guard: Guard, floor: int) -> str:
    """Return what the user may change so that the guard lets a replica go."""
    if guard.name.startswith("StatefulSet/"):
        return f'{guard.name} is evicted as a whole or not at all; set the annotation to "0" to allow that'
    return f"at least {floor} of {guard.name} must stay; add replicas or lower the annotation"


def _candidates(some: Sequence[WorkloadKey]) -> str:
    """Return the number of candidates as the beginning of a sentence."""
    return "1 candidate for preemption is" if len(some) == 1 else f"{len(some)} candidates for preemption are"


def is_serving(held: HeldWorkload) -> bool:
    """Return whether the replica runs and is ready, as far as is known."""
    ready = held.workload.conditions.get(ConditionType.PODS_READY)
    # A missing condition counts as ready: without waitForPodsReady it does not exist.
    return held.is_admitted and (ready is None or ready.status)


def refused_at(workload: Workload) -> float | None:
    """Return when the API server refused to evict the Workload's pods, None where it has not or no longer.

    In Unix seconds, the transition time of the condition DisruptionAllowed=False.
    """
    allowed = workload.conditions.get(ConditionType.DISRUPTION_ALLOWED)
    is_refused = allowed is not None and not allowed.status
    if allowed is None or not is_refused or allowed.reason != DisruptionReason.EVICTION_REFUSED:
        return None
    return allowed.at


def may_free_others(before: Workload, after: Workload) -> bool:
    """Return whether more replicas may be taken than before: this one serves again, or is refused no more.

    The heads that were refused a replica of this group are woken then.
    """
    if keys.REPLICA_OF not in after.annotations:
        return False
    type_ = ConditionType.PODS_READY
    is_ready_again = after.is_true(type_) and not before.is_true(type_)
    return is_ready_again or (refused_at(before) is not None and refused_at(after) is None)


def _budgets_over(held: HeldWorkload, snapshot: Snapshot) -> dict[Guard, int]:
    """Return the budgets over the Workload's pods, each with the disruptions that an eviction takes."""
    workload = held.workload
    # Of several pods that do not all serve, it is not known here how many do.
    is_unready = not is_serving(held) and sum(one.count for one in workload.pod_sets) == 1
    found: dict[Guard, int] = {}
    for pod_set in workload.pod_sets:
        # Reclaimable pods have ended already.
        pods = pod_set.count - workload.reclaimable.get(pod_set.name, 0)
        for budget in _budgets_of(pod_set, workload, snapshot):
            guard = _guard_of(budget)
            taken = 0 if is_unready and not budget.keeps_unready else pods
            found[guard] = found.get(guard, 0) + taken
    return found


def _budgets_at_odds(workload: Workload, snapshot: Snapshot) -> Guard | None:
    """Return as one guard the budgets that cover the same pod, None where no pod has more than one."""
    for pod_set in workload.pod_sets:
        found = sorted(one.name for one in _budgets_of(pod_set, workload, snapshot))
        if len(found) > 1:
            return Guard(GuardKind.BUDGET, workload.key.namespace, _AND.join(found))
    return None


def _budgets_of(pod_set: PodSet, workload: Workload, snapshot: Snapshot) -> list[DisruptionBudget]:
    """Return the disruption budgets that cover the pods of a pod set, by namespace and labels."""
    metadata, namespace = pod_set.template.metadata, workload.key.namespace
    labels = (metadata.labels if metadata is not None else None) or {}
    return [one for one in snapshot.objects.budgets.values() if one.covers(namespace, labels)]


def _guard_of(budget: DisruptionBudget) -> Guard:
    """Return the guard of a PodDisruptionBudget."""
    return Guard(GuardKind.BUDGET, budget.namespace, budget.name)


def min_replicas(workload: Workload) -> int:
    """Return the floor: how many replicas of the application must stay; 1 where it is not declared."""
    declared = whole_number(workload.annotations.get(keys.MIN_REPLICAS))
    return DEFAULT_MIN_REPLICAS if declared is None else declared
