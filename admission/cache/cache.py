"""The cache: the cluster as the engine knows it, with specs, quota trees and the Workloads that hold quota.

Specs arrive in any order and may be missing. What follows from them (quota trees, which queues are inactive
and why) is computed when it is next needed. The usage in a tree is always the sum over the Workloads held, so
a tree can be built again at any time. Pending Workloads are kept by `admission.cache.pending_workloads`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf

from admission.backfill.schedule_plan import SchedulePlan
from admission.cache.affected_trees import AffectedTrees, affected_trees, with_trees_built_again
from admission.cache.deleted_usage import DeletedUsage
from admission.cache.inactive_reasons import problems
from admission.cache.node_tenants import NodeTenants
from admission.cache.specs import Specs
from admission.calendar.advance_reservations import (
    NO_RESERVATIONS,
    Cluster,
    Reservations,
    ReservedCapacity,
    read_reservations,
)
from admission.calendar.quota_windows import NO_WINDOWS, Calendar, read_windows, upcoming_rises
from admission.calendar.reserved_domains import ReservedDomain, TopologyNodes, find_domain
from admission.calendar.upcoming_changes import UpcomingChanges
from admission.calendar.window_overlaps import Overlaps
from admission.placement.topology.place import Place
from admission.placement.topology_cache import TopologyCache
from admission.preemption.device_price import node_device_price
from admission.snapshot.capacity_holds import CapacityHolds, Head, HoldClaims
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState, QueueTree
from admission.snapshot.recent_moves import RecentMoves
from admission.snapshot.snapshot import ReferencedObjects, Snapshot
from api import keys
from api.policy import AdmissionPolicy, choose_policy
from api.queueing import CheckRule, ClusterQueue, QueueingStrategy
from api.workload import WorkloadKey
from queues.estimates.estimator import Estimator
from queues.pending.admission_fair_sharing import UsageLedger
from queues.pending.pending_queue import LocalQueueKey, PendingQueue
from queues.quota.hierarchy import CohortHierarchy, build_hierarchy
from queues.quota.quota_tree import QuotaNode


@dataclass(slots=True, eq=False)
class Cache:
    """The specs, what follows from them, and the Workloads that hold quota. One task owns it."""

    specs: Specs = field(default_factory=Specs)
    queues: dict[str, QueueState] = field(default_factory=dict)
    held: dict[WorkloadKey, HeldWorkload] = field(default_factory=dict)
    hierarchy: CohortHierarchy = field(default_factory=CohortHierarchy)
    topology_cache: TopologyCache = field(default_factory=TopologyCache)
    moves: RecentMoves = field(default_factory=RecentMoves)
    holds: CapacityHolds = field(default_factory=CapacityHolds)
    # The ClusterQueues in which a back-off may be running; names of deleted ones go with the next look.
    backing_off: set[str] = field(default_factory=set)
    # Past usage of LocalQueues, None where admission fair sharing is not configured.
    ledger: UsageLedger | None = None
    tenants: NodeTenants = field(init=False)
    # Run times, as declared and as learned from earlier runs.
    estimator: Estimator = field(default_factory=Estimator)
    schedule_plan: SchedulePlan = field(init=False)
    # What Workloads used whose objects are gone.
    deleted_usage: DeletedUsage = field(default_factory=DeletedUsage)
    # The quotas in force by the policies' windows; read again with every change and at every boundary.
    calendar: Calendar = NO_WINDOWS
    reservations: Reservations = NO_RESERVATIONS
    # Which quota windows of each policy overlap, for its status.
    overlaps: Overlaps = field(default_factory=Overlaps)
    # The domains that reservations name, as they were when the reservations were read.
    _domains: list[ReservedDomain | str] = field(default_factory=list)
    # When a quota window or a reservation next begins or ends (Unix seconds); infinity for never.
    next_boundary_at: float = inf
    _generation: int = 0

    def __post_init__(self) -> None:
        self.tenants = NodeTenants(self.topology_cache)
        self.schedule_plan = SchedulePlan(self.topology_cache, self.estimator)

    @property
    def now(self) -> float:
        """The instant of the engine's latest call (Unix seconds)."""
        return self.schedule_plan.now

    @property
    def generation(self) -> int:
        """A number that rises whenever quota comes free, or specs change."""
        return self._generation

    def device_price(self, flavor: str, host: str) -> float:
        """Return the price of one device of the flavor per hour; 0 if none is set.

        `host` is the hostname of its node, "" if that is not known. The price of the node comes before that
        of the flavor. See `admission.preemption.device_price`.
        """
        prices = (node_device_price(node) for node in self.topology_cache.nodes.at_host(host))
        on_nodes = [price for price in prices if price is not None]
        if on_nodes:
            # Two nodes that share a hostname count as one host; the higher price hides no cost.
            return max(on_nodes)
        spec = self.specs.flavors.get(flavor)
        return (spec.cost_per_device_hour if spec is not None else None) or 0.0

    # --- specs -------------------------------------------------------------------------------------------

    def next_generation(self) -> int:
        """Return a number higher than any before, which records that capacity has changed.

        A result of a search remembers the generation of its tree, and is void once that is higher.
        """
        self._generation += 1
        return self._generation

    def refresh(self) -> set[QueueTree] | None:
        """Compute what follows from changed specs; return None if none has changed.

        Otherwise those trees are returned in which something may fit now. All trees are new, unless only
        ClusterQueues have changed: then trees without any of these are kept.

        Builds windows, topologies, reservations, trees and the schedule plan again, in this order, because
        each depends on those before it. O(everything that is specified or held), so it runs once for a burst
        of changes.
        """
        if not self.specs.is_stale:
            return None
        changes, before = self.specs.take_changes(), self.queues
        was_by_calendar = self._is_by_calendar
        policies = {
            # Policies come first, since windows, reservations and queues below depend on them.
            name: choose_policy(self.specs.policies.values(), spec, default=self.specs.default_policy)
            for name, spec in self.specs.cluster_queues.items()
        }
        now = self.now
        # Windows come before the trees, which are built from the quotas in force.
        self.calendar = read_windows(self.specs.cluster_queues, policies, now=now, before=self.calendar)
        has_other_flavors = self.topology_cache.set_flavors(self.specs.flavors, self.specs.topologies)
        if has_other_flavors:
            # New flavors start with empty counters of node usage, so held places are counted again.
            for held in self.held.values():
                self.topology_cache.usage.use(held.places, sign=1)
        self.reservations = read_reservations(
            Cluster(
                queues=self.specs.cluster_queues,
                cohorts=tuple(self.specs.cohorts.values()),
                local_queues=self.specs.local_queues,
                policies=policies,
                nodes=self._topology_nodes(),
            ),
            self.specs.policies.values(),
            now=now,
        )
        self._domains = self._find_domains()
        self.next_boundary_at = min(self.calendar.next_at, self.reservations.next_at)
        affected = None
        # What the calendar puts in force depends on time as well.
        if changes.are_queues_only and not (has_other_flavors or was_by_calendar or self._is_by_calendar):
            affected = affected_trees(changes.queues, self.specs, self.hierarchy)
        if affected is not None:
            self.hierarchy = with_trees_built_again(self.hierarchy, affected, self.specs)
        else:
            self.hierarchy = self._build_hierarchy()
        self._rebuild_queues(policies, affected)
        self.schedule_plan.upcoming = UpcomingChanges(calendar=self.calendar, reservations=self.reservations)
        # Last, since claims are built from the new queues and from what the calendar holds for them.
        self.schedule_plan.set_queues(self.queues, self.held.values())
        # Nodes belong to no tree: Workloads that wait for those of a reserved domain may be in any tree.
        if changes.concern_all or _reserved_domains(before) != _reserved_domains(self.queues):
            return {queue.tree for queue in self.queues.values()}
        return self._changed_trees(before)

    def _changed_trees(self, before: Mapping[str, QueueState]) -> set[QueueTree]:
        """Return the trees of queues that differ from before, in themselves or in their tree."""
        # Compared once per pair of trees and not per queue: a description covers a thousand queues.
        unchanged: dict[tuple[int, int], bool] = {}
        changed = set()
        for name, queue in self.queues.items():
            old = before.get(name)
            if old is queue:
                # It was kept with its tree.
                continue
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
                # The description holds quotas and limits as declared, without usage.
                unchanged[pair] = old.tree.describe() == queue.tree.describe()
            if not unchanged[pair]:
                changed.add(queue.tree)
        return changed

    def _topology_nodes(self) -> TopologyNodes:
        """Return the nodes and flavors that reservations of domains refer to."""
        return TopologyNodes(topology_cache=self.topology_cache, flavors=self.specs.flavors)

    def note_nodes(self) -> None:
        """Record that nodes have changed, which may change the domains that are reserved.

        Without reservations of domains this costs next to nothing.
        """
        # If a refresh is due anyway, it finds the domains.
        if not self.specs.is_stale and self._find_domains() != self._domains:
            self.specs.invalidate()

    def _find_domains(self) -> list[ReservedDomain | str]:
        """Return the domains that reservations name, as they are now, or the reason why one is not found."""
        found = []
        for policy in self.specs.policies.values():
            for one in policy.reservations:
                owner = self.specs.local_queues.get(one.local_queue) if one.domain else None
                spec = self.specs.cluster_queues.get(owner.cluster_queue) if owner is not None else None
                if spec is not None:
                    found.append(find_domain(one.domain, spec, self._topology_nodes()))
        return found

    def _build_hierarchy(self) -> CohortHierarchy:
        """Return new quota trees, with the quotas that windows have put in force."""
        specs = (self.calendar.spec_in_force(spec) for spec in self.specs.cluster_queues.values())
        return build_hierarchy(specs, self.specs.cohorts.values())

    @property
    def _is_by_calendar(self) -> bool:
        """Whether quotas in force follow from windows or reservations."""
        return bool(self.calendar.windows or self.reservations.kept)

    def _rebuild_queues(
        self, policies: Mapping[str, AdmissionPolicy], affected: AffectedTrees | None
    ) -> None:
        """Build all queues and trees, or the affected ones, and charge the Workloads held to them."""
        # By root node: queues with the same root share a tree.
        trees: dict[QuotaNode, QueueTree] = {}
        queues = {}
        for name, declared in sorted(self.specs.cluster_queues.items()):
            if affected is not None and name not in affected.queues:
                queues[name] = self.queues[name]
                continue
            spec = self.calendar.spec_in_force(declared)
            node = self.hierarchy.queues[name]
            tree = trees.get(node.root)
            if tree is None:
                tree = trees[node.root] = QueueTree(root=node.root, generation=self.next_generation())
            # The queue state is new each time, but its pending Workloads stay, parked or not.
            known = self.queues.get(name)
            pending = known.pending if known is not None else PendingQueue(name, backing_off=self.backing_off)
            pending.strategy = spec.queueing_strategy
            queue = QueueState(spec=spec, node=node, tree=tree, pending=pending)
            queue.policy = policies[name]
            if name in self.calendar.windows:
                queue.rises = partial(upcoming_rises, self.calendar, name)
            queue.quotas_in_force = self.calendar.in_force.get(name, {})
            queue.reservations = self.reservations.phases(name, self.now)
            if queue.policy.backfill_rules is not None:
                # Only backfill lets another Workload pass the head, and it moves no promise. So the head need
                # not block the queue, not even under StrictFIFO.
                pending.strategy = QueueingStrategy.BEST_EFFORT_FIFO
            queue.inactive = tuple(problems(spec, self.specs, self.hierarchy))
            if self.ledger is not None and spec.is_admission_fair_sharing:
                queue.usage_of = self.usage_of
            queue.pending.share_by(queue.usage_of)
            queue.is_dispatching = self._is_dispatching(spec)
            queue.delayed_flavors = frozenset(self._delayed_flavors(spec))
            tree.queues.append(queue)
            queues[name] = queue
        self.queues = queues
        # Usage is not carried over from the former trees but summed up again.
        for held in self.held.values():
            if affected is None or held.admission.cluster_queue in affected.queues:
                self._charge(held)

    def _delayed_flavors(self, spec: ClusterQueue) -> Iterator[str]:
        """Yield the flavors whose nodes a check provides: by a ProvisioningRequest, or in another cluster."""
        flavors = [flavor.name for group in spec.resource_groups for flavor in group.flavors]
        # MultiKueue provides the nodes of all flavors; a provisioning check only of those it applies to.
        if self._is_dispatching(spec):
            yield from flavors
        for rule in spec.checks:
            if self._controller_of(rule) == keys.PROVISIONING_CONTROLLER:
                yield from rule.on_flavors or flavors

    def _is_dispatching(self, spec: ClusterQueue) -> bool:
        """Return whether a check of the ClusterQueue sends its Workloads to other clusters."""
        return any(self._controller_of(rule) == keys.MULTIKUEUE_CONTROLLER for rule in spec.checks)

    def _controller_of(self, rule: CheckRule) -> str:
        """Return the controller of a check, "" where the check does not exist."""
        check = self.specs.checks.get(rule.name)
        return check.controller_name if check is not None else ""

    def usage_of(self, local_queue: LocalQueueKey) -> float:
        """Return the decayed past usage of the LocalQueue, divided by its weight; a missing one weighs 1.

        Source: Kueue, pkg/util/admissionfairsharing, ResolveLQWeight.
        """
        if self.ledger is None:
            return 0.0
        spec = self.specs.local_queues.get(local_queue)
        return self.ledger.usage(local_queue, spec.fair_weight_milli if spec is not None else 1000)

    def local_queue_resources(self) -> dict[LocalQueueKey, tuple[str, ...]]:
        """Return the resources of the LocalQueues whose ClusterQueue exists, sorted by key.

        All of them have a past usage, also where it does not order the ClusterQueue, as in Kueue.
        """
        queues = self.queues
        return {
            key: tuple(queues[spec.cluster_queue].groups)
            for key, spec in sorted(self.specs.local_queues.items())
            if spec.cluster_queue in queues
        }

    def rebuild_time(self) -> None:
        """Build the schedule plan's profile again: a cycle that failed may have left claims in it."""
        if self.schedule_plan.is_on:
            self.schedule_plan.rebuild(self.held.values())

    # --- held quota ---------------------------------------------------------------------------------------

    def hold(self, held: HeldWorkload) -> QueueState | None:
        """Count the Workload's usage. Return its ClusterQueue, None if that does not exist (yet).

        The places are counted as taken as well, and the schedule plan gets a claim until the expected end.
        """
        # It counts as held even if its ClusterQueue does not exist yet.
        self.held[held.key] = held
        self.tenants.occupy(held)
        self.schedule_plan.hold(held)
        return self._charge(held)

    def move(self, held: HeldWorkload, places: tuple[Place, ...]) -> None:
        """Let the Workload hold these places instead of those it had."""
        # The old places are given back first, since the new ones may overlap with them.
        self.tenants.vacate(held)
        held.places = places
        self.tenants.occupy(held)
        self.schedule_plan.hold(held)

    def release(self, key: WorkloadKey) -> QueueState | None:
        """Stop counting the Workload's usage. Return the ClusterQueue whose quota came free, if any.

        Raises KeyError for a Workload that holds nothing. None also where the ClusterQueue no longer exists.
        """
        held = self.held.pop(key)
        self.tenants.vacate(held)
        self.schedule_plan.release(key)
        queue = self.queues.get(held.admission.cluster_queue)
        if queue is None or not queue.release(key):
            return None
        # The new generation tells parked searches of this tree that capacity has changed.
        queue.tree.generation = self.next_generation()
        return queue

    def _charge(self, held: HeldWorkload) -> QueueState | None:
        """Count the usage in the Workload's ClusterQueue, if that exists."""
        queue = self.queues.get(held.admission.cluster_queue)
        if queue is not None:
            queue.charge(held)
        return queue

    def claims(self, heads: Collection[Head]) -> HoldClaims:
        """Return the capacity that is kept from these heads for other Workloads."""
        return self.holds.against(heads, self.queues, self.held, self.topology_cache)

    def snapshot(self, *, now: float = 0.0) -> Snapshot:
        """Return the snapshot to decide on at `now`; it works on this state until its `rollback`.

        Nothing is copied: roll it back before anything else changes the state.
        """
        return Snapshot(
            queues=self.queues,
            objects=ReferencedObjects(
                flavors=self.specs.flavors,
                namespaces=self.specs.namespaces,
                budgets=self.specs.budgets,
            ),
            topology_cache=self.topology_cache,
            moves=self.moves,
            now=now,
        )

    def validate(self) -> None:
        """Raise AssertionError where the usage in a tree is not the sum over the Workloads held.

        Computes everything again from the specs and from what is held, O(both); for tests.
        """
        # Built from the specs alone, so that no error in the running counts enters the expectation.
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
        self.topology_cache.usage.validate(place for held in self.held.values() for place in held.places)
        self.schedule_plan.validate(self.held)


def _reserved_domains(queues: Mapping[str, QueueState]) -> list[tuple[ReservedCapacity, bool]]:
    """Return the reservations of whole domains, each with whether it has begun."""
    phases = (phase for queue in queues.values() for phase in queue.reservations)
    return [phase for phase in phases if phase[0].domain is not None]


def _check_usage(node: QuotaNode, expected: QuotaNode) -> None:
    """Raise AssertionError where the usage of a node is not as expected."""
    # The pairs of both sides count: usage of a resource that is declared nowhere is counted too.
    for pair in {*node.cells, *node.undeclared, *expected.undeclared}:
        got, want = node.cell(pair).usage, expected.cell(pair).usage
        assert got == want, f"{node.name} counts {got} of {pair} as used, its Workloads hold {want}"
