"""The picture that a cycle decides on: ClusterQueues, who holds their quota, trials that leave no trace.

Kueue copies its cache for every cycle. Here the picture is the cache's own state, borrowed while the one task
that owns it decides: nothing else can change it meanwhile. What a cycle tries (this Workload gone, that usage
added) is noted in a journal and taken back, which is exact because adding and removing usage are mirror
images (`queues.quota.quota_tree`). A trial costs what it touches, however large the cluster is.
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

    `is_evicting` is set from the decision to evict until the object says so (then Evicted does). `former` is
    the admission that the object still shows while other nodes were decided for lost ones. `pairs` are
    the flavors and resources that it has been given, those of zero amount too. `places` are where its pods
    are, as far as they were placed by topology. `leaves_by` is until when an eviction of it waits for its
    checkpoint, None where none does: decided, or said by its object (`is_saving`).
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
    # What was read of which version, with aliases and without.
    _facts: tuple[Workload, dict[bool, CheckpointFacts]] | None = None

    @property
    def key(self) -> WorkloadKey:
        """The Workload's key."""
        return self.workload.key

    @property
    def local_queue(self) -> LocalQueueKey:
        """The LocalQueue that it came by."""
        return self.workload.key.namespace, self.workload.queue_name

    @property
    def is_evicted(self) -> bool:
        """Whether it has been told to stop, is about to be, or will be once it has saved a checkpoint."""
        return self.is_evicting or self.is_saving or (not self.is_assumed and self.workload.is_evicted)

    def facts(self, *, with_aliases: bool = False) -> CheckpointFacts:
        """Return what it says of its checkpoints."""
        # Every search asks it of everybody, and an object says the same until there is another version.
        if self._facts is None or self._facts[0] is not self.workload:
            self._facts = self.workload, {}
        read = self._facts[1]
        if with_aliases not in read:
            read[with_aliases] = checkpoint_facts(self.workload, with_aliases=with_aliases)
        return read[with_aliases]

    @property
    def is_admitted(self) -> bool:
        """Whether its Job may run, as far as its object shows."""
        return not self.is_assumed and self.workload.is_true(ConditionType.ADMITTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inactive:
    """Why a ClusterQueue admits nothing: a word for machines, a sentence for people."""

    reason: InactiveReason
    message: str


@dataclass(slots=True, eq=False, kw_only=True)
class QueueTree:
    """A root of the quota tree and the ClusterQueues below it.

    `generation` rises whenever capacity that a flavor scan has passed over may have come free: it outdates
    the scan.
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
    """A ClusterQueue: its spec, its place in the quota tree, who holds its quota and who waits.

    `inactive` are the reasons not to admit, none: active. `policy` governs it; without one its sections are
    all off. `usage_of` is what a LocalQueue has used in the past, where that decides who goes first here
    (admission fair sharing).
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
    # Quotas of `spec` that a window has put in place of those of the object.
    quotas_in_force: Mapping[FlavorResource, QuotaInForce] = field(default_factory=dict)
    # When the calendar will give it more than is in force now.
    rises: Callable[[FlavorResource], tuple[QuotaStep, ...]] = _nothing_ahead
    # Advance reservations of its quota, and which have begun.
    reservations: tuple[tuple[ReservedCapacity, bool], ...] = ()
    # Who gives way to whom, where equals take turns.
    turns: AttainedService[HeldWorkload] | None = None
    # What searches have found for a shape (`admission.flavors.assignment_cache`). They go with this value
    # when a spec changes.
    plans: dict[bytes, RememberedAssignment] = field(default_factory=dict)
    impasses: dict[bytes, Impasse] = field(default_factory=dict)
    # What a shape needs at least (`admission.flavors.feasibility`). They go with this value as plans do.
    needs: dict[bytes, Needs] = field(default_factory=dict)
    # Flavors on which pods are given their places later: once nodes are provisioned, or in another cluster.
    delayed_flavors: frozenset[str] = frozenset()
    # Whether its Workloads run in other clusters.
    is_dispatching: bool = False
    # Who holds quota here, as `held` says.
    eviction_order: CandidateOrderIndex = field(default_factory=CandidateOrderIndex)

    def __post_init__(self) -> None:
        self.name = self.spec.name
        # The cells are looked up once here. The search asks for them thousands of times a cycle,
        # and they stay the same objects until the tree is built anew.
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
        """Count the Workload's usage as used here."""
        self.held[held.key] = held
        self.rank(held)
        self.node.add(held.usage)

    def rank(self, held: HeldWorkload) -> None:
        """Put a Workload where it belongs among those that hold quota here: it is new, or has changed."""
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
        """Return who holds quota here at no higher priority, in the order in which Kueue evicts."""
        return map(self.held.__getitem__, self.eviction_order.up_to(priority))

    def validate(self) -> None:
        """Raise AssertionError where those who hold quota do not stand in order."""
        found = list(self.holders_up_to(inf))
        assert len(found) == len(self.held), f"{self.name} ranks {len(found)} of {len(self.held)} holders"
        ranks = [(one.workload.priority, -one.reserved_at, one.workload.uid) for one in found]
        assert ranks == sorted(ranks), f"{self.name} has its holders in another order than {sorted(ranks)}"


# Of which queue, what of it, and on which nodes.
_Taken = tuple[QueueState, Quantities, tuple[Place, ...]]
# Whose usage, what of it, on which nodes; and whether it was added, else removed.
_Change = tuple[QuotaNode, Quantities, tuple[Place, ...], bool]


class Snapshot:
    """Borrowed state plus a journal. Every change made through it is undone by `rollback`."""

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
        """Borrow the state; `namespaces` are the labels of each, `topology_cache` the nodes (default: none),
        `budgets` the PodDisruptionBudgets by namespace and name, `moves` the Workloads moved lately.

        `now` is the instant of deciding, for what depends on how long somebody has run.
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
        # What stands on it from the begin, and who of those taken away is a part of that.
        self._overlay = UsageOverlay()
        self._standing: Collection[WorkloadKey] = ()
        self._is_suspended = False
        # So many changes of the journal are decisions of this cycle, those above a trial.
        self._firm = 0
        # How many times something was reserved or evicted for the rest of the cycle.
        self.decided = 0

    @property
    def has_trial(self) -> bool:
        """Whether the picture is another than what has been decided, as `decided` counts it, amounts to."""
        return len(self._undo_log) != self._firm

    def mark(self) -> int:
        """Return the present point of the journal, for `rollback`."""
        return len(self._undo_log)

    def rollback(self, mark: int = 0) -> None:
        """Undo everything since `mark`."""
        # In case of a pause: a journal that is not played must not be undone.
        self.resume()
        # In reverse: usage is a function of the leaves, so order would not matter to the numbers,
        # but each change is undone on the very state that it made.
        while len(self._undo_log) > mark:
            self._play(self._undo_log.pop(), is_undone=True)
        # With the journal's last entry the cycle is over, and what it decided is either assumed by
        # the cache or forgotten.
        if not self._undo_log:
            self._evicted.clear()
            self._overlay, self._standing = UsageOverlay(), ()
            self._firm = self.decided = 0

    def suspend(self) -> None:
        """Show the state as it is without any trial; `resume` brings the trials back."""
        # Twice in a row is once: callers need not know of each other.
        if not self._is_suspended:
            self._is_suspended = True
            for change in reversed(self._undo_log):
                self._play(change, is_undone=True)

    # What has changed the state meanwhile interrupts the cycle (`Cycle.interrupt`), which rolls back instead.
    def resume(self) -> None:
        """Go on where `suspend` was called, if it was. Nothing may have changed the state in between."""
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
        """Count `usage` as used in `queue`, and the places as taken, from here on."""
        queue.node.add(usage)
        if places:
            self.topology_cache.use(places, sign=1)
        # After it has been done: a change that raises leaves nothing in the journal.
        self._undo_log.append((queue.node, usage, places, True))

    def remove(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Count `usage` as free in `queue`, and the places as free, from here on."""
        queue.node.remove(usage)
        if places:
            self.topology_cache.use(places, sign=-1)
        self._undo_log.append((queue.node, usage, places, False))

    def stand(
        self, overlay: UsageOverlay, leaving: Mapping[WorkloadKey, tuple[QueueState, HeldWorkload]]
    ) -> None:
        """Let this stand for the whole cycle: what holds amount to, and who counts as gone by that.

        As if these had been evicted, and the rest reserved, before anything else is decided.
        """
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
        # Everything up to here is decided; whatever comes above is a trial.
        self._firm = len(self._undo_log)

    def evict(self, queue: QueueState, held: HeldWorkload) -> None:
        """Take a Workload away for the rest of the cycle, usage and all: it is no candidate any more."""
        self.decided += 1
        # By key: it is no candidate for anybody else in this cycle, whoever asks.
        self._evicted[held.key] = (queue, held)
        self.remove(queue, held.usage, held.places)
        self._firm = len(self._undo_log)

    def release(self, queue: QueueState, usage: Quantities, places: tuple[Place, ...] = ()) -> None:
        """Count what was reserved as free for the rest of the cycle."""
        self.decided += 1
        self.remove(queue, usage, places)
        self._firm = len(self._undo_log)

    def readmit(self, queue: QueueState, held: HeldWorkload) -> None:
        """Bring a Workload back that was taken away."""
        self.decided += 1
        del self._evicted[held.key]
        self.add(queue, held.usage, held.places)
        self._firm = len(self._undo_log)

    def evicted_usage(self, queue: QueueState, pair: FlavorResource) -> int:
        """Return what the queue's Workloads hold of `pair` that were taken away in this cycle."""
        return sum(held.usage.get(pair, 0) for one, held in self._evicted.values() if one is queue)

    @contextmanager
    def with_evicted(self) -> Iterator[None]:
        """Count the usage of those taken away as used again while in the block: they still run."""
        # A mark of its own, so that blocks may stand within one another.
        mark = self.mark()
        for queue, held in self._evicted.values():
            self.add(queue, held.usage, held.places)
        try:
            yield
        finally:
            self.rollback(mark)

    @contextmanager
    def before_evictions(self, expected: Iterable[_Taken], places: Iterable[Place]) -> Iterator[None]:
        """Count those taken away as still there, and as free what stands (`stand`) and is `expected` beside
        that, while in the block.

        Of quota all of it, of nodes those of `places` alone: others are not to be looked at in the block.
        """
        # Asked for head after head, beside dozens that leave: their places are elsewhere, and their
        # quota is one sum.
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
        """Count what was reserved as free while in the block."""
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
        """Who was taken away in this cycle."""
        return frozenset(self._evicted)

    def leaving(self) -> Iterator[tuple[QueueState, HeldWorkload]]:
        """Yield who was taken away in this cycle, and of which queue, in the order in which they were."""
        return iter(self._evicted.values())

    def is_gone(self, held: HeldWorkload) -> bool:
        """Return whether the Workload was taken away in this cycle."""
        return held.key in self._evicted


def _summed(some: Iterable[_Taken], nodes: Collection[str]) -> Iterator[_Taken]:
    """Yield what is taken of each queue, in all; of places those that lie on one of the nodes."""
    sums: dict[str, tuple[QueueState, dict[FlavorResource, int], list[Place]]] = {}
    for queue, usage, places in some:
        _, total, near = sums.setdefault(queue.name, (queue, {}, []))
        for pair, amount in usage.items():
            total[pair] = total.get(pair, 0) + amount
        # The last value is the hostname, however many levels an assignment names above it.
        near += (one for one in places if any(at.values[-1] in nodes for at in one.assignment.domains))
    for queue, total, near in sums.values():
        yield queue, total, tuple(near)


def _describe(node: QuotaNode) -> object:
    return node.name, node.quotas, node.weight_milli, [_describe(child) for child in node.children]
