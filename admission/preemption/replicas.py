"""How many replicas of an application a search may still take: its floor, and its PodDisruptionBudgets.

Inference is evicted replica by replica (rule `preferInference`), and an application must not be taken away
by halves that each looked harmless. So a search counts what it takes:

    spare(application) = replicas that run − those on their way out − berth.dev/min-replicas (1)
    spare(budget)      = disruptionsAllowed − those on their way out

A replica may be taken while each of these that it falls under is above zero. Who is on the way out is
subtracted from the budget though its status may count it already: for as long as it takes to end, too few
are taken rather than too many. The server has the last word (the eviction subresource); what is counted here
keeps a Workload from being evicted whose pod the server would then not let go.

The counters belong to one attempt of one search, because an attempt may be given up; what they start from
is worked out once for each picture of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.snapshot import Held, QueueState, Snapshot
from api import keys
from api.checkpoint_facts import checkpoint_facts
from api.decimals import whole_number
from api.disruption import DisruptionBudget
from api.policy import AdmissionPolicy, Aliases
from api.reasons import ConditionType
from api.workload import Workload

# Of applications by name: namespace and what `berth.dev/replica-of` says. Of budgets: namespace and name.
Guard = tuple[str, str]
DEFAULT_MIN_REPLICAS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How many replicas may be taken at the start of a search, by application and by budget."""

    applications: Mapping[Guard, int]
    budgets: Mapping[Guard, int]


@dataclass(slots=True)
class Floors:
    """The counters of one attempt of a search on a snapshot."""

    snapshot: Snapshot
    _taken: dict[Guard, int] = field(default_factory=dict)
    _standing: Standing | None = None

    def take(self, held: Held, queue: QueueState) -> bool:
        """Return whether the search may take this Workload, and count it if so.

        Who is leaving already, and whatever is no replica under a policy that prefers inference, always.
        """
        workload = held.workload
        application = workload.annotations.get(keys.REPLICA_OF)
        # Only replicas that serve are bounded; a single pod of somebody's notebook is a victim like
        # any other.
        if application is None or held.is_evicted or not is_taken_one_by_one(workload, queue.policy):
            return True
        # Once a search and not once a candidate: it walks over everybody who holds quota.
        if self._standing is None:
            self._standing = standing(self.snapshot)
        guard = (workload.key.namespace, application)
        # The application's own floor, and every budget that covers the pod: each must have one to
        # spare.
        spares = {guard: self._standing.applications.get(guard, 0)}
        for budget in budgets_of(workload, self.snapshot.budgets):
            named = (budget.namespace, budget.name)
            spares[named] = self._standing.budgets.get(named, 0)
        if any(spare <= self._taken.get(one, 0) for one, spare in spares.items()):
            return False
        # Counted when it is taken; a candidate that is refused has taken nothing.
        for one in spares:
            self._taken[one] = self._taken.get(one, 0) + 1
        return True


def is_taken_one_by_one(workload: Workload, policy: AdmissionPolicy) -> bool:
    """Return whether the Workload is a replica of inference, under a policy that prefers inference."""
    section = policy.preemption
    return (
        section is not None
        and section.rules.prefers_inference
        and keys.REPLICA_OF in workload.annotations
        and checkpoint_facts(workload, with_aliases=policy.aliases is Aliases.ARTICLES).is_inference
    )


def standing(snapshot: Snapshot) -> Standing:
    """Return how many replicas of each application, and of those under each budget, may be taken now."""
    applications: dict[Guard, int] = {}
    budgets = {(one.namespace, one.name): one.allowed for one in snapshot.budgets.values()}
    for queue in snapshot.queues.values():
        for held in queue.held.values():
            application = held.workload.annotations.get(keys.REPLICA_OF)
            if application is None:
                continue
            guard = (held.key.namespace, application)
            # The floor is the same for all of them, whoever comes first.
            applications.setdefault(guard, -min_replicas(held.workload))
            # `DisruptionsAllowed` may count it already; to subtract it once more errs on the side
            # of too few.
            if held.is_evicted or snapshot.is_gone(held):
                for budget in budgets_of(held.workload, snapshot.budgets):
                    budgets[budget.namespace, budget.name] -= 1
            elif is_serving(held):
                applications[guard] += 1
    return Standing(applications=applications, budgets=budgets)


def is_serving(held: Held) -> bool:
    """Return whether the replica runs and answers, as far as it is known."""
    ready = held.workload.conditions.get(ConditionType.PODS_READY)
    # Nothing said counts as ready: without waitForPodsReady the condition does not exist.
    return held.is_admitted and (ready is None or ready.status)


def is_ready_again(before: Workload, after: Workload) -> bool:
    """Return whether a replica serves that did not before."""
    type_ = ConditionType.PODS_READY
    return keys.REPLICA_OF in after.annotations and after.is_true(type_) and not before.is_true(type_)


def budgets_of(workload: Workload, budgets: Mapping[Guard, DisruptionBudget]) -> tuple[DisruptionBudget, ...]:
    """Return the budgets that the Workload's pods fall under."""
    metadata = workload.pod_sets[0].template.metadata if workload.pod_sets else None
    labels = (metadata.labels if metadata is not None else None) or {}
    return tuple(one for one in budgets.values() if one.covers(workload.key.namespace, labels))


def min_replicas(workload: Workload) -> int:
    """Return how many replicas of the application are to stay, whatever waits; 1 where nothing is said."""
    told = whole_number(workload.annotations.get(keys.MIN_REPLICAS))
    return DEFAULT_MIN_REPLICAS if told is None else told
