"""Trees to try: the quota trees whose heads the next cycles have to try, and what wakes parked Workloads.

A change only marks a tree, as *unsettled* (its heads are to be tried) or as *woken* (inadmissible Workloads
in it may become active again). Woken trees are worked off before the next cycle, so that a burst of events
costs one pass over each tree and not one per event.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable

from admission.cache.cache import Cache
from admission.cache.touched_statuses import TouchedStatuses
from admission.cache.workload_changed import WorkloadChanged
from admission.flavors.feasibility import may_have_quota, may_have_room, moves_others, never_preempts
from admission.preemption.replicas import may_free_others
from admission.snapshot.queue_state import QueueState, QueueTree
from api.selectors import matches_selector
from api.workload import Workload
from queues.pending.pending_queue import Pending


class TreesToTry:
    """The trees that something has changed in since their heads were last tried."""

    def __init__(self, cache: Cache, touched: TouchedStatuses) -> None:
        # Trees whose heads have not been tried since something changed, those marked first coming first.
        self._unsettled: OrderedDict[QueueTree, None] = OrderedDict()
        # Trees where something may fit that did not before, to be woken before the next cycle.
        self._woken: set[QueueTree] = set()
        # Those of them in which a Workload has given its quota back.
        self._freed: set[QueueTree] = set()
        # Trees that were built again: every parked Workload is tried, to learn what it fails at now.
        self._renewed: set[QueueTree] = set()
        # Trees where a head was refused only for places that heads of other trees reserved in that
        # cycle. Each is woken alone, once no other tree is to be tried: two of them at once could block
        # each other for ever.
        self._displaced: OrderedDict[QueueTree, None] = OrderedDict()
        # Trees in which a parked Workload may wait for places on nodes, and not only for quota.
        self._waiting_for_places: set[QueueTree] = set()
        # By waiting ClusterQueue: when a Workload that a policy spares for now may be evicted.
        self._wake_times: dict[str, float] = {}
        # The trees with a queue of each flavor.
        self._by_flavor: dict[str, list[QueueTree]] = {}
        self._cache = cache
        self._touched = touched

    # --- marks -------------------------------------------------------------------------------------------

    def settle_again(self, tree: QueueTree) -> None:
        """Have the heads of the tree tried again."""
        self._unsettled[tree] = None

    def note_displaced(self, tree: QueueTree) -> None:
        """Record that a head of the tree lost its places to what heads of other trees reserve for a cycle."""
        self._displaced[tree] = None

    def note_waits_for_places(self, tree: QueueTree) -> None:
        """Record that a Workload of the tree was put back which places on nodes may help."""
        self._waiting_for_places.add(tree)

    def wake(self, cluster_queue: str, *, is_freed: bool = False) -> None:
        """Wake the tree of a ClusterQueue; nothing happens where that does not exist.

        Marks only: the Workloads are looked at by the next `wake_due`. `is_freed`: a Workload of the tree has
        given its quota back.
        """
        queue = self._cache.queues.get(cluster_queue)
        if queue is not None:
            self._woken.add(queue.tree)
            if is_freed:
                self._freed.add(queue.tree)

    def wake_all(self) -> None:
        """Wake every tree."""
        self._woken |= {queue.tree for queue in self._cache.queues.values()}

    def wake_flavors(self, flavors: Collection[str]) -> None:
        """Wake the trees with a queue of one of these flavors: room has come free on nodes they share.

        Not a tree whose Workloads all lack quota, which no node gives them. O(trees of these flavors).
        """
        for flavor in flavors:
            for tree in self._by_flavor.get(flavor, ()):
                if tree in self._waiting_for_places:
                    self._woken.add(tree)

    def wake_at(self, cluster_queue: str, at: float) -> None:
        """Try the ClusterQueue's tree again at `at` (Unix seconds), unless an earlier time is set."""
        # The earliest time wins, since all Workloads of the tree are looked at then.
        self._wake_times[cluster_queue] = min(at, self._wake_times.get(cluster_queue, at))

    def note_replicas(self, change: WorkloadChanged) -> None:
        """Wake the tree of a running Workload if more replicas may be taken from it than before."""
        before, after = change.before, change.after
        if before is not None and after.admission is not None and may_free_others(before, after):
            self.wake(after.admission.cluster_queue)

    def replace(self, changed: set[QueueTree]) -> None:
        """Take over the marks to trees that were built again; something may fit in the `changed` ones.

        Call it right after the trees were built again, with the result of `Cache.refresh`.
        """
        queues = self._cache.queues
        # By name, since the trees that were to be woken have been replaced.
        names = {queue.name for tree in self._woken for queue in tree.queues}
        self._renewed = set(changed)
        self._freed.clear()
        self._woken = changed | {queues[name].tree for name in names if name in queues}
        # It is not known which trees a change left alone, so each is tried once.
        self._unsettled = OrderedDict.fromkeys(queue.tree for queue in queues.values())
        self._displaced.clear()
        # What their Workloads wait for is known again once each tree has been woken.
        self._waiting_for_places = set(self._unsettled)
        self._by_flavor = _trees_by_flavor(queues.values())

    # --- before a cycle ----------------------------------------------------------------------------------

    def next_wake_at(self) -> float | None:
        """Return when time alone next wakes a Workload (Unix seconds), by a back-off or `wake_at`."""
        # One look at the heap of each queue that has back-offs; there is no timer per Workload.
        ends = [queue.pending.parked_alone.next_retry_at() for queue in self._backing_off()]
        return min((end for end in (*ends, *self._wake_times.values()) if end is not None), default=None)

    def has_heads(self, tree: QueueTree | None = None) -> bool:
        """Return whether a head is to be tried, in `tree` if that is given."""
        if tree is not None:
            return tree in self._unsettled and _has_head(tree)
        while self._unsettled:
            first = next(iter(self._unsettled))
            if _has_head(first):
                return True
            # Looked at once, though this is asked several times between two cycles: whatever gives the tree
            # a head marks it again.
            del self._unsettled[first]
            for queue in first.queues:
                # Without heads the freed capacity stays free, as if it had always been.
                queue.pending.may_start_more = False
        return False

    def queues_with_heads(self) -> int:
        """Return in how many ClusterQueues a head is to be tried."""
        return sum(1 for tree in self._unsettled for queue in tree.queues if _is_to_try(queue))

    def pop_heads(self, most: int) -> list[tuple[QueueState, Pending]]:
        """Pop the heads of the trees that were marked first: whole trees, until there are `most` heads.

        At most one head of each ClusterQueue, in the order of their names.

        Each popped Workload has to be admitted or put back by the caller. More than `most` heads where the
        last tree has several.
        """
        heads: list[tuple[QueueState, Pending]] = []
        while self._unsettled and len(heads) < most:
            # The tree that was marked first, so that none is passed over, however many there are.
            # It is tried again only if something changes in it.
            tree, _ = self._unsettled.popitem(last=False)
            # Whole trees, even beyond the limit: the heads of one tree compete and must be compared.
            for queue in tree.queues:
                # An inactive queue keeps its Workloads, but they are not tried.
                pending = None if queue.inactive else queue.pending.pop()
                if pending is not None:
                    heads.append((queue, pending))
        # Ties must not depend on the order in which the trees were built.
        heads.sort(key=lambda head: head[0].spec.name)
        return heads

    def wake_displaced(self) -> None:
        """Wake one tree with displaced heads, where no other tree is to be tried."""
        if self._displaced and not self._woken and not self.has_heads():
            first, _ = self._displaced.popitem(last=False)
            self._woken.add(first)

    def wake_due(self) -> None:
        """Wake what may fit now or has finished its back-off. Changed specs have taken effect before.

        Parked Workloads that certainly do not fit stay parked (`may_enter`, `is_hopeless`), so freed capacity
        that is too small for them costs no search.
        """
        now = self._cache.now
        # A list, since entries are deleted on the way.
        for name in [name for name, at in self._wake_times.items() if at <= now]:
            del self._wake_times[name]
            self.wake(name)
        # Sorted, since the order of a set differs from run to run and that of the trees tried must not.
        for tree in sorted(self._woken, key=lambda tree: (tree.root.is_queue, tree.root.name)):
            self._unsettled[tree] = None
            self._wake_tree(tree)
        self._woken.clear()
        self._freed.clear()
        self._renewed.clear()
        # In all trees, woken or not: a back-off ends by the clock alone.
        for queue in self._backing_off():
            if queue.pending.release_due(now=now):
                self._unsettled[queue.tree] = None
                self._touched.cluster_queues.add(queue.name)

    def _wake_tree(self, tree: QueueTree) -> None:
        # What is tried now shows again what it waits for.
        waits_for_places = False
        for queue in tree.queues:
            # In a tree built again every Workload is tried: what it failed at may not exist any more.
            is_hopeless = None if tree in self._renewed else self._hopeless_in(queue)
            entrance, pending = _Entrance(self._cache, queue), queue.pending
            # What else wakes the tree while its queues fill what has come free ends nothing: nodes that
            # other trees free wake it between any two cycles.
            pending.may_start_more |= tree in self._freed
            if pending.wake(now=self._cache.now, may_enter=entrance, is_hopeless=is_hopeless):
                self._touched.cluster_queues.add(queue.name)
            # Those that stay parked as hopeless were asked; what others wait for is as it was.
            waits_for_places |= is_hopeless is not None and is_hopeless.lacks_places
            waits_for_places |= bool(pending.parked_alone) and tree in self._waiting_for_places
        if waits_for_places:
            self._waiting_for_places.add(tree)
        else:
            self._waiting_for_places.discard(tree)

    def _backing_off(self) -> list[QueueState]:
        """Return the ClusterQueues with Workloads that back off, by name."""
        found = []
        # Few of thousands have any, and this is asked before every cycle.
        for name in sorted(self._cache.backing_off):
            queue = self._cache.queues.get(name)
            if queue is not None and queue.pending.parked_alone.has_ends:
                found.append(queue)
            else:
                self._cache.backing_off.discard(name)
        return found

    def _hopeless_in(self, queue: QueueState) -> _Hopeless | None:
        """Return a cheap test for parked Workloads that cannot start now; None if there is none.

        A Workload that has no room may get some by evictions, or be promised some for later; for those the
        test never says that it is hopeless. Where only quota counts, scheduling costs no more than the test
        (`admission.flavors.assignment_cache`), so there is none.
        """
        # The test pays only where the answer depends on nodes; see above.
        if not never_preempts(queue) or not self._cache.topology_cache.has_flavors:
            return None
        return _Hopeless(self._cache, queue)


