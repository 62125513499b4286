"""The snapshot that a cycle decides on: ClusterQueues, the Workloads that hold quota, reversible trials.

Theory of operation. Kueue copies its cache for every cycle. Here the snapshot is the cache's own state,
borrowed while the one task that owns it decides: nothing else can change it meanwhile. Every change that a
cycle tries (this Workload gone, that usage added) is applied in place and recorded in an undo log:

    undo log   [ overlay | reserve | evict | ... | add | remove | add ]
                └ decided in this cycle (`_firm`) ┘ └ a trial         ┘ ◀─ `rollback(mark)` undoes from here

Invariant: the state equals what it was when the cycle began plus the entries of the log, in order. Undoing is
exact because adding and removing usage are mirror images (`queues.quota.quota_tree`); the entries are undone
in reverse. `suspend` and `resume` undo and redo the whole log, so that a cycle can pause while others read
the true state. A trial costs as much as it touches, however large the cluster is, and nothing is ever copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

import msgspec

from admission.calendar.advance_reservations import ReservedCapacity
from admission.calendar.quota_windows import QuotaInForce
from admission.decisions.assignment_memo import Impasse, Needs, RememberedAssignment
from admission.placement.topology.place import Place
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.attained_service import AttainedService
from admission.snapshot.candidate_order import CandidateOrderIndex
from admission.snapshot.recent_moves import RecentMoves
from admission.snapshot.usage_overlay import UsageOverlay
from api.disruption_budget import DisruptionBudget
from api.jobs.checkpoint_annotations import CheckpointFacts, checkpoint_facts
from api.policy import KUEUE, AdmissionPolicy
from api.queueing import ClusterQueue, ResourceFlavor, ResourceGroup
from api.reasons import ConditionType, InactiveReason
from api.workload import Admission, Workload, WorkloadKey
from queues.pending.pending_queue import LocalQueueKey, PendingQueue, UsageOf
from queues.quota.quota_tree import QuotaCell, QuotaNode
from queues.quota.resources import FlavorResource, Quantities
from queues.quota.window_timeline import QuotaStep


class HeldWorkload(msgspec.Struct, eq=False, kw_only=True):
    """A Workload that holds quota: by its object, or *assumed*, decided but not yet seen in the object.

    `is_evicting` is set from the decision to evict until the object has the condition Evicted. `former` is
    the admission that the object still shows while replacements for lost nodes have been decided. `pairs` are
    the flavors and resources that it has been given, those of zero amount included. `places` are the nodes of
    its pods that were placed by topology. `leaves_by` is the deadline (Unix seconds) up to which its eviction
    waits for a checkpoint, decided or recorded in its object (`is_saving`); None where no eviction waits.
    """

    workload: Workload
    admission: Admission
    usage: Quantities
    is_assumed: bool
    reserved_at: float
    queued_at: float
    pairs: frozenset[FlavorResource]
    places: tuple[Place, ...] = ()
    is_evicting: bool = False
    former: Admission | None = None
    leaves_by: float | None = None
    is_saving: bool = False
    # The checkpoint facts, with and without aliases, and the version of the Workload they were read from.
    _facts: tuple[Workload, dict[bool, CheckpointFacts]] | None = None

    @property
    def key(self) -> WorkloadKey:
        """The Workload's key."""
        return self.workload.key

    @property
    def local_queue(self) -> LocalQueueKey:
        """The LocalQueue that it was submitted to."""
        return self.workload.key.namespace, self.workload.queue_name

    @property
    def is_evicted(self) -> bool:
        """Whether it is evicted, is about to be, or will be once it has saved a checkpoint."""
        return self.is_evicting or self.is_saving or (not self.is_assumed and self.workload.is_evicted)

    def facts(self, *, with_aliases: bool = False) -> CheckpointFacts:
        """Return what its annotations report about its checkpoints."""
        # Cached: every search asks this of every candidate, and one version always has the same answer.
        if self._facts is None or self._facts[0] is not self.workload:
            self._facts = self.workload, {}
        read = self._facts[1]
        if with_aliases not in read:
            read[with_aliases] = checkpoint_facts(self.workload, with_aliases=with_aliases)
        return read[with_aliases]

    @property
    def is_admitted(self) -> bool:
        """Whether its object has the condition Admitted, so that its Job may run."""
        return not self.is_assumed and self.workload.is_true(ConditionType.ADMITTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inactive:
    """Why a ClusterQueue admits nothing: a machine-readable reason, and a message."""

    reason: InactiveReason
    message: str


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
        return _describe(self.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueGroup:
    """A resource group of a ClusterQueue: its flavors in order, and for each the cells of its resources."""

    index: int
    resources: tuple[str, ...]
    flavors: tuple[str, ...]
    cells: tuple[Mapping[str, tuple[FlavorResource, QuotaCell]], ...]


def _nothing_ahead(_: FlavorResource) -> tuple[QuotaStep, ...]:
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
        names = tuple(flavor.name for flavor in spec.flavors)
        pairs = ([FlavorResource(name, resource) for resource in spec.covered_resources] for name in names)
        return QueueGroup(
            index=index,
            resources=spec.covered_resources,
            flavors=names,
            cells=tuple({one.resource: (one, self.node.cell(one)) for one in of_name} for of_name in pairs),
        )

    def charge(self, held: HeldWorkload) -> None:
        """Count the Workload's usage in this ClusterQueue."""
        self.held[held.key] = held
        self.rank(held)
        self.node.add(held.usage)

    def rank(self, held: HeldWorkload) -> None:
        """Put a Workload that is new or has changed at its position in the order of eviction."""
        self.eviction_order.put(
            held.key,
            priority=held.workload.priority,
            reserved_at=held.reserved_at,
            uid=held.workload.uid,
        )

    def release(self, key: WorkloadKey) -> bool:
        """Stop counting the Workload's usage. Returns whether it was counted here."""
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


# The ClusterQueue, the usage, and the places on the nodes.
_Taken = tuple[QueueState, Quantities, tuple[Place, ...]]
# The node of the quota tree, the usage, the places, and whether these were added (else removed).
_Change = tuple[QuotaNode, Quantities, tuple[Place, ...], bool]


class Snapshot:
    """Borrowed state plus an undo log. Every change made through it is undone by `rollback`."""

    __slots__ = (
        "_evicted",
        "_firm",
        "_is_suspended",
        "_overlay",
        "_standing",
        "_undo_log",
        "budgets",
        "decided",
        "flavors",
        "moves",
        "namespaces",
        "now",
        "queues",
        "topology_cache",
    )

    def __init__(
        self,
        *,
        queues: Mapping[str, QueueState],
        flavors: Mapping[str, ResourceFlavor],
        namespaces: Mapping[str, Mapping[str, str]],
        topology_cache: TopologyCache | None = None,
        budgets: Mapping[tuple[str, str], DisruptionBudget] | None = None,
        moves: RecentMoves | None = None,
        now: float = 0.0,
    ) -> None:
        """Borrow the state.

        `namespaces` holds the labels of each namespace, `topology_cache` the nodes (default: none), `budgets`
        the PodDisruptionBudgets by namespace and name, `moves` the Workloads that were moved recently. `now`
        is the instant of the decisions (Unix seconds), for rules that depend on how long a Workload has run.
        """
        self.queues = queues
        self.flavors = flavors
        self.namespaces = namespaces
        self.topology_cache = topology_cache if topology_cache is not None else TopologyCache()
        self.budgets = budgets if budgets is not None else {}
        self.moves = moves if moves is not None else RecentMoves()
        self.now = now
        self._undo_log: list[_Change | UsageOverlay] = []
        self._evicted: dict[WorkloadKey, tuple[QueueState, HeldWorkload]] = {}
        # The overlay of capacity holds, and the Workloads in `_evicted` whose removal is a part of it.
        self._overlay = UsageOverlay()
        self._standing: Collection[WorkloadKey] = ()
        self._is_suspended = False
        # How many entries of the log are decisions of this cycle; the entries above are a trial.
        self._firm = 0
        # How many times usage was reserved or a Workload evicted for the rest of the cycle.
        self.decided = 0

    @property
    def has_trial(self) -> bool:
        """Whether the state differs from what was decided in this cycle, because a trial is under way."""
        return len(self._undo_log) != self._firm

    def mark(self) -> int:
        """Return the present length of the undo log, for `rollback`."""
        return len(self._undo_log)

    def rollback(self, mark: int = 0) -> None:
        """Undo everything since `mark`; without one the cycle is over and all of it is undone."""
        # A suspended log is already undone, and must not be undone twice.
        self.resume()
        # In reverse, so that each change is undone on the very state that it made. The numbers do not depend
        # on the order, since usage is a function of the leaves.
        while len(self._undo_log) > mark:
            self._play(self._undo_log.pop(), is_undone=True)
        # With the last entry the cycle is over, and what it decided is either assumed by
        # the cache or dropped.
        if not self._undo_log:
            self._evicted.clear()
            self._overlay, self._standing = UsageOverlay(), ()
            self._firm = self.decided = 0

    def suspend(self) -> None:
        """Show the state without this cycle's changes; `resume` brings them back."""
        # A second call does nothing: callers need not know of each other.
        if not self._is_suspended:
            self._is_suspended = True
            for change in reversed(self._undo_log):
                self._play(change, is_undone=True)

    def resume(self) -> None:
        """Redo what `suspend` has undone, if anything; after a change of the state roll back instead."""
        if self._is_suspended:
            self._is_suspended = False
            for change in self._undo_log:
                self._play(change, is_undone=False)

    def _play(self, change: _Change | UsageOverlay, *, is_undone: bool) -> None:
        if isinstance(change, UsageOverlay):
            (change.negated() if is_undone else change).put_on(self.topology_cache)
            return
        node, usage, places, was_added = change
        # Undoing an addition removes, undoing a removal adds.
        is_adding = was_added is not is_undone
        if is_adding:
            node.add(usage)
        else:
            node.remove(usage)
        if places:
            self.topology_cache.use(places, sign=1 if is_adding else -1)

    def add(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Count `usage` in `queue`, and the places as taken, until rolled back."""
        queue.node.add(usage)
        if places:
            self.topology_cache.use(places, sign=1)
        # Recorded after the change: a change that raises leaves no entry in the log.
        self._undo_log.append((queue.node, usage, places, True))

    def remove(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Subtract `usage` from `queue`, and count the places as free, until rolled back."""
        queue.node.remove(usage)
        if places:
            self.topology_cache.use(places, sign=-1)
        self._undo_log.append((queue.node, usage, places, False))

    def stand(
        self, overlay: UsageOverlay, leaving: Mapping[WorkloadKey, tuple[QueueState, HeldWorkload]]
    ) -> None:
        """Apply the capacity holds for the whole cycle, as if their victims were evicted before all else."""
        self.decided += 1
        self._overlay, self._standing = overlay, leaving.keys()
        self._evicted.update(leaving)
        self._lay(overlay)
        self._firm = len(self._undo_log)

    def _lay(self, overlay: UsageOverlay) -> None:
        overlay.put_on(self.topology_cache)
        self._undo_log.append(overlay)

    def reserve(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Count `usage` and the places as taken for the rest of the cycle."""
        self.decided += 1
        self.add(queue, usage, places)
        # Everything in the log so far is decided; later entries are a trial.
        self._firm = len(self._undo_log)

    def evict(self, queue: QueueState, held: HeldWorkload) -> None:
        """Remove a Workload and its usage for the rest of the cycle; it is no longer a candidate."""
        self.decided += 1
        # By key, so that it is no candidate for any other preemptor of this cycle either.
        self._evicted[held.key] = (queue, held)
        self.remove(queue, held.usage, held.places)
        self._firm = len(self._undo_log)

    def release(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Give back usage that was reserved in this cycle, for the rest of the cycle."""
        self.decided += 1
        self.remove(queue, usage, places)
        self._firm = len(self._undo_log)

    def readmit(self, queue: QueueState, held: HeldWorkload) -> None:
        """Bring back a Workload that was evicted in this cycle. Raises KeyError where it was not."""
        self.decided += 1
        del self._evicted[held.key]
        self.add(queue, held.usage, held.places)
        self._firm = len(self._undo_log)

    def evicted_usage(self, queue: QueueState, pair: FlavorResource) -> int:
        """Return how much of `pair` the queue's Workloads hold that were evicted in this cycle."""
        return sum(held.usage.get(pair, 0) for one, held in self._evicted.values() if one is queue)

    @contextmanager
    def with_evicted(self) -> Iterator[None]:
        """Count the evicted Workloads' usage again while in the block: they still run."""
        # With a mark of its own, so that blocks may be nested.
        mark = self.mark()
        for queue, held in self._evicted.values():
            self.add(queue, held.usage, held.places)
        try:
            yield
        finally:
            self.rollback(mark)

    @contextmanager
    def before_evictions(self, expected: Iterable[_Taken], places: Iterable[Place]) -> Iterator[None]:
        """Return to the state before this cycle's evictions while in the block.

        Evicted Workloads count as running; the capacity holds (`stand`) and the `expected` usage count as
        free. Quota is restored in full, nodes only those of `places`: others must not be read in the block.
        """
        # Called for head after head: places on other nodes are skipped, and quota is added up first.
        nodes = {domain.values[-1] for place in places for domain in place.assignment.domains}
        mark = self.mark()
        self._lay(self._overlay.negated(nodes))
        gone = (
            (queue, held.usage, held.places)
            for key, (queue, held) in self._evicted.items()
            if key not in self._standing
        )
        for taken in _summed(gone, nodes):
            self.add(*taken)
        for taken in _summed(expected, nodes):
            self.remove(*taken)
        try:
            yield
        finally:
            self.rollback(mark)

    @contextmanager
    def without_usage(self, taken: Iterable[_Taken]) -> Iterator[None]:
        """Count the reserved usage as free while in the block."""
        mark = self.mark()
        for queue, usage, places in taken:
            self.remove(queue, usage, places)
        try:
            yield
        finally:
            self.rollback(mark)

    @contextmanager
    def without(self, victims: Iterable[tuple[QueueState, HeldWorkload]]) -> Iterator[None]:
        """Count the victims' usage as free while in the block."""
        mark = self.mark()
        for queue, held in victims:
            self.remove(queue, held.usage, held.places)
        try:
            yield
        finally:
            self.rollback(mark)

    @property
    def gone(self) -> frozenset[WorkloadKey]:
        """The Workloads that were evicted in this cycle, or count as gone by a capacity hold."""
        return frozenset(self._evicted)

    def leaving(self) -> Iterator[tuple[QueueState, HeldWorkload]]:
        """Yield the Workloads that are gone in this cycle, with their queues, in the order of eviction."""
        return iter(self._evicted.values())

    def is_gone(self, held: HeldWorkload) -> bool:
        """Return whether the Workload is gone in this cycle."""
        return held.key in self._evicted


def _summed(some: Iterable[_Taken], nodes: Collection[str]) -> Iterator[_Taken]:
    """Yield the total usage by queue; of the places only those on one of the nodes."""
    sums: dict[str, tuple[QueueState, dict[FlavorResource, int], list[Place]]] = {}
    for queue, usage, places in some:
        _, total, near = sums.setdefault(queue.name, (queue, {}, []))
        for pair, amount in usage.items():
            total[pair] = total.get(pair, 0) + amount
        # The last value is the hostname, however many levels an assignment has above it.
        near += (one for one in places if any(at.values[-1] in nodes for at in one.assignment.domains))
    for queue, total, near in sums.values():
        yield queue, total, tuple(near)


def _describe(node: QuotaNode) -> object:
    return node.name, node.quotas, node.weight_milli, [_describe(child) for child in node.children]
