"""Frozen views of queues, cohorts, policies and the engine, for statuses, metrics and commands.

Nothing is decided here. Amounts are canonical integers; `borrowed` is what a ClusterQueue uses beyond its own
nominal quota of that flavor and resource.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from admission.cache.cache import Cache
from admission.calendar.advance_reservations import ReservedCapacity
from admission.calendar.quota_windows import QuotaInForce, window_problems
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.status.calendar_view import ReservationEntry, WindowEntry, reservation_entries, window_entries
from api.parsing.quantities import add_amounts
from api.past_usage import PastUsage
from api.policy import AdmissionPolicy, choose_policy
from api.policy_inheritance import may_be_base
from api.policy_sections import INHERITED
from api.queueing import LocalQueue
from api.reasons import InactiveReason
from api.workload import WorkloadKey
from queues.quota.fair_sharing import dominant_resource_share
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource

LocalQueueKey = tuple[str, str]

# How many ClusterQueues a sentence names; the others are counted.
_SHOWN_QUEUES = 3


class Usage(NamedTuple):
    """How much of one resource of one flavor is used, and how much of that is borrowed."""

    total: int
    borrowed: int


FlavorUsages = Mapping[str, Mapping[str, Usage]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterQueueView:
    """A ClusterQueue as its status shows it. `weighted_share` is its dominant resource share, rounded up.

    `exact_share` is the same with its fraction, infinite for a queue of weight 0 that borrows.
    `quotas_in_force` are those that quota windows have put in place of the declared ones. `reservations` are
    the advance reservations in force, each with whether it has begun. `over_quota` is the usage beyond all
    that the queue may have, as after a cut of its quota; nothing is stopped for it.
    """

    name: str
    is_active: bool
    reason: InactiveReason | None
    message: str
    active_pending: int
    parked_pending: int
    reserving: int
    admitted: int
    flavors_reservation: FlavorUsages
    flavors_usage: FlavorUsages
    weighted_share: int
    exact_share: float = 0.0
    quotas_in_force: Mapping[FlavorResource, QuotaInForce] = field(default_factory=dict)
    reservations: tuple[tuple[ReservedCapacity, bool], ...] = ()
    over_quota: Mapping[FlavorResource, int] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        """The number of pending Workloads, parked ones included."""
        return self.active_pending + self.parked_pending


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueueView:
    """A LocalQueue as its status shows it; `parked` of its `pending` Workloads wait for a change.

    With admission fair sharing, `past_usage` is what it has consumed and `fair_usage` the number that orders
    it within a ClusterQueue that asks for that; otherwise both are None.
    """

    namespace: str
    name: str
    is_active: bool
    reason: InactiveReason | None
    message: str
    pending: int
    parked: int
    reserving: int
    admitted: int
    flavors_reservation: FlavorUsages
    flavors_usage: FlavorUsages
    past_usage: PastUsage | None = None
    fair_usage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortView:
    """A Cohort as status and metrics show it.

    `above` are the cohorts above it, its parent first. `admitted` counts the Workloads of its subtree.
    Shares are as of ClusterQueues. `reserved` is what the ClusterQueues of its subtree use, also of quota
    that they do not lend. `cluster_queues` and `cohorts` count its children.
    """

    name: str
    above: tuple[str, ...]
    admitted: int
    weighted_share: int
    exact_share: float = 0.0
    cluster_queues: int = 0
    cohorts: int = 0
    subtree: Mapping[FlavorResource, int] = field(default_factory=dict)
    reserved: Mapping[FlavorResource, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """An AdmissionPolicy as its status shows it. `problem` is set if it cannot be used and is not in force.

    `inherits` are the sections that it has from its `base`.
    `cluster_queues` are those that it governs, sorted. `calendar_problems` are messages about single windows
    and reservations. `quotas_in_force` lists, by ClusterQueue, the quotas that its open windows have put in
    place of the declared ones; `windows` and `reservations` hold all entries of its calendar. `takes_away`
    has a sentence for each policy that would give its ClusterQueues sections which this one does not have.
    """

    name: str
    uid: str
    problem: str | None
    base: str = ""
    inherits: tuple[str, ...] = ()
    cluster_queues: tuple[str, ...] = ()
    calendar_problems: tuple[str, ...] = ()
    quotas_in_force: tuple[tuple[str, FlavorResource, QuotaInForce], ...] = ()
    windows: tuple[WindowEntry, ...] = ()
    reservations: tuple[ReservationEntry, ...] = ()
    takes_away: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWorkloadView:
    """A pending Workload, in a list in queue order. `queued_at` is in Unix seconds.

    `can_start` False: not as it is, whatever ends (`api.reasons.CANNOT_START`).
    """

    key: WorkloadKey
    priority: int
    local_queue: LocalQueueKey
    queued_at: float
    is_parked: bool
    can_start: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The objects whose status may have changed since the last call."""

    cluster_queues: frozenset[str] = frozenset()
    local_queues: frozenset[LocalQueueKey] = frozenset()
    cohorts: frozenset[str] = frozenset()
    policies: frozenset[str] = frozenset()
    checks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatistics:
    """Sizes of the engine's state, and counts since it was created."""

    workloads: int
    cluster_queues: int
    local_queues: int
    active_pending: int
    parked_pending: int
    reserving: int
    assumed: int
    cycles: int
    admits: int
    evicts: int


