"""Advance reservations: capacity kept for one LocalQueue from a start to an end.

        used
         8 ┤██████████████┐              other work: ends before the start, or leaves the amount free
         6 ┤              ┢━━━━━━━━━━┪
         4 ┤███████┐      ┃ kept     ┃   members name it in `berth.dev/reservation`; what they use counts
         0 ┼───────┴──────┺━━━━━━━━━━┹──▶ t   against it
                        start       end

A reservation does not appear in the quota tree. It is a claim in the capacity profile, begun or upcoming,
that every Workload except its members has to leave room for. So its quota is counted once, at the member that
uses it. Charging it to the tree as a Workload that does not exist was rejected: the usage in the statuses
would be wrong, and members would have to swap places with that Workload.

A reservation is in force where it can be met: by the quotas at its start and at every change of them until
its end, beside all reservations that begin before it. One that asks for more is reported in the policy's
status and reserves nothing, since a claim that never fits would block every other Workload.

A reservation of a topology domain keeps all nodes of the domain, whichever ClusterQueues have quota for them.
Beside them it keeps as much quota as its nodes can use, or as much as there is: an empty rack is of no use to
a Workload that has no quota to start there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from admission.calendar.quota_windows import Calendar, read_windows
from admission.calendar.reserved_domains import ReservedDomain, TopologyNodes, find_domain
from api.keys import RESERVATION
from api.parsing.quantities import to_text
from api.parsing.times import to_rfc3339
from api.policy import AdmissionPolicy, CapacityReservation
from api.queueing import ClusterQueue, Cohort, LocalQueue
from api.reasons import PendingReason
from api.workload import Workload, WorkloadKey
from queues.quota.hierarchy import build_hierarchy, to_quotas
from queues.quota.quota_tree import QuotaNode
from queues.quota.quota_windows import next_change_at
from queues.quota.resources import FlavorResource, Quantities

# Caps the changes of quota that are checked within one reservation.
_MOST_CHANGES = 64


class ReservationId(NamedTuple):
    """The name of the policy and the name of the reservation in it."""

    policy: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedCapacity:
    """A reservation in force: what is kept of which ClusterQueue's quota, from when to when (Unix seconds).

    `domain` is the set of nodes that it keeps as well. None means an amount of quota on any nodes.
    """

    id: ReservationId
    queue: str
    local_queue: tuple[str, str]
    usage: Quantities
    start_at: float
    end_at: float
    domain: ReservedDomain | None = None

    @property
    def holder(self) -> WorkloadKey:
        """The key of its claim in the profile; no Workload has an empty namespace."""
        return WorkloadKey("", f"reservation {self.id.policy}/{self.id.name}")

    @property
    def description(self) -> str:
        """A description of it, for the messages of Workloads that it blocks."""
        amounts = ", ".join(
            f"{to_text(pair.resource, amount)} {pair.resource} of flavor {pair.flavor}"
            for pair, amount in sorted(self.usage.items())
        )
        what = amounts if self.domain is None else f"domain {self.domain.name} ({self.domain.hosts} nodes)"
        until = to_rfc3339(self.end_at)
        return f"reservation {self.id.name} keeps {what} from {to_rfc3339(self.start_at)} until {until}"

    def is_joined_by(self, workload: Workload) -> bool:
        """Return whether the Workload names it and was submitted to its LocalQueue."""
        own = (workload.key.namespace, workload.queue_name)
        return reservation_of(workload) == self.id.name and own == self.local_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """The reservations in force, by start and name, and why others are not, by policy.

    `next_at` is when the next one begins or ends (Unix seconds), infinity when none will.
    """

    kept: tuple[ReservedCapacity, ...] = ()
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    next_at: float = inf

    def phases(self, queue: str, now: float) -> tuple[tuple[ReservedCapacity, bool], ...]:
        """Return the reservations of a ClusterQueue, each with whether it has begun."""
        return tuple((one, one.start_at <= now) for one in self.kept if one.queue == queue)

    def joined_by(self, workload: Workload) -> ReservedCapacity | None:
        """Return the reservation that the Workload may use, None where it names none in force."""
        if not self.kept or reservation_of(workload) is None:
            return None
        return next((one for one in self.kept if one.is_joined_by(workload)), None)


NO_RESERVATIONS = Reservations()


def reservation_of(workload: Workload) -> str | None:
    """Return the name of the reservation that the Workload or one of its pod templates names, else None."""
    # The Workload's own annotation takes precedence: a job's metadata is copied to both.
    own = workload.annotations.get(RESERVATION)
    if own is not None:
        return own
    for one in workload.pod_sets:
        metadata = one.template.metadata
        name = (metadata.annotations or {}).get(RESERVATION) if metadata is not None else None
        if name is not None:
            return name
    return None


# --- which are in force ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The specs that decide which reservations can be met; `policies` holds the governing one by queue."""

    queues: Mapping[str, ClusterQueue]
    cohorts: tuple[Cohort, ...]
    local_queues: Mapping[tuple[str, str], LocalQueue]
    policies: Mapping[str, AdmissionPolicy]
    nodes: TopologyNodes = field(default_factory=TopologyNodes)


