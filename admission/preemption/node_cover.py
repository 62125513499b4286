"""Which nodes are cheapest to make room on: whom to evict so that the pods of a gang fit, node by node.

A pod needs its amount on one node, so what counts is who stands together, and not only who loses least:

    node a   x x x x          a pod that takes a whole node:   x loses 4 × 1, y and z 2 + 3
    node b   y y z z          so it goes to node a, though y alone would lose less than all of x

Each pod in turn takes the node that costs least at that moment, where whoever was named for an earlier pod
costs nothing any more: a gang on four nodes frees all four when one is needed. Within a node the cheapest set
that covers the lack is sought in two orders, by loss and by loss per amount, each without those who turn out
not to be needed. Both steps are greedy; an exact answer is a covering problem, and NP-hard.

Where all pods must share a domain (a rack, say), each domain that could hold them is a region of its own, and
the answers come in the order of what they cost. Of an application's replicas no answer takes more than may go
(`admission.preemption.replicas`). An answer is a proposal: it knows nothing of quotas or slices, so the
caller tries it on the snapshot (`admission.preemption.least_loss`).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from admission.placement.topology.request import NoPlacement, PlacementRequest, make_plan
from admission.preemption.candidate_pools import Pools
from admission.preemption.preemption_request import PreemptionRequest, satisfies_any, uses
from admission.preemption.replicas import Floors, Guard
from admission.snapshot.snapshot import HeldWorkload, QueueState, Snapshot
from api.workload import WorkloadKey
from queues.steps import Steps

# A node or a candidate is looked at in ten to fifty microseconds.
_AT_ONCE = 100
# Pods of another flavor than the first are looked for anew with each domain of that one.
_MOST_OF_SEVERAL = 16
# A flavor's leaf.
_Node = tuple[str, int]
# How bad an eviction is, before what is lost: whether it is of the own queue, and its priority.
_Standing = tuple[bool, float]
# What a pod takes of a resource, and what is free of it by leaf.
_Want = tuple[str, int, Sequence[int]]
_NOBODY: _Standing = (False, -inf)
_NOTHING_LOST = _NOBODY, 0.0


class _Resident(NamedTuple):
    """What a candidate holds of one node, and what keeps it. Ordered by how much its eviction is minded."""

    standing: _Standing
    loss: float
    uid: str
    key: WorkloadKey
    amounts: Mapping[str, int]
    guards: Mapping[Guard, int]


class _Offer(NamedTuple):
    """What room for one more pod on a node costs, and who goes for it."""

    standing: _Standing
    loss: float
    victims: tuple[_Resident, ...]


class _Residents(NamedTuple):
    """Who may be evicted, by each node where they hold something, those first that one minds least; and how
    much may be taken from under each guard of theirs.
    """

    of_node: Mapping[_Node, Sequence[_Resident]]
    nodes_of: Mapping[WorkloadKey, Sequence[_Node]]
    spares: Mapping[Guard, int]


def cheapest_covers(
    snapshot: Snapshot, need: PreemptionRequest, pools: Pools, *, most: int
) -> Steps[list[frozenset[WorkloadKey]]]:
    """Return sets of Workloads whose eviction makes room for the pods, the cheapest first, at most so many.

    None where no set of candidates is enough, or nobody need go for the pods' sake.
    """
    if not need.placing:
        return []
    residents = yield from _residents(snapshot, need, pools)
    if not residents.of_node:
        return []
    found: list[tuple[_Standing, float, int, frozenset[WorkloadKey]]] = []
    has_several = any(request.flavor != need.placing[0].flavor for request in need.placing)
    for region in _regions(snapshot, need.placing[0])[: _MOST_OF_SEVERAL if has_several else None]:
        yield
        cover = _Cover(snapshot, residents)
        if not (yield from cover.hold(need.placing, region)):
            continue
        if not cover.gone:
            # There are places, so it is quota that is short, of which nodes say nothing.
            return []
        found.append((*_cost(cover.gone.values()), len(found), frozenset(cover.gone)))
    # By cost, and of equals the first domain by name.
    found.sort(key=lambda one: one[:3])
    return [keys for *_, keys in found[:most]]


def may_make_room(snapshot: Snapshot, need: PreemptionRequest, leaving: Iterable[HeldWorkload]) -> bool:
    """Return False only where the pods would have no room with all of these gone.

    They are counted node by node, each request by itself: domains and quota are left out.
    """
    flavors = {request.flavor for request in need.placing}
    given: dict[_Node, dict[str, int]] = {}
    for held in leaving:
        for node, amounts in _holdings(snapshot, held, flavors).items():
            total = given.setdefault(node, {})
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, 0) + amount
    return all(_may_hold(snapshot, request, given) for request in need.placing)


def _may_hold(
    snapshot: Snapshot, request: PlacementRequest, given: Mapping[_Node, Mapping[str, int]]
) -> bool:
    search = snapshot.topology_cache.search(request.flavor)
    plan = make_plan(request, search.site.levels)
    if isinstance(plan, NoPlacement):
        return True
    # Both know which nodes refuse the pods.
    now, empty = search.counts(request, plan).pods, search.counts(request, plan, is_empty=True).pods
    wanted = [(one, amount, search.site.free(one)) for one, amount in request.per_pod.items() if amount > 0]
    pods = sum(now[leaf] for leaf in search.site.tree.at_level[-1])
    for (flavor, leaf), amounts in given.items():
        if flavor == request.flavor:
            rooms = ((free[leaf] + amounts.get(one, 0)) // amount for one, amount, free in wanted)
            pods += max(0, min(empty[leaf], *rooms) - now[leaf])
    return pods >= request.count


@dataclass(slots=True)
class _Cover:
    """Whom to evict for all pods in one region, as it is worked out pod by pod."""

    snapshot: Snapshot
    residents: _Residents
    gone: dict[WorkloadKey, _Resident] = field(default_factory=dict)
    # What the pods take that have found their node.
    _taken: dict[_Node, dict[str, int]] = field(default_factory=dict)
    # What those gone take from under each guard.
    _unguarded: Counter[Guard] = field(default_factory=Counter)

    def hold(self, requests: Sequence[PlacementRequest], region: int | None) -> Steps[bool]:
        """Make room for all pods in the region, a domain of the first request's flavor or everywhere, and
        return whether there is as much.
        """
        for request in requests:
            within = region if request.flavor == requests[0].flavor else None
            if not (yield from self._hold(request, within)):
                return False
        return True

    def _hold(self, request: PlacementRequest, region: int | None) -> Steps[bool]:
        left = yield from self._room_when_empty(request, region)
        site = self.snapshot.topology_cache.search(request.flavor).site
        # Of what it asks nothing it lacks nothing, however overcommitted the node is.
        asked = ((resource, amount) for resource, amount in request.per_pod.items() if amount > 0)
        wanted = [(resource, amount, site.free(resource)) for resource, amount in asked]
        # Each node's offer as things stand. An entry of the heap that says otherwise was true before an
        # earlier pod took the node, or made somebody on it go.
        offers: dict[_Node, _Offer] = {}
        heap: list[tuple[_Standing, float, _Node]] = []

        def offer_again(node: _Node) -> None:
            offer = self._offer(node, wanted) if left.get(node, 0) else None
            if offer is None:
                offers.pop(node, None)
            else:
                offers[node] = offer
                heapq.heappush(heap, (offer.standing, offer.loss, node))

        for number, node in enumerate(left):
            if number % _AT_ONCE == _AT_ONCE - 1:
                yield
            offer_again(node)
        for _ in range(request.count):
            while heap:
                standing, loss, node = heapq.heappop(heap)
                offer = offers.get(node)
                if offer is None or (offer.standing, offer.loss) != (standing, loss):
                    continue
                if self._may_go(offer.victims):
                    break
                # An earlier pod took the last replica that could go: what is to be had here without it?
                offer_again(node)
            else:
                return False
            left[node] -= 1
            taken = self._taken.setdefault(node, {})
            for resource, amount in request.per_pod.items():
                taken[resource] = taken.get(resource, 0) + amount
            for one in offer.victims:
                self.gone[one.key] = one
                self._unguarded.update(one.guards)
            # Where the victims stand besides, their going has made room too.
            moved = (other for one in offer.victims for other in self.residents.nodes_of[one.key])
            for other in dict.fromkeys((node, *moved)):
                offer_again(other)
        return True

    def _room_when_empty(self, request: PlacementRequest, region: int | None) -> Steps[dict[_Node, int]]:
        """Return how many pods each node takes at most, of those where there is room or somebody to evict."""
        search = self.snapshot.topology_cache.search(request.flavor)
        plan = make_plan(request, search.site.levels)
        if isinstance(plan, NoPlacement):
            return {}
        yield from search.preparing(request)
        # Both know which nodes refuse the pods; a node without either would only be looked at in vain.
        now, empty = search.counts(request, plan).pods, search.counts(request, plan, is_empty=True).pods
        tree = search.site.tree
        leaves = tree.at_level[-1] if region is None else tree.leaves_below(region)
        return {
            (request.flavor, leaf): empty[leaf]
            for leaf in leaves
            if empty[leaf] and (now[leaf] or (request.flavor, leaf) in self.residents.of_node)
        }

    def _offer(self, node: _Node, wanted: Sequence[_Want]) -> _Offer | None:
        """Return what room for one more pod costs; None where it is not to be had."""
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
        if len(staying) == 1:  # As on most nodes that gangs run on.
            (one,) = staying
            is_enough = all(one.amounts.get(resource, 0) >= lack for resource, lack in lacking.items())
            return _Offer(one.standing, one.loss, (one,)) if is_enough else None
        orders = staying, sorted(staying, key=_loss_for(lacking))
        sets = [_enough(order, lacking, self._may_go) for order in orders]
        return min((_Offer(*_cost(one), one) for one in sets if one), default=None)

    def _may_go(self, some: Iterable[_Resident]) -> bool:
        """Return whether these may go beside those who do: enough replicas stay, by floor and by budget."""
        if not self.residents.spares:  # As wherever nothing serves.
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
    """Return who of the residents, taken in this order, cover what is lacking; () where all do not.

    Whoever may not go beside those before it is passed over.
    """
    left = dict(lacking)
    taken: list[_Resident] = []
    for one in order:
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
    # Who came early may be needed no more since a larger one was taken.
    for one in sorted(taken, reverse=True):
        if all(lack + one.amounts.get(resource, 0) <= 0 for resource, lack in left.items()):
            taken.remove(one)
            for resource in left:
                left[resource] += one.amounts.get(resource, 0)
    return tuple(taken)


def _cost(gone: Iterable[_Resident]) -> tuple[_Standing, float]:
    """Return how grave the gravest of these evictions is, and what all of them lose in device-seconds."""
    standing, loss = _NOTHING_LOST
    for one in gone:
        standing = max(standing, one.standing)
        loss += one.loss
    return standing, loss


def _loss_for(lacking: Mapping[str, int]) -> Callable[[_Resident], tuple[_Standing, float, str]]:
    """Return the order by loss for what each gives of what is lacking."""

    def key(one: _Resident) -> tuple[_Standing, float, str]:
        given = sum(min(lack, one.amounts.get(resource, 0)) for resource, lack in lacking.items())
        return one.standing, one.loss / max(1, given), one.uid

    return key


def _residents(snapshot: Snapshot, need: PreemptionRequest, pools: Pools) -> Steps[_Residents]:
    flavors = {request.flavor for request in need.placing}
    of_node: dict[_Node, list[_Resident]] = {}
    nodes_of: dict[WorkloadKey, list[_Node]] = {}
    # None of these is counted as taken: that is up to each answer.
    floors, spares = Floors(snapshot), dict[Guard, int]()
    number = 0
    for queue in need.queue.tree.queues:
        if not _may_give(queue, need):
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
            standing, loss = _NOTHING_LOST
            # Whoever is leaving already costs nothing more.
            if not held.is_evicted:
                standing = queue is need.queue, float(held.workload.priority)
                loss = need.losses.of(held, need.queue)
            for node, amounts in _holdings(snapshot, held, flavors).items():
                one = _Resident(standing, loss, held.workload.uid, held.key, amounts, guards)
                of_node.setdefault(node, []).append(one)
                nodes_of.setdefault(held.key, []).append(node)
    for residents in of_node.values():
        residents.sort(key=lambda one: one[:3])
    return _Residents(of_node, nodes_of, spares)


def _may_give(queue: QueueState, need: PreemptionRequest) -> bool:
    """Return whether anything may be taken from the queue: others' own quota is theirs."""
    return queue is need.queue or not (queue.inactive or queue.node.is_within_nominal(need.pairs))


