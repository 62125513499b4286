"""The nodes on which room for a gang is cheapest: which Workloads to evict, node by node.

Theory of operation. A pod needs its amount on one node. So what counts is which Workloads share a node, and
not only which of them lose least:

    node a   x x x x          a pod that takes a whole node:   x loses 4 × 1, y and z lose 2 + 3
    node b   y y z z          so it goes to node a, though y alone would lose less than all of x

The choice is a weighted covering problem, which is NP-hard, so both of its steps are greedy:

    1 nodes     each pod in turn takes the node that costs least at that moment; a victim named for an earlier
                pod costs nothing more, since a gang on four nodes frees all four when one is needed
    2 victims   within a node, a cheap set that covers the lacking amount is sought in two orders, by loss and
                by loss per amount; victims that turn out not to be needed are left out again

The offers of the nodes are in a heap. Invariant: `offers` holds the present offer of each node. An
entry of the heap that differs from it is outdated and skipped, so a new offer is pushed without a
search for the old one.

Each pod takes one slot of a node and each eviction happens once, so the search ends. It costs one offer for
each node, and for each pod offers for its node and for the other nodes of its victims.

Where all pods must share a domain (a rack, say), each domain that could hold them is searched by itself, as
long as its victims cost no more than the cheapest answers so far. No answer takes more replicas of an
application than may be evicted (`admission.preemption.replicas`). An answer is a proposal: it ignores quota
and slices, so the caller tries it on the snapshot (`admission.preemption.least_loss`).
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from admission.placement.topology.flavor_topology import Amounts
from admission.placement.topology.request import NoPlacement, PlacementRequest
from admission.preemption.candidate_pools import Pools
from admission.preemption.preemption_request import (
    PreemptionRequest,
    may_evict_from,
    satisfies_any,
    uses,
)
from admission.preemption.replicas import Floors, Guard
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.parsing.quantities import add_amounts
from api.workload import WorkloadKey
from queues.steps import Steps

# The search pauses after this many nodes or candidates; each takes ten to fifty microseconds.
_AT_ONCE = 100
# Caps the domains where pods have several flavors: those of other flavors are placed again for each domain.
_MOST_OF_SEVERAL = 16
# A leaf of a flavor's topology.
_Node = tuple[str, int]
# How grave an eviction is, compared before its loss: whether it is of the own queue, and its priority.
_Severity = tuple[bool, float]
# A resource, the amount that a pod takes of it, and the free amount by leaf.
_Want = tuple[str, int, Sequence[int]]
_NO_VICTIM: _Severity = (False, -inf)
_NOTHING_LOST = _NO_VICTIM, 0.0
_ANY_COST: tuple[_Severity, float] = (True, inf), inf


class _Resident(NamedTuple):
    """What a candidate holds of one node, and the guards over it. Ordered by how grave its eviction is."""

    severity: _Severity
    loss: float
    uid: str
    key: WorkloadKey
    amounts: Mapping[str, int]
    guards: Mapping[Guard, int]


class _Offer(NamedTuple):
    """The cost of room for one more pod on a node, and the victims that make it."""

    severity: _Severity
    loss: float
    victims: tuple[_Resident, ...]


class _Residents(NamedTuple):
    """The candidates by each node on which they hold something, in order of their evictions' gravity.

    `spares` is how much may be taken under each guard.
    """

    of_node: Mapping[_Node, Sequence[_Resident]]
    nodes_of: Mapping[WorkloadKey, Sequence[_Node]]
    spares: Mapping[Guard, int]


def cheapest_covers(
    snapshot: Snapshot, need: PreemptionRequest, pools: Pools, *, most: int
) -> Steps[list[frozenset[WorkloadKey]]]:
    """Return sets of Workloads whose eviction makes room for the pods, the cheapest first, at most `most`.

    Empty where no set of candidates is enough, or where the pods have room without evictions.

    Quota, budgets of other requests and the rules of Kueue's search are not checked here: the caller runs
    that search again, restricted to each set. One step for each region.
    """
    if not need.placing:
        return []
    residents = yield from _residents(snapshot, need, pools)
    if not residents.of_node:
        return []
    # The cheapest answers so far, the cheapest first; of equal costs the first domain by name.
    found: list[tuple[_Severity, float, frozenset[WorkloadKey]]] = []
    has_several = any(request.flavor != need.placing[0].flavor for request in need.placing)
    for region in _regions(snapshot, need.placing[0])[: _MOST_OF_SEVERAL if has_several else None]:
        yield
        most_cost = found[-1][:2] if len(found) == most else _ANY_COST
        cover = _Cover(snapshot, residents, most_cost)
        if not (yield from cover.hold(need.placing, region)):
            continue
        if not cover.gone:
            # The pods have places already, so what is short is quota, which this search ignores.
            return []
        insort(found, (*cover.cost, frozenset(cover.gone)), key=lambda one: one[:2])
        del found[most:]
    return [keys for *_, keys in found]


def may_make_room(snapshot: Snapshot, need: PreemptionRequest, leaving: Iterable[HeldWorkload]) -> bool:
    """Return False only where the pods would have no room even with all of these gone.

    Counted node by node, each request by itself: domains and quota are ignored.

    A necessary condition, much cheaper than a search for places: O(nodes of `leaving` + nodes of the flavor).
    """
    flavors = {request.flavor for request in need.placing}
    given: dict[_Node, Amounts] = {}
    for held in leaving:
        for node, amounts in _holdings(snapshot, held, flavors).items():
            _put(given, node, amounts)
    return all(_may_hold(snapshot, request, given) for request in need.placing)


def _may_hold(
    snapshot: Snapshot, request: PlacementRequest, given: Mapping[_Node, Mapping[str, int]]
) -> bool:
    """Return False only where this request's pods would have no room with the `given` amounts freed."""
    search = snapshot.topology_cache.search(request.flavor)
    plan = search.plan(request)
    # Nothing is known of a request that this topology cannot plan, so it must not be ruled out here.
    if isinstance(plan, NoPlacement):
        return True
    # Both counts exclude the nodes that the pods must not use.
    now, empty = search.counts(request, plan).pods, search.counts(request, plan, is_empty=True).pods
    wanted = [(one, amount, search.site.free(one)) for one, amount in request.per_pod.items() if amount > 0]
    pods = sum(now[leaf] for leaf in search.site.tree.at_level[-1])
    for (flavor, leaf), amounts in given.items():
        if flavor == request.flavor:
            # A freed node holds no more pods than when it is empty, whatever was freed.
            rooms = ((free[leaf] + amounts.get(one, 0)) // amount for one, amount, free in wanted)
            pods += max(0, min(empty[leaf], *rooms) - now[leaf])
    return pods >= request.count


@dataclass(slots=True)
class _Cover:
    """The Workloads to evict for all pods in one region, computed pod by pod.

    `cost` is that of the evictions in `gone`. It never falls, so the search ends once it exceeds `most_cost`.
    """

    snapshot: Snapshot
    residents: _Residents
    most_cost: tuple[_Severity, float]
    cost: tuple[_Severity, float] = _NOTHING_LOST
    gone: dict[WorkloadKey, _Resident] = field(default_factory=dict)
    # The amounts of the pods that have got their node.
    _taken: dict[_Node, dict[str, int]] = field(default_factory=dict)
    # How many replicas the victims take under each guard.
    _unguarded: Counter[Guard] = field(default_factory=Counter)

    def hold(self, requests: Sequence[PlacementRequest], region: int | None) -> Steps[bool]:
        """Make room for all pods in the region; return whether there is enough.

        `region` is a domain of the first request's flavor; None: anywhere.

        Requests are served in order, and each sees what the ones before it have taken. On False the cover is
        of no use, and what it has gathered is discarded with it.
        """
        for request in requests:
            within = region if request.flavor == requests[0].flavor else None
            if not (yield from self._hold(request, within)):
                return False
        return True

    def _hold(self, request: PlacementRequest, region: int | None) -> Steps[bool]:
        """Make room for the pods of one request, pod by pod; return whether there is enough.

        `gone` and `_taken` grow with each pod that gets a node. They are of no use after False.
        """
        left = yield from self._room_when_empty(request, region)
        site = self.snapshot.topology_cache.topology(request.flavor)
        # A resource that is not requested is never lacking, however overcommitted the node is.
        asked = ((resource, amount) for resource, amount in request.per_pod.items() if amount > 0)
        wanted = [(resource, amount, site.free(resource)) for resource, amount in asked]
        # Each node's present offer. An entry of the heap that differs from it dates from before an earlier
        # pod took the node, or evicted a Workload there.
        offers: dict[_Node, _Offer] = {}
        heap: list[tuple[_Severity, float, _Node]] = []

        def offer_again(node: _Node) -> None:
            offer = self._offer(node, wanted) if left[node] else None
            if offer is None:
                offers.pop(node, None)
            else:
                offers[node] = offer
                heapq.heappush(heap, (offer.severity, offer.loss, node))

        for number, node in enumerate(left):
            if number % _AT_ONCE == _AT_ONCE - 1:
                yield
            offer_again(node)
        for _ in range(request.count):
            # The cheapest valid offer. An outdated entry is dropped, because the node's present offer has an
            # entry of its own, unless the node has no offer left.
            while heap:
                severity, loss, node = heapq.heappop(heap)
                offer = offers.get(node)
                if offer is None or (offer.severity, offer.loss) != (severity, loss):
                    continue
                if self._may_go(offer.victims):
                    break
                # An earlier pod took the last replica that may be evicted: offer the node without it.
                offer_again(node)
            else:
                return False
            # The pod gets this node: take its amounts there, and evict the victims of the offer.
            left[node] -= 1
            add_amounts(self._taken.setdefault(node, {}), request.per_pod)
            for one in offer.victims:
                self.gone[one.key] = one
                self._unguarded.update(one.guards)
            self.cost = _cost(self.gone.values())
            if self.cost > self.most_cost:
                return False
            # The victims leave other nodes as well, where there is more room now.
            moved = [other for one in offer.victims for other in self.residents.nodes_of[one.key]]
            for other in dict.fromkeys((node, *moved)):
                if other in left:
                    offer_again(other)
        return True

    def _room_when_empty(self, request: PlacementRequest, region: int | None) -> Steps[dict[_Node, int]]:
        """Return how many pods each node can hold when empty, for nodes with room or with candidates."""
        search = self.snapshot.topology_cache.search(request.flavor)
        plan = search.plan(request)
        if isinstance(plan, NoPlacement):
            return {}
        yield from search.preparing(request)
        # Both counts exclude the nodes that the pods must not use. A node with neither room nor candidates
        # cannot take a pod.
        now, empty = search.counts(request, plan).pods, search.counts(request, plan, is_empty=True).pods
        tree = search.site.tree
        leaves = tree.at_level[-1] if region is None else tree.leaves_below(region)
        return {
            (request.flavor, leaf): empty[leaf]
            for leaf in leaves
            if empty[leaf] and (now[leaf] or (request.flavor, leaf) in self.residents.of_node)
        }

    def _offer(self, node: _Node, wanted: Sequence[_Want]) -> _Offer | None:
        """Return the cost of room for one more pod on the node; None where there can be none."""
        leaf, taken = node[1], self._taken.get(node)
        lacking = {}
        for resource, amount, free in wanted:
            lack = amount - free[leaf]
            if taken is not None:
                lack += taken.get(resource, 0)
            if lack > 0:
                lacking[resource] = lack
        if not lacking:
            return _Offer(*_NOTHING_LOST, ())
        # Residents that are evicted for earlier pods reduce the lack for free. Of the others only those whose
        # guards allow their eviction can be victims.
        staying = []
        for one in self.residents.of_node.get(node, ()):
            if one.key not in self.gone:
                if not one.guards or self._may_go((one,)):
                    staying.append(one)
                continue
            for resource in lacking:
                lacking[resource] -= one.amounts.get(resource, 0)
        if self.gone:
            lacking = {resource: lack for resource, lack in lacking.items() if lack > 0}
            if not lacking:
                return _Offer(*_NOTHING_LOST, ())
        if len(staying) == 1:  # The usual case on nodes that gangs run on.
            (one,) = staying
            is_enough = all(one.amounts.get(resource, 0) >= lack for resource, lack in lacking.items())
            return _Offer(one.severity, one.loss, (one,)) if is_enough else None
        # Neither order is better in all cases: the first finds several cheap victims, the second one large
        # victim that replaces them.
        orders = staying, sorted(staying, key=_loss_for(lacking))
        sets = [_enough(order, lacking, self._may_go) for order in orders]
        return min((_Offer(*_cost(one), one) for one in sets if one), default=None)

    def _may_go(self, some: Iterable[_Resident]) -> bool:
        """Return whether these may be evicted beside `gone`: enough replicas stay, by floor and by budget."""
        if not self.residents.spares:  # The usual case where there is no inference.
            return True
        asked = Counter[Guard]()
        for one in some:
            asked.update(one.guards)
        return all(
            self._unguarded[guard] + count <= self.residents.spares[guard] for guard, count in asked.items()
        )


def _enough(
    order: Iterable[_Resident],
    lacking: Mapping[str, int],
    may_go: Callable[[Sequence[_Resident]], bool],
) -> tuple[_Resident, ...]:
    """Return the residents, taken in this order, that cover what is lacking; () where all of them do not.

    A resident whose guards do not allow its eviction beside those before it is skipped.
    """
    left = dict(lacking)
    taken: list[_Resident] = []
    for one in order:
        # A resident that has nothing of what is still lacking would be evicted for nothing.
        if any(lack > 0 and one.amounts.get(resource, 0) for resource, lack in left.items()):
            if one.guards and not may_go((*taken, one)):
                continue
            taken.append(one)
            for resource in left:
                left[resource] -= one.amounts.get(resource, 0)
            if all(lack <= 0 for lack in left.values()):
                break
    else:
        return ()
    # A resident taken early may not be needed any more since a larger one was taken.
    for one in sorted(taken, reverse=True):
        if all(lack + one.amounts.get(resource, 0) <= 0 for resource, lack in left.items()):
            taken.remove(one)
            for resource in left:
                left[resource] += one.amounts.get(resource, 0)
    return tuple(taken)


def _cost(gone: Iterable[_Resident]) -> tuple[_Severity, float]:
    """Return the highest severity of these evictions, and the sum of their losses in device-seconds."""
    severity, loss = _NOTHING_LOST
    for one in gone:
        severity = max(severity, one.severity)
        loss += one.loss
    return severity, loss


def _loss_for(lacking: Mapping[str, int]) -> Callable[[_Resident], tuple[_Severity, float, str]]:
    """Return a sort key: the loss per amount of what is lacking."""

    def key(one: _Resident) -> tuple[_Severity, float, str]:
        given = sum(min(lack, one.amounts.get(resource, 0)) for resource, lack in lacking.items())
        return one.severity, one.loss / max(1, given), one.uid

    return key


def _residents(snapshot: Snapshot, need: PreemptionRequest, pools: Pools) -> Steps[_Residents]:
    """Return every candidate of the quota tree by the nodes that it holds something of.

    Candidates of the own queue come from the pools, which know the highest priority that may be evicted.
    """
    flavors = {request.flavor for request in need.placing}
    of_node: dict[_Node, list[_Resident]] = {}
    nodes_of: dict[WorkloadKey, list[_Node]] = {}
    # Nothing is counted as taken in these floors: each answer counts for itself.
    floors, spares = Floors(snapshot), dict[Guard, int]()
    number = 0
    for queue in need.queue.tree.queues:
        if not may_evict_from(need, queue):
            continue
        named = pools.of_own(need) if queue is need.queue else queue.held.values()
        for held in named:
            if not _is_candidate(snapshot, need, held, queue):
                continue
            number += 1
            if number % _AT_ONCE == 0:
                yield
            guards = floors.guards(held, queue)
            spares.update((guard, floors.spare(guard)) for guard in guards)
            severity, loss = _NOTHING_LOST
            # A Workload that is leaving already costs nothing more.
            if not held.is_evicted:
                severity = queue is need.queue, float(held.workload.priority)
                loss = need.losses.of(held, need.queue)
            for node, amounts in _holdings(snapshot, held, flavors).items():
                one = _Resident(severity, loss, held.workload.uid, held.key, amounts, guards)
                of_node.setdefault(node, []).append(one)
                nodes_of.setdefault(held.key, []).append(node)
    # By severity, loss and uid, so that equal inputs give equal answers.
    for residents in of_node.values():
        if len(residents) > 1:
            residents.sort(key=lambda one: one[:3])
    return _Residents(of_node, nodes_of, spares)


def _is_candidate(snapshot: Snapshot, need: PreemptionRequest, held: HeldWorkload, queue: QueueState) -> bool:
    """Return whether Kueue's rules and the policy allow the eviction, judged by this candidate alone."""
    return (
        uses(held, need)
        and satisfies_any(need, held, queue)
        and not snapshot.evictions.is_gone(held)
        and need.losses.spared_until(held, queue, need.pending.workload.priority) is None
    )


def _holdings(snapshot: Snapshot, held: HeldWorkload, flavors: Container[str]) -> dict[_Node, Amounts]:
    """Return the amounts that the Workload holds of each node of these flavors."""
    found: dict[_Node, Amounts] = {}
    for place in held.places:
        if place.flavor not in flavors:
            continue
        site = snapshot.topology_cache.topology(place.flavor)
        for names, amounts, _ in place.changes(is_by_host=site.is_by_host):
            for name in names:
                leaf = site.find_leaf(name)
                if leaf is not None:
                    _put(found, (place.flavor, leaf), amounts)
    return found


def _put(by_node: dict[_Node, Amounts], node: _Node, amounts: Amounts) -> None:
    """Add the amounts to those of the node. The first ones are shared with their place, and never change."""
    known = by_node.get(node)
    if known is not None:
        total = dict(known)
        add_amounts(total, amounts)
        amounts = total
    by_node[node] = amounts


def _regions(snapshot: Snapshot, request: PlacementRequest) -> tuple[int | None, ...]:
    """Return the domains of which one must hold all pods, by name; None stands for no single domain."""
    site = snapshot.topology_cache.topology(request.flavor)
    topology = request.topology
    named = None if topology is None else topology.required or topology.preferred
    if named is None:
        return (None,)
    if named not in site.levels:
        return ()
    tree = site.tree
    domains = sorted(tree.at_level[site.levels.index(named)], key=tree.values.__getitem__)
    # A domain that is only preferred is no condition: the pods may also be spread.
    return tuple(domains) if topology is not None and topology.required else (*domains, None)