def read_reservations(cluster: Cluster, listed: Iterable[AdmissionPolicy], *, now: float) -> Reservations:
    """Return the reservations in force at `now` or later, and the problems of the others by policy."""
    asked = [
        (one.start_at, policy.name, index, one, policy)
        for policy in listed
        for index, one in enumerate(policy.reservations)
        # A reservation that has ended keeps nothing and is not reported.
        if one.end_at > now
    ]
    if not asked:
        return NO_RESERVATIONS
    kept: list[ReservedCapacity] = []
    problems: dict[str, list[tuple[int, str]]] = {}
    # The earlier start is served first, ties by policy name, so that which of two is refused follows
    # from the objects alone.
    for _, _, index, one, policy in sorted(asked, key=lambda entry: entry[:3]):
        candidate = _read(f"spec.reservations[{index}]", one, policy, kept, cluster, now=now)
        if isinstance(candidate, str):
            problems.setdefault(policy.name, []).append((index, candidate))
        else:
            kept.append(candidate)
    # In the order of the policy's list, in which a user reads it.
    problem_texts = {name: tuple(text for _, text in sorted(found)) for name, found in problems.items()}
    next_at = min((at for one in kept for at in (one.start_at, one.end_at) if at > now), default=inf)
    return Reservations(kept=tuple(kept), problems=problem_texts, next_at=next_at)


def _read(
    path: str,
    one: CapacityReservation,
    policy: AdmissionPolicy,
    before: Sequence[ReservedCapacity],
    cluster: Cluster,
    *,
    now: float,
) -> ReservedCapacity | str:
    """Return what is kept beside the reservations `before`, or why nothing is."""
    problem = _misfit(path, one, policy, cluster)
    if problem is not None:
        return problem
    queue = cluster.local_queues[one.local_queue].cluster_queue
    candidate = ReservedCapacity(
        id=ReservationId(policy.name, one.name),
        queue=queue,
        local_queue=one.local_queue,
        usage={FlavorResource(*pair): amount for pair, amount in one.amounts.items()},
        start_at=one.start_at,
        end_at=one.end_at,
    )
    # The amounts of a domain are those of its nodes, so they cannot exceed what there is.
    if one.domain:
        return _of_domain(path, one, candidate, before, cluster, now=now)
    return _shortage(path, candidate, before, cluster, now=now) or candidate


def _of_domain(
    path: str,
    one: CapacityReservation,
    empty: ReservedCapacity,
    before: Sequence[ReservedCapacity],
    cluster: Cluster,
    *,
    now: float,
) -> ReservedCapacity | str:
    """Return the reservation of a domain, with as much of its nodes' resources as the quota covers."""
    what = f'{path}.domain is "{"/".join(one.domain)}"'
    domain = find_domain(one.domain, cluster.queues[empty.queue], cluster.nodes)
    if isinstance(domain, str):
        return f"{what}: {domain}; nothing is reserved"
    # Also across ClusterQueues: every queue with a flavor of these nodes shares them.
    for other in before:
        is_at_a_time = other.start_at < empty.end_at and empty.start_at < other.end_at
        if other.domain is not None and is_at_a_time and domain.overlaps(other.domain):
            return f"{what}: {other.description} (policy {other.id.policy}); nothing is reserved"
    declared = to_quotas(cluster.queues[empty.queue].resource_groups)
    # Resources without quota (pods, storage) are not in the tree, which therefore cannot keep them.
    usage = {pair: amount for pair, amount in domain.amounts.items() if pair in declared}
    # The minimum over all instants: a quota window in the middle of it may leave less.
    for _, node in _instants(empty, before, cluster, now=now):
        usage = {pair: min(amount, node.available(pair)) for pair, amount in usage.items()}
    # The nodes are kept even if the quota for some of their resources is missing.
    usage = {pair: amount for pair, amount in usage.items() if amount > 0}
    if not usage:
        lack = f"ClusterQueue {empty.queue} has no quota left for the resources of its {domain.hosts} nodes"
        return f"{what}: {lack} in that period, beside other reservations; nothing is reserved"
    return replace(empty, usage=usage, domain=domain)


def _misfit(path: str, one: CapacityReservation, policy: AdmissionPolicy, cluster: Cluster) -> str | None:
    """Return why there is no quota that could be kept, None where there is."""
    namespace, name = one.local_queue
    local_queue = cluster.local_queues.get(one.local_queue)
    if local_queue is None:
        return f'{path}.localQueue is "{name}": there is no such LocalQueue in namespace {namespace}'
    queue = local_queue.cluster_queue
    if queue not in cluster.queues:
        return f'{path}.localQueue is "{name}": its ClusterQueue {queue} does not exist'
    # Two policies may both name the LocalQueue; only the policy that governs its ClusterQueue counts.
    if cluster.policies.get(queue) != policy:
        return f'{path}.localQueue is "{name}": this policy does not govern its ClusterQueue {queue}'
    declared = to_quotas(cluster.queues[queue].resource_groups)
    for number, (flavor, resource) in enumerate(one.amounts):
        if FlavorResource(flavor, resource) not in declared:
            has = ", ".join(sorted(map(str, declared))) or "none"
            where = f"{path}.resources[{number}]"
            return f'{where} is "{flavor}/{resource}": ClusterQueue {queue} has quota for {has}'
    return None