class _Hopeless:
    """Whether a parked Workload of a queue certainly cannot start now.

    `lacks_places`: one that was hopeless has quota, and no room on nodes.
    """

    __slots__ = ("_cache", "_queue", "_snapshot", "lacks_places")

    def __init__(self, cache: Cache, queue: QueueState) -> None:
        self.lacks_places = False
        self._cache = cache
        self._queue = queue
        self._snapshot = cache.snapshot()

    def __call__(self, pending: Pending) -> bool:
        queue = self._queue
        if self._cache.schedule_plan.promises.may_promise(pending, queue):
            return False
        if not may_have_quota(self._snapshot, queue, pending):
            return True
        # A Workload that others may be moved for can start on nodes that are full now.
        if moves_others(queue) or may_have_room(self._snapshot, queue, pending):
            return False
        self.lacks_places = True
        return True


class _Entrance:
    """Whether a parked Workload of a queue may become active again.

    Its namespace must match, its promised start must have come, and the Workloads it waits for must have
    left or there must be room elsewhere.
    """

    __slots__ = ("_cache", "_queue")

    def __init__(self, cache: Cache, queue: QueueState) -> None:
        self._cache = cache
        self._queue = queue

    def __call__(self, workload: Workload) -> bool:
        # A Workload with a promised start is woken when that is due.
        schedule_plan = self._cache.schedule_plan
        if schedule_plan.promises.waits_for_its_time(workload, self._queue, now=schedule_plan.now):
            return False
        if self._cache.holds.is_awaiting(workload.key, self._cache.held) and not self._has_room(workload):
            # Its capacity is held for it. Trying it at every event would cost a search for places each time.
            return False
        labels = self._cache.specs.namespaces.get(workload.key.namespace)
        return matches_selector(self._queue.spec.namespace_selector, labels)

    def _has_room(self, workload: Workload) -> bool:
        """Return whether there may be room elsewhere, so that no eviction is needed for it."""
        pending = self._queue.pending.members.get(workload.key)
        return pending is not None and may_have_room(self._cache.snapshot(), self._queue, pending)


def _has_head(tree: QueueTree) -> bool:
    """Return whether an active queue of the tree has a Workload to try."""
    return any(_is_to_try(queue) for queue in tree.queues)


def _is_to_try(queue: QueueState) -> bool:
    return not queue.inactive and queue.pending.has_head()


def _trees_by_flavor(queues: Iterable[QueueState]) -> dict[str, list[QueueTree]]:
    """Return for each flavor the trees with a queue of it."""
    # Dictionaries as ordered sets, so that a tree is in each list once.
    found: defaultdict[str, dict[QueueTree, None]] = defaultdict(dict)
    for queue in queues:
        for group in queue.groups.values():
            for name in group.flavors:
                found[name][queue.tree] = None
    return {name: list(trees) for name, trees in found.items()}