def cluster_queue_view(queue: QueueState) -> ClusterQueueView:
    """Return the ClusterQueue's status."""
    admitted = [held for held in queue.held.values() if held.is_admitted]
    pending = queue.pending.statistics()
    share = dominant_resource_share(queue.node)
    return ClusterQueueView(
        name=queue.name,
        is_active=not queue.inactive,
        reason=queue.inactive[0].reason if queue.inactive else None,
        message=inactive_message(queue),
        active_pending=pending.active,
        parked_pending=pending.parked,
        reserving=len(queue.held),
        admitted=len(admitted),
        flavors_reservation=_to_usages(_sum_usage(queue.held.values()), queue.node),
        flavors_usage=_to_usages(_sum_usage(admitted), queue.node),
        weighted_share=share.rounded(),
        exact_share=share.exact,
        quotas_in_force=queue.quotas_in_force,
        reservations=queue.reservations,
        over_quota=_over_quota(queue.node),
    )


def _over_quota(node: QuotaNode) -> dict[FlavorResource, int]:
    """Return by how much usage exceeds what the queue may have, borrowing included.

    A queue within its own quota is not over it, though others of its cohort may have taken too much.
    """
    cells = ((pair, node.cell(pair)) for pair in node.quotas)
    return {
        pair: min(-cell.available, cell.usage - cell.nominal)
        for pair, cell in cells
        if cell.available < 0 and cell.usage > cell.nominal
    }


def local_queue_view(
    cache: Cache, key: LocalQueueKey, members: Iterable[WorkloadKey]
) -> LocalQueueView | None:
    """Return the LocalQueue's status, None if it does not exist; `members` are its Workloads."""
    spec = cache.specs.local_queues.get(key)
    if spec is None:
        return None
    keys = list(members)
    queue = cache.queues.get(spec.cluster_queue)
    # Quota is held in a ClusterQueue. As in Kueue, none is shown where that is gone, though Workloads run on.
    held = [cache.held[one] for one in keys if one in cache.held] if queue is not None else []
    admitted = [one for one in held if one.is_admitted]
    waiting = [one for one in keys if queue is not None and one in queue.pending]
    reason, message = _local_queue_problem(cache, key, spec, queue)
    ledger = cache.ledger if queue is not None else None
    return LocalQueueView(
        namespace=key[0],
        name=key[1],
        is_active=reason is None,
        reason=reason,
        message=message,
        pending=len(waiting),
        parked=sum(1 for one in waiting if queue is not None and queue.pending.members.is_parked(one)),
        reserving=len(held),
        admitted=len(admitted),
        flavors_reservation=_to_usages(_sum_usage(held), queue.node if queue is not None else None),
        flavors_usage=_to_usages(_sum_usage(admitted), queue.node if queue is not None else None),
        past_usage=ledger.past_usage(key) if ledger is not None else None,
        fair_usage=cache.usage_of(key) if ledger is not None else None,
    )


def cohort_view(cache: Cache, name: str) -> CohortView | None:
    """Return the Cohort's status, None if it neither exists nor is named."""
    node = cache.hierarchy.cohorts.get(name)
    if node is None:
        return None
    held = (one for queue in node.queues() for one in cache.queues[queue.name].held.values())
    share = dominant_resource_share(node)
    reserved: Counter[FlavorResource] = Counter()
    for queue in node.queues():
        reserved.update({pair: cell.usage for pair, cell in queue.cells.items()})
    return CohortView(
        name=name,
        above=tuple(parent.name for parent in node.ancestors()),
        cluster_queues=sum(child.is_queue for child in node.children),
        cohorts=sum(not child.is_queue for child in node.children),
        admitted=sum(1 for one in held if one.is_admitted),
        weighted_share=share.rounded(),
        exact_share=share.exact,
        subtree={pair: cell.subtree for pair, cell in node.cells.items()},
        reserved=reserved,
    )


def _local_queue_problem(
    cache: Cache, key: LocalQueueKey, spec: LocalQueue, queue: QueueState | None
) -> tuple[InactiveReason | None, str]:
    unreadable = cache.specs.unreadable.get((LocalQueue, key))
    # It is not shown as active by its last readable version: no Workload enters it until it can be read.
    if unreadable is not None:
        return InactiveReason.UNKNOWN, unreadable
    if spec.is_stopped:
        return InactiveReason.STOPPED, "LocalQueue is stopped"
    if queue is None:
        return InactiveReason.CLUSTER_QUEUE_DOES_NOT_EXIST, "Can't submit new workloads to clusterQueue"
    if queue.inactive:
        return InactiveReason.CLUSTER_QUEUE_IS_INACTIVE, "Can't submit new workloads to clusterQueue"
    return None, "Can submit new workloads to localQueue"


