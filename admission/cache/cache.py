"""The cluster as the engine knows it: specs, quota trees, and the Workloads that hold quota.

Specs come in any order and may be missing; what follows from them (trees, who is active and why not) is
worked out when it is next needed. The usage in the trees is always the sum over the Workloads held, so a
tree can be built anew at any time. Who waits is the engine's affair (`admission.engine.engine`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf

from admission.backfill.schedule_plan import SchedulePlan
from admission.cache.inactive_reasons import problems
from admission.cache.specs import Specs
from admission.calendar.advance_reservations import (
    NO_RESERVATIONS,
    Cluster,
    Reservations,
    ReservedCapacity,
    read_reservations,
)
from admission.calendar.quota_windows import NO_WINDOWS, Calendar, read_windows, rises_ahead
from admission.calendar.reserved_domains import ReservedDomain, TopologyNodes, find_domain
from admission.calendar.upcoming_changes import UpcomingChanges
from admission.calendar.window_overlaps import Overlaps
from admission.placement.topology.node_health import hosts_of
from admission.placement.topology.place import Place
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.capacity_holds import CapacityHolds, Head, HoldClaims
from admission.snapshot.recent_moves import RecentMoves
from admission.snapshot.snapshot import HeldWorkload, QueueState, QueueTree, Snapshot
from api import keys
from api.policy import AdmissionPolicy, choose_policy
from api.queueing import CheckRule, ClusterQueue, QueueingStrategy
from api.workload import WorkloadKey
from queues.estimates.estimator import Estimator
from queues.pending.admission_fair_sharing import UsageLedger
from queues.pending.pending_queue import LocalQueueKey, PendingQueue
from queues.quota.hierarchy import Hierarchy, build_hierarchy
from queues.quota.quota_tree import QuotaNode


@dataclass(slots=True, eq=False)
class Cache(Specs):
    """All known specs, and what follows from them. One task owns it."""

    queues: dict[str, QueueState] = field(default_factory=dict)
    held: dict[WorkloadKey, HeldWorkload] = field(default_factory=dict)
    hierarchy: Hierarchy = field(default_factory=Hierarchy)
    topology_cache: TopologyCache = field(default_factory=TopologyCache)
    moves: RecentMoves = field(default_factory=RecentMoves)
    holds: CapacityHolds = field(default_factory=CapacityHolds)
    # Past usage of LocalQueues, None where admission fair sharing is not configured.
    ledger: UsageLedger | None = None
    # Who has pods on a host, as far as their assignment names hosts.
    tenants: dict[str, dict[WorkloadKey, None]] = field(default_factory=dict)
    schedule_plan: SchedulePlan = field(init=False)
    # Which quotas are in force by the policies' windows; read anew with every change and at every boundary.
    calendar: Calendar = NO_WINDOWS
    reservations: Reservations = NO_RESERVATIONS
    # Which quota windows of each policy overlap, for its status.
    overlaps: Overlaps = field(default_factory=Overlaps)
    # The domains that reservations name, as they were when those were read.
    _domains: list[ReservedDomain | str] = field(default_factory=list)
    # When a quota window or a reservation begins or ends next, infinity for never.
    next_boundary_at: float = inf
    _generation: int = 0

    def __post_init__(self) -> None:
        self.schedule_plan = SchedulePlan(self.topology_cache, Estimator())

    # --- specs -------------------------------------------------------------------------------------------

    def next_generation(self) -> int:
        """Return a number higher than any before: capacity changed."""
        self._generation += 1
        return self._generation

    def refresh(self) -> set[QueueTree] | None:
        """Work out what follows from changed specs; None where none has changed.

        Returns the trees in which something may fit now. All trees are new ones then.
        """
        if not self.is_stale:
            return None
        self.is_stale = False
        wakes_all, self._wakes_all = self._wakes_all, False
        before = self.queues
        policies = {
            # Worked out first: windows, reservations and queues below all hang on who is governed by what.
            name: choose_policy(self.policies.values(), spec, default=self.default_policy)
            for name, spec in self.cluster_queues.items()
        }
        now = self.schedule_plan.now
        # Before the trees are built, since those are built of the quotas that windows leave in force.
        self.calendar = read_windows(self.cluster_queues, policies, now=now, before=self.calendar)
        if self.topology_cache.set_flavors(self.flavors, self.topologies):
            # New flavors mean empty counters of the fleet; who holds places is counted in again.
            for held in self.held.values():
                self.topology_cache.use(held.places, sign=1)
        self.reservations = read_reservations(
            Cluster(
                queues=self.cluster_queues,
                cohorts=tuple(self.cohorts.values()),
                local_queues=self.local_queues,
                policies=policies,
                ground=self._ground(),
            ),
            self.policies.values(),
            now=now,
        )
        self._domains = self._find_domains()
        self.next_boundary_at = min(self.calendar.next_at, self.reservations.next_at)
        self.hierarchy = self._build_hierarchy()
        self._rebuild_queues(policies)
        self.schedule_plan.ahead = UpcomingChanges(calendar=self.calendar, reservations=self.reservations)
        # Last: the keeper's claims are made of the new queues and of what is ahead of them.
        self.schedule_plan.set_queues(self.queues, self.held.values())
        # Nodes belong to no tree: who waits for those of a domain may be in any.
        if wakes_all or _reserved_domains(before) != _reserved_domains(self.queues):
            return {queue.tree for queue in self.queues.values()}
        return self._changed_trees(before)

    def _changed_trees(self, before: Mapping[str, QueueState]) -> set[QueueTree]:
        """Return the trees of queues that differ from what they were, by themselves or by their tree."""
        # Trees compared once a pair, not once a queue: a tree of a thousand queues is described twice.
        unchanged: dict[tuple[int, int], bool] = {}
        changed = set()
        for name, queue in self.queues.items():
            old = before.get(name)
            if old is None or (old.spec, old.inactive, old.reservations) != (
                queue.spec,
                queue.inactive,
                queue.reservations,
            ):
                # The queue itself has changed, whatever its tree looks like.
                changed.add(queue.tree)
                continue
            pair = (id(old.tree), id(queue.tree))
            if pair not in unchanged:
                # Quotas and borrowing as they are declared: the usage is no part of it.
                unchanged[pair] = old.tree.describe() == queue.tree.describe()
            if not unchanged[pair]:
                changed.add(queue.tree)
        return changed

    def _ground(self) -> TopologyNodes:
        return TopologyNodes(topology_cache=self.topology_cache, flavors=self.flavors)

    def note_nodes(self) -> bool:
        """Note that nodes came, went or changed. Returns whether that changes what reservations keep."""
        # A refresh is due anyhow, and finds the domains then.
        if self.is_stale or self._find_domains() == self._domains:
            return False
        self.is_stale = True
        return True

    def _find_domains(self) -> list[ReservedDomain | str]:
        """Return the domains that reservations name, as they are now, or why they are not there."""
        found = []
        for policy in self.policies.values():
            for one in policy.reservations:
                owner = self.local_queues.get(one.local_queue) if one.domain else None
                spec = self.cluster_queues.get(owner.cluster_queue) if owner is not None else None
                if spec is not None:
                    found.append(find_domain(one.domain, spec, self._ground()))
        return found

    def _build_hierarchy(self) -> Hierarchy:
        specs = (self.calendar.spec_in_force(spec) for spec in self.cluster_queues.values())
        return build_hierarchy(specs, self.cohorts.values())

    def _rebuild_queues(self, policies: Mapping[str, AdmissionPolicy]) -> None:
        # By root node: queues that share a root share a tree, whoever was seen first.
        trees: dict[QuotaNode, QueueTree] = {}
        queues = {}
        for name, declared in sorted(self.cluster_queues.items()):
            spec = self.calendar.spec_in_force(declared)
            node = self.hierarchy.queues[name]
            tree = trees.get(node.root)
            if tree is None:
                tree = trees[node.root] = QueueTree(root=node.root, generation=self.next_generation())
            # The queue object is new each time, but who waits in it stays, parked or not.
            known = self.queues.get(name)
            pending = known.pending if known is not None else PendingQueue(name)
            pending.strategy = spec.queueing_strategy
            queue = QueueState(spec=spec, node=node, tree=tree, pending=pending)
            queue.policy = policies[name]
            if name in self.calendar.windows:
                queue.rises = partial(rises_ahead, self.calendar, name)
            queue.quotas_in_force = self.calendar.in_force.get(name, {})
            queue.reservations = self.reservations.phases(name, self.schedule_plan.now)
            if queue.policy.backfill_rules is not None:
                # Nobody passes the head but by backfill, which moves no promise: so the head need not block.
                pending.strategy = QueueingStrategy.BEST_EFFORT_FIFO
            queue.inactive = tuple(problems(spec, self, self.hierarchy))
            if self.ledger is not None and spec.is_admission_fair_sharing:
                queue.usage_of = self.usage_of
            queue.pending.share_by(queue.usage_of)
            queue.is_dispatching = self._is_dispatching(spec)
            queue.delayed_flavors = frozenset(self._delayed_flavors(spec))
            tree.queues.append(queue)
            queues[name] = queue
        self.queues = queues
        # Usage is not carried over from the former trees but summed up again from who holds it.
        for held in self.held.values():
            self._charge(held)

    def _delayed_flavors(self, spec: ClusterQueue) -> Iterator[str]:
        """Return the flavors whose checks provide the nodes: a ProvisioningRequest, another cluster."""
        flavors = [flavor.name for group in spec.resource_groups for flavor in group.flavors]
        # Another cluster gives the nodes of all flavors; the rules below are about single ones.
        if self._is_dispatching(spec):
            yield from flavors
        for rule in spec.checks:
            if self._controller_of(rule) == keys.PROVISIONING_CONTROLLER:
                yield from rule.on_flavors or flavors

    def _is_dispatching(self, spec: ClusterQueue) -> bool:
        return any(self._controller_of(rule) == keys.MULTIKUEUE_CONTROLLER for rule in spec.checks)

    def _controller_of(self, rule: CheckRule) -> str:
        check = self.checks.get(rule.name)
        return check.controller_name if check is not None else ""

    def usage_of(self, local_queue: LocalQueueKey) -> float:
        """Return what the LocalQueue has used in the past, by its weight; one that is missing has weight 1.

        Source: Kueue, pkg/util/admissionfairsharing, ResolveLQWeight.
        """
        if self.ledger is None:
            return 0.0
        spec = self.local_queues.get(local_queue)
        return self.ledger.usage(local_queue, spec.fair_weight_milli if spec is not None else 1000)

    def sharing_local_queues(self) -> list[LocalQueueKey]:
        """Return the LocalQueues whose past usage decides who goes first in their ClusterQueue."""
        queues = self.queues
        return [
            key
            for key, spec in sorted(self.local_queues.items())
            if spec.cluster_queue in queues and queues[spec.cluster_queue].usage_of is not None
        ]

    def rebuild_time(self) -> None:
        """Let the timekeeper know anew who holds quota: a cycle that failed may have left claims behind."""
        if self.schedule_plan.is_on:
            self.schedule_plan.rebuild(self.held.values())

    # --- who holds quota ---------------------------------------------------------------------------------

    def hold(self, held: HeldWorkload) -> QueueState | None:
        """Count the Workload's usage. Returns its ClusterQueue, None where that does not exist (yet)."""
        # In the table first: it counts as held though its queue may be yet to come.
        self.held[held.key] = held
        self._occupy(held)
        self.schedule_plan.hold(held)
        return self._charge(held)

    def move(self, held: HeldWorkload, places: tuple[Place, ...]) -> None:
        """Let the Workload take these places and not those it had."""
        # Out of the old places before it is put into the new: they may overlap.
        self._vacate(held)
        held.places = places
        self._occupy(held)
        self.schedule_plan.hold(held)

    def _occupy(self, held: HeldWorkload) -> None:
        self.topology_cache.use(held.places, sign=1)
        for place in held.places:
            for host in hosts_of(place.assignment):
                self.tenants.setdefault(host, {})[held.key] = None

    def _vacate(self, held: HeldWorkload) -> None:
        self.topology_cache.use(held.places, sign=-1)
        for place in held.places:
            for host in hosts_of(place.assignment):
                of_host = self.tenants.get(host, {})
                of_host.pop(held.key, None)
                # No empty entries, as hosts come and go in a cluster that scales.
                if not of_host:
                    self.tenants.pop(host, None)

    def release(self, key: WorkloadKey) -> QueueState | None:
        """Stop counting the Workload's usage. Returns the ClusterQueue whose quota came free, if any."""
        held = self.held.pop(key)
        self._vacate(held)
        self.schedule_plan.release(key)
        queue = self.queues.get(held.admission.cluster_queue)
        if queue is None or not queue.release(key):
            return None
        # A new number tells parked searches of this tree that capacity has changed.
        queue.tree.generation = self.next_generation()
        return queue

    def _charge(self, held: HeldWorkload) -> QueueState | None:
        queue = self.queues.get(held.admission.cluster_queue)
        if queue is not None:
            queue.charge(held)
        return queue

    def claims(self, heads: Collection[Head]) -> HoldClaims:
        """Return what is kept for others from these heads."""
        return self.holds.against(heads, self.queues, self.held, self.topology_cache)

    def snapshot(self, *, now: float = 0.0) -> Snapshot:
        """Return the picture to decide on at `now`; it borrows this state until its `rollback`."""
        return Snapshot(
            queues=self.queues,
            flavors=self.flavors,
            namespaces=self.namespaces,
            topology_cache=self.topology_cache,
            budgets=self.budgets,
            moves=self.moves,
            now=now,
        )

    def validate(self) -> None:
        """Raise AssertionError where the usage in a tree is not the sum over the Workloads held."""
        # Built anew from the specs alone, so that nothing of the running books leaks into what is expected.
        fresh = self._build_hierarchy()
        for held in self.held.values():
            node = fresh.queues.get(held.admission.cluster_queue)
            if node is not None:
                node.add(held.usage)
        for name, queue in self.queues.items():
            queue.validate()
            _check_usage(queue.node, fresh.queues[name])
            for key, held in queue.held.items():
                assert self.held.get(key) is held, f"{key} holds quota of {name} but is not known to"
        for name, cohort in self.hierarchy.cohorts.items():
            _check_usage(cohort, fresh.cohorts[name])
        self.topology_cache.validate(place for held in self.held.values() for place in held.places)
        self.schedule_plan.validate(self.held)


def _reserved_domains(queues: Mapping[str, QueueState]) -> list[tuple[ReservedCapacity, bool]]:
    """Return the reservations of domains, and whether each has begun."""
    phases = (phase for queue in queues.values() for phase in queue.reservations)
    return [phase for phase in phases if phase[0].domain is not None]


def _check_usage(node: QuotaNode, expected: QuotaNode) -> None:
    # Both sides' pairs: usage of a resource that is declared nowhere is counted, too.
    for pair in {*node.cells, *node.undeclared, *expected.undeclared}:
        got, want = node.cell(pair).usage, expected.cell(pair).usage
        assert got == want, f"{node.name} counts {got} of {pair} as used, its Workloads hold {want}"
