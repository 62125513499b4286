"""The state of a ClusterQueue and of its quota tree, as a cycle decides on it and the cache keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from admission.calendar.advance_reservations import ReservedCapacity
from admission.calendar.quota_windows import QuotaInForce
from admission.decisions.assignment_memo import Impasse, Needs, RememberedAssignment
from admission.snapshot.attained_service import AttainedService
from admission.snapshot.candidate_order import CandidateOrderIndex
from admission.snapshot.held_workload import HeldWorkload
from api.policy import KUEUE, AdmissionPolicy
from api.queueing import ClusterQueue, ResourceGroup
from api.reasons import InactiveReason
from api.workload import WorkloadKey
from queues.pending.pending_queue import PendingQueue, UsageOf
from queues.quota.quota_tree import QuotaCell, QuotaNode
from queues.quota.resources import FlavorResource
from queues.quota.window_timeline import QuotaStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Inactive:
    """Why a ClusterQueue admits nothing: a machine-readable reason, a message, and what to do about it.

    The message is part of the ClusterQueue's condition Active, in Kueue's words where Kueue has the reason.
    """

    reason: InactiveReason
    message: str
    advice: str = ""

    @property
    def sentence(self) -> str:
        """The message with the advice."""
        return f"{self.message}; {self.advice}" if self.advice else self.message


@dataclass(slots=True, eq=False, kw_only=True)
class QueueTree:
    """A root of the quota tree and the ClusterQueues below it.

    `generation` rises whenever capacity that a flavor scan has skipped may have been freed. A scan of an
    older generation starts over.
    """

    root: QuotaNode
    generation: int
    queues: list[QueueState] = field(default_factory=list)

    def describe(self) -> object:
        """Return what the tree was built from: equal for trees of equal names, quotas and weights."""
        # Each node with its number of children, in the order of the tree, which together tell its form. Not
        # nested: a long chain of Cohorts would exceed Python's stack.
        nodes = self.root.nodes()
        return [(node.name, node.quotas, node.weight_milli, len(node.children)) for node in nodes]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroup:
    """A resource group of a ClusterQueue: its flavors in order, and for each the cells of its resources.

    `cells` has an entry for each flavor, in the same order, which maps resources to the pair and its cell in
    the quota tree.
    """

    index: int
    resources: tuple[str, ...]
    flavors: tuple[str, ...]
    cells: tuple[Mapping[str, tuple[FlavorResource, QuotaCell]], ...]


def _nothing_ahead(_: FlavorResource) -> tuple[QuotaStep, ...]:
    """Return no steps: the quota of a queue without windows never changes."""
    return ()


@dataclass(slots=True, eq=False, kw_only=True)
class QueueState:
    """A ClusterQueue: its spec, its place in the quota tree, its pending Workloads and those that hold quota.

    `inactive` are the reasons not to admit; empty means active. `policy` is the one that governs it; under
    the default all sections of a policy are off. `usage_of` returns what a LocalQueue has used in the past,
    where admission fair sharing orders this queue, else None.
    """

    spec: ClusterQueue
    node: QuotaNode
    tree: QueueTree
    name: str = field(init=False)
    pending: PendingQueue
    groups: dict[str, QueueGroup] = field(default_factory=dict)
    held: dict[WorkloadKey, HeldWorkload] = field(default_factory=dict)
    inactive: tuple[Inactive, ...] = ()
    policy: AdmissionPolicy = KUEUE
    usage_of: UsageOf | None = None
    # Quotas of `spec` that an open quota window has put in place of those of the object.
    quotas_in_force: Mapping[FlavorResource, QuotaInForce] = field(default_factory=dict)
    # Returns the upcoming steps of a quota that raise it above what is in force now.
    rises: Callable[[FlavorResource], tuple[QuotaStep, ...]] = _nothing_ahead
    # The advance reservations of its quota, each with whether it has begun.
    reservations: tuple[tuple[ReservedCapacity, bool], ...] = ()
    # Which Workloads may be preempted by which, under the least-attained-service policy.
    turns: AttainedService[HeldWorkload] | None = None
    # What searches have found for a shape (`admission.flavors.assignment_cache`). The cache lives as long as
    # this value, which is replaced when a spec changes.
    plans: dict[bytes, RememberedAssignment] = field(default_factory=dict)
    impasses: dict[bytes, Impasse] = field(default_factory=dict)
    # What a shape needs at least (`admission.flavors.feasibility`). It lives as long as this value too.
    needs: dict[bytes, Needs] = field(default_factory=dict)
    # Whether a shape fits some nodes only (`admission.flavors.hardware_needs`), for as long as this value.
    hardware_needs: dict[bytes, bool] = field(default_factory=dict)
    # Flavors on which pods are placed later: once nodes are provisioned, or in another cluster (MultiKueue).
    delayed_flavors: frozenset[str] = frozenset()
    # Whether its Workloads run in other clusters.
    is_dispatching: bool = False
    # The Workloads of `held` in Kueue's order of eviction.
    eviction_order: CandidateOrderIndex = field(default_factory=CandidateOrderIndex)

    def __post_init__(self) -> None:
        self.name = self.spec.name
        # Looked up once: searches need them thousands of times a cycle, and they last as long as the tree.
        for index, spec in enumerate(self.spec.resource_groups):
            group = self._group(index, spec)
            for resource in group.resources:
                # A resource belongs to one group; where two claim it, the first has it.
                self.groups.setdefault(resource, group)

    def _group(self, index: int, spec: ResourceGroup) -> QueueGroup:
        """Return a resource group with the cells of its flavors."""
        names = tuple(flavor.name for flavor in spec.flavors)
        pairs = ([FlavorResource(name, resource) for resource in spec.covered_resources] for name in names)
        return QueueGroup(
            index=index,
            resources=spec.covered_resources,
            flavors=names,
            cells=tuple({one.resource: (one, self.node.cell(one)) for one in of_name} for of_name in pairs),
        )

    def charge(self, held: HeldWorkload) -> None:
        """Count the Workload's usage in this ClusterQueue.

        It must not be counted here already. O(pairs · depth of the tree).
        """
        self.held[held.key] = held
        self.rank(held)
        self.node.add(held.usage)

    def rank(self, held: HeldWorkload) -> None:
        """Put a Workload that is new or has changed at its position in the order of eviction.

        To be called again when its priority or the time of its reservation has changed.
        """
        self.eviction_order.put(
            held.key,
            priority=held.workload.priority,
            reserved_at=held.reserved_at,
            uid=held.workload.uid,
        )

    def release(self, key: WorkloadKey) -> bool:
        """Stop counting the Workload's usage. Returns whether it was counted here.

        The places on nodes are given back elsewhere (`admission.cache.node_tenants`).
        """
        held = self.held.pop(key, None)
        if held is None:
            return False
        self.eviction_order.drop(key)
        self.node.remove(held.usage)
        return True

    def holders_up_to(self, priority: float) -> Iterator[HeldWorkload]:
        """Return the Workloads that hold quota here, up to this priority, in Kueue's order of eviction."""
        return map(self.held.__getitem__, self.eviction_order.up_to(priority))

    def validate(self) -> None:
        """Raise AssertionError where the order of eviction does not match the Workloads that hold quota."""
        found = list(self.holders_up_to(inf))
        assert len(found) == len(self.held), f"{self.name} ranks {len(found)} of {len(self.held)} holders"
        ranks = [(one.workload.priority, -one.reserved_at, one.workload.uid) for one in found]
        assert ranks == sorted(ranks), f"{self.name} has its holders in another order than {sorted(ranks)}"