def _to_usages(usage: Mapping[FlavorResource, int], node: QuotaNode | None) -> FlavorUsages:
    """Return usage by flavor and resource, every declared pair included. `node` None: nothing is borrowed."""
    # Declared pairs without usage are listed too, and flavors in the order of the spec, as in Kueue's status.
    quotas = node.quotas if node is not None else ()
    order = {flavor: place for place, flavor in enumerate(dict.fromkeys(pair.flavor for pair in quotas))}
    result: dict[str, dict[str, Usage]] = {}
    for pair in sorted({*usage, *quotas}, key=lambda one: (order.get(one.flavor, len(order)), one)):
        total = usage.get(pair, 0)
        # Measured by the queue's own nominal quota, not by that of its subtree.
        nominal = node.cell(pair).nominal if node is not None else total
        result.setdefault(pair.flavor, {})[pair.resource] = Usage(total, max(0, total - nominal))
    return result


def _sum_usage(held: Iterable[HeldWorkload]) -> dict[FlavorResource, int]:
    """Return what these Workloads hold in total."""
    total: dict[FlavorResource, int] = {}
    for one in held:
        add_amounts(total, one.usage)
    return total


def inactive_message(queue: QueueState) -> str:
    """Return the message of the Active condition."""
    if not queue.inactive:
        idle = "; spec.concurrentAdmissionPolicy has no effect: each is admitted once, where it fits first"
        return f"Can admit new workloads{idle if queue.spec.is_concurrent_admission else ''}"
    messages = [problem.message for problem in queue.inactive]
    # As Kueue says it: then no other reason counts.
    if queue.inactive[0].reason is InactiveReason.TERMINATING:
        return f"Can't admit new workloads; {messages[0]}"
    return f"Can't admit new workloads: {', '.join(messages)}."


def policy_view(cache: Cache, name: str) -> PolicyView | None:
    """Return the policy's status, None if it does not exist."""
    problem = cache.specs.unreadable.get((AdmissionPolicy, name)) or cache.specs.inheritance_faults.get(name)
    if problem is not None:
        return PolicyView(name=name, uid="", problem=problem)
    policy = cache.specs.policies.get(name)
    if policy is None:
        return None
    # By identity, since two policies may be equal in all but their names.
    governed = [queue for queue in cache.queues.values() if queue.policy is policy]
    return PolicyView(
        name=name,
        uid=policy.uid,
        problem=None,
        base=policy.base or "",
        inherits=_inherited(cache, policy),
        cluster_queues=tuple(sorted(queue.name for queue in governed)),
        calendar_problems=tuple(_calendar_problems(cache, policy)),
        quotas_in_force=tuple(
            (queue.name, pair, present)
            for queue in sorted(governed, key=lambda queue: queue.name)
            for pair, present in sorted(queue.quotas_in_force.items())
        ),
        windows=window_entries(cache, policy),
        reservations=reservation_entries(cache, policy),
        takes_away=tuple(_takes_away(cache, policy, governed)),
    )


def _inherited(cache: Cache, policy: AdmissionPolicy) -> tuple[str, ...]:
    """Return the sections that the policy has from its base."""
    own = cache.specs.written_policies[policy.name]
    aliases = ("aliases",) if policy.reads_aliases and not own.reads_aliases else ()
    return (*(name for name in policy.sections if name not in own.sections), *aliases)


def _takes_away(cache: Cache, policy: AdmissionPolicy, governed: Iterable[QueueState]) -> Iterator[str]:
    """Yield which sections the governed queues would have by the policy that comes next, and do not have."""
    others = [other for other in cache.specs.policies.values() if other is not policy]
    lost: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for queue in governed:
        following = choose_policy(others, queue.spec)
        missing = tuple(name for name in following.sections if name not in policy.sections)
        if missing:
            lost.setdefault((following.name, missing), []).append(queue.name)
    written = cache.specs.written_policies
    for (name, missing), queues in sorted(lost.items()):
        is_base = set(missing) <= set(INHERITED) and may_be_base(written, written[policy.name], name)
        advice = "name it as spec.base, or repeat these sections here, to keep them"
        if not is_base:
            advice = "repeat these sections here to keep them"
        yield (
            f"takes {', '.join(missing)} away from {_named(sorted(queues))}, which policy {name} would give:"
            f" {advice}"
        )


def _named(queues: list[str]) -> str:
    more = f" and {len(queues) - _SHOWN_QUEUES} more" if len(queues) > _SHOWN_QUEUES else ""
    return f"ClusterQueue {', '.join(queues[:_SHOWN_QUEUES])}{more}"


def _calendar_problems(cache: Cache, policy: AdmissionPolicy) -> Iterator[str]:
    governing = {queue.name: queue.policy for queue in cache.queues.values()}
    now = cache.schedule_plan.now
    overlaps = cache.overlaps.of(policy, now=now)
    yield from window_problems(policy, cache.specs.cluster_queues, governing, overlaps, now=now)
    yield from cache.reservations.problems.get(policy.name, ())