def _shortage(
    path: str, one: ReservedCapacity, before: Sequence[ReservedCapacity], cluster: Cluster, *, now: float
) -> str | None:
    """Return when the quota is short beside the reservations before it; None where it suffices."""
    for at, node in _instants(one, before, cluster, now=now):
        for number, (pair, amount) in enumerate(one.usage.items()):
            if amount > node.available(pair):
                has = to_text(pair.resource, max(0, node.available(pair)))
                # Mentioned only where there are any: otherwise the quota itself is too small.
                beside = " beside other reservations" if _others(at, before) else ""
                return (
                    f"{path}.resources[{number}].amount is {to_text(pair.resource, amount)}: ClusterQueue "
                    f"{one.queue} can have {has} {pair.resource} of flavor {pair.flavor} at "
                    f"{to_rfc3339(at)}{beside}; nothing is reserved"
                )
    return None


def _instants(
    one: ReservedCapacity, before: Sequence[ReservedCapacity], cluster: Cluster, *, now: float
) -> Iterator[tuple[float, QuotaNode]]:
    """Yield the ClusterQueue as it is at the start (or now), and at each change of quota until the end."""
    # The reservation may have begun long ago: a shortage in the past no longer matters.
    at = max(now, one.start_at)
    windows = read_windows(cluster.queues, cluster.policies, now=now).windows
    every = [window for of_queue in windows.values() for listed in of_queue.values() for window in listed]
    # Bounded, because windows that open every few minutes make many changes in a week.
    for _ in range(_MOST_CHANGES):
        yield at, _empty_node(one.queue, at, before, cluster)
        at = next_change_at(every, at)
        if at >= one.end_at:
            return


def _empty_node(queue: str, at: float, before: Sequence[ReservedCapacity], cluster: Cluster) -> QuotaNode:
    """Return the ClusterQueue in the quota tree of that instant, used by the other reservations alone."""
    calendar: Calendar = read_windows(cluster.queues, cluster.policies, now=at)
    specs = [calendar.spec_in_force(spec) for spec in cluster.queues.values()]
    # A separate tree without any Workload's usage: promises account for running work that is in the way.
    tree = build_hierarchy(specs, cluster.cohorts)
    for other in _others(at, before):
        tree.queues[other.queue].add(other.usage)
    return tree.queues[queue]


def _others(at: float, before: Sequence[ReservedCapacity]) -> list[ReservedCapacity]:
    return [other for other in before if other.start_at <= at < other.end_at]


# --- who joins -------------------------------------------------------------------------------------------


def joining_problem(
    workload: Workload, policy: AdmissionPolicy, known: Reservations, *, now: float
) -> tuple[PendingReason, str] | None:
    """Return why a Workload that names a reservation may not start, None where it may or names none.

    `policy` governs its ClusterQueue. A Workload that asks for reserved capacity is never started silently on
    other capacity: the mistake would be noticed only when the capacity is missing.
    """
    name = reservation_of(workload)
    if name is None:
        return None
    # Looked up in the policy of its own queue: in another policy the same name is another reservation.
    wanted = next((one for one in policy.reservations if one.name == name), None)
    if wanted is None:
        by = (
            f"policy {policy.name} has no such reservation" if policy.name else "there is no such reservation"
        )
        # Most of these errors are permanent, so they are reported as misconfigured and not as waiting.
        return PendingReason.MISCONFIGURED, f'{RESERVATION} is "{name}": {by}'
    owner = "/".join(wanted.local_queue)
    if wanted.local_queue != (workload.key.namespace, workload.queue_name):
        return PendingReason.MISCONFIGURED, f'{RESERVATION} is "{name}": it is kept for LocalQueue {owner}'
    if wanted.end_at <= now:
        ended = to_rfc3339(wanted.end_at)
        return PendingReason.MISCONFIGURED, f'{RESERVATION} is "{name}": it ended at {ended}'
    if known.joined_by(workload) is None:
        message = f'{RESERVATION} is "{name}": it is not in force, see the status of policy {policy.name}'
        return PendingReason.MISCONFIGURED, message
    if wanted.start_at > now:
        starts = to_rfc3339(wanted.start_at)
        return PendingReason.WAITING_FOR_QUOTA, f"waits for reservation {name}, which starts at {starts}"
    return None


def next_turn_at(workload: Workload, policy: AdmissionPolicy, *, now: float) -> float | None:
    """Return when the reservation that the Workload names begins or ends next, None where it does not."""
    name = reservation_of(workload)
    named = (one for one in policy.reservations if one.name == name)
    # Also the start: until then the Workload waits outside the queue and has to be brought in.
    return min((at for one in named for at in (one.start_at, one.end_at) if at > now), default=None)