def _is_candidate(snapshot: Snapshot, need: PreemptionRequest, held: HeldWorkload, queue: QueueState) -> bool:
    """Return whether Kueue's rules and the policy's allow the eviction, as far as one candidate tells."""
    return (
        uses(held, need)
        and satisfies_any(need, held, queue)
        and not snapshot.is_gone(held)
        and need.losses.spared_until(held, queue, need.pending.workload.priority) is None
    )


def _holdings(snapshot: Snapshot, held: HeldWorkload, flavors: Container[str]) -> dict[_Node, dict[str, int]]:
    """Return what the Workload holds of each node of these flavors."""
    found: dict[_Node, dict[str, int]] = {}
    for place in held.places:
        if place.flavor not in flavors:
            continue
        site = snapshot.topology_cache.search(place.flavor).site
        for domain in place.assignment.domains:
            leaf = site.find_leaf(domain.values)
            if leaf is None:
                continue
            amounts = found.setdefault((place.flavor, leaf), {})
            for resource, amount in place.per_pod.items():
                amounts[resource] = amounts.get(resource, 0) + amount * domain.count
    return found


def _regions(snapshot: Snapshot, request: PlacementRequest) -> tuple[int | None, ...]:
    """Return the domains of which one must hold all pods, in order of their names; None: they may lie
    anyhow.
    """
    site = snapshot.topology_cache.search(request.flavor).site
    topology = request.topology
    named = None if topology is None else topology.required or topology.preferred
    if named is None:
        return (None,)
    if named not in site.levels:
        return ()
    tree = site.tree
    domains = sorted(tree.at_level[site.levels.index(named)], key=tree.values.__getitem__)
    # One domain is only preferred: where none holds them all they may lie anyhow, too.
    return tuple(domains) if topology is not None and topology.required else (*domains, None)
