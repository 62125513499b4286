"""Consolidation: moving other Workloads so that a gang gets a domain (`spec.placement.consolidation`).

Theory of operation. A gang waits although its quota is free and the cluster has as many free nodes as it
needs: these are scattered, and the gang needs them in one domain. The Workloads between them could as well
run where the gang cannot. So the search looks for a plan in which all of them run on, each at its place:

    1 domain   choose a domain that could hold the gang when empty; those that lack least come first
    2 take     remove movable Workloads from it, the least loss first, until the gang has a place
    3 return   put back the Workloads that need not move after all, the greatest loss first
    4 place    place the gang, then each Workload taken, the largest first, on what is free beside it

    rack a   x x . .        rack a   g g g g      gang g needs a rack; x and y use half of one each
    rack b   y y . .        rack b   y y x x      x is moved, and no Workload waits in the end

If a Workload that was taken finds no place, there is no plan: evictions without another place are left to
preemption, by its own rules. Of the plans of at most _MOST_DOMAINS domains the one that loses least counts.
The search ends because each domain is tried once, and within one each movable Workload is taken and put back
at most once; each of these steps costs one search for a place. The search is greedy and may miss a plan that
exists, which is the price of bounding what is a bin packing problem.

Invariant: the snapshot is left as it was; a plan is a list of targets and reserves nothing.

A Workload may be moved if it is of lower priority than the gang, its ClusterQueue's own policy has
consolidation too, that policy's rules for victims do not spare it, it is no inference, and its last move was
more than an hour ago. Places are searched again once the moved Workloads have stopped: for the gang first,
then for those Workloads before all others of their priority. No place is held for them meanwhile. A Workload
that was moved for the gang and has not stopped yet is found by the same search, so that no second one is
moved for the same need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from admission.flavors.topology_assigner import requests_again
from admission.placement.rules import leaf_level
from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.place import place_of
from admission.placement.topology.request import NoPlacement, PlacementRequest
from admission.placement.topology_cache import Unplaced
from admission.preemption.eviction_cost import devices_of
from admission.preemption.preemption_request import PreemptionRequest
from admission.preemption.targets import Target
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.policy import Consolidation
from api.reasons import PreemptionReason
from queues.steps import Steps

# Caps the domains that are tried: each costs a search for places for every Workload taken from it.
_MOST_DOMAINS = 8
# Stands for the whole topology, where the gang needs no single domain: its nodes are shared with others.
_ANYWHERE = -1


def consolidating_targets(snapshot: Snapshot, need: PreemptionRequest) -> Steps[tuple[Target, ...]]:
    """Return the Workloads to move so that `need`, whose quota is free, has a place; () for no plan.

    Workloads that are leaving anyway are included where the gang waits for them. The snapshot is left as it
    was.
    """
    rules = _rules(need.queue)
    # Moving others frees places, never quota.
    if rules is None or not need.placing or not need.queue.node.fits(need.usage):
        return ()
    # One search value for all domains, so that losses and moves are looked up once.
    search = _Search(snapshot=snapshot, need=need, rules=rules, budget=_budget(snapshot, need, rules))
    plans: list[tuple[Target, ...]] = []
    for movers in search.domains():
        plan = yield from search.plan(movers)
        if plan:
            plans.append(plan)
    # The least cost; of equal costs the earlier domain, which lacks less.
    return min(plans, key=search.cost, default=())


def _rules(queue: QueueState) -> Consolidation | None:
    """Return the consolidation section of the queue's policy, None where it has none."""
    placement = queue.policy.placement
    return placement.consolidation if placement is not None else None


def _budget(snapshot: Snapshot, need: PreemptionRequest, rules: Consolidation) -> int:
    """Return how many Workloads may be moved now, and note when that number may rise."""
    name, now = need.queue.policy.name, snapshot.now
    waits_until = need.pending.queued_at + rules.min_waiting_seconds
    if waits_until > now:
        # Time alone may change the answer, so the head is woken at that instant.
        need.losses.note_spared(need.queue.name, waits_until)
        return 0
    left = rules.max_moves_per_hour - snapshot.moves.number(name, now=now)
    next_at = snapshot.moves.next_at(name, now=now)
    if next_at is not None:
        need.losses.note_spared(need.queue.name, next_at)
    return max(0, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The search for one gang. `budget` is how many Workloads may be moved that are not leaving anyway."""

    snapshot: Snapshot
    need: PreemptionRequest
    rules: Consolidation
    budget: int

    def cost(self, plan: Iterable[Target]) -> tuple[float, int]:
        """Return what a plan loses, in device-seconds, and how many Workloads it moves.

        Workloads that are leaving already cost nothing. Plans are compared by this pair.
        """
        fresh = [one for one in plan if not one.held.is_evicted]
        return sum(self._loss(one) for one in fresh), len(fresh)

    def _loss(self, target: Target) -> float:
        """Return what the Workload loses by a move, in device-seconds: it restarts from a checkpoint."""
        return self.need.losses.of(target.held, target.queue)

    @property
    def _has_moved_others(self) -> bool:
        # Others were evicted for this gang before and are leaving: the search must not take further ones
        # for the same need.
        return self.need.queue.pending.precedence.is_preemptor(self.need.pending)

    # --- 1: where -----------------------------------------------------------------------------------------

    def domains(self) -> Iterator[list[Target]]:
        """Yield the Workloads that could be moved from a domain, the domains that lack least first.

        At most `_MOST_DOMAINS` of them, because each costs a search. Empty where too little capacity is free
        in total, so that no plan can exist.
        """
        request = self.need.placing[0]
        search = self.snapshot.topology_cache.search(request.flavor)
        # A gang with a leader is judged by its workers, which are the many.
        plan = search.plan(request)
        if isinstance(plan, NoPlacement):
            return
        # How many pods fit now, and how many would fit into the empty domain.
        free, empty = search.counts(request, plan).pods, search.counts(request, plan, is_empty=True).pods
        tree = search.site.tree
        # A moved Workload takes as much elsewhere, so without enough free capacity in total there is no plan.
        # Checked first because it is cheap.
        if not self._has_moved_others and not _has_enough(search.site, request):
            return
        movable = self._movable(request)
        # Where the gang needs no single domain, all movable Workloads form one group.
        if _ANYWHERE in movable:
            yield movable[_ANYWHERE]
            return
        # A domain that could not hold the gang even when empty is not worth emptying.
        able = [domain for domain in movable if empty[domain] >= request.count]
        # Those that lack least first, since they need the fewest moves. Names settle ties, so replicas agree.
        able.sort(key=lambda one: (request.count - free[one], tree.values[one]))
        for domain in able[:_MOST_DOMAINS]:
            yield movable[domain]

    def _movable(self, request: PlacementRequest) -> dict[int, list[Target]]:
        """Return the Workloads that may be moved, by each domain in which they have pods."""
        site = self.snapshot.topology_cache.topology(request.flavor)
        level = self._level(request)
        found: dict[int, list[Target]] = {}
        for queue in self.snapshot.queues.values():
            for held in queue.held.values():
                if not self._is_movable(held, queue):
                    continue
                target = Target(held=held, queue=queue, reason=PreemptionReason.CONSOLIDATION)
                values = {domain.values for place in held.places for domain in place.assignment.domains}
                # A Workload may have pods in several domains, and then helps to empty each of them.
                leaves = {leaf for one in values if (leaf := site.find_leaf(one)) is not None}
                domains = {_ANYWHERE if level is None else site.tree.ancestor(leaf, level) for leaf in leaves}
                for domain in domains:
                    found.setdefault(domain, []).append(target)
        return found

    def _level(self, request: PlacementRequest) -> int | None:
        """Return the level of the domain that must hold all pods; None where they may be spread."""
        levels = self.snapshot.topology_cache.topology(request.flavor).levels
        topology, options = request.topology, request.options
        if topology is not None and topology.required is not None:
            return levels.index(topology.required)
        if topology is None and options is not None and options.has_size_rules:
            level = leaf_level(levels, options.rules)
            # In a topology without switches the leaf level is the node itself; then the gang may be spread.
            return level if level < len(levels) - 1 else None
        return None

    def _is_movable(self, held: HeldWorkload, queue: QueueState) -> bool:
        """Return whether the Workload may be moved: it runs, at lower priority, and its policy allows it."""
        if not held.places or self.snapshot.evictions.is_gone(held):
            return False
        if held.is_evicted:
            # A Workload that was moved for this gang and is still stopping counts again. Where nothing was
            # moved for the gang, a leaving Workload leaves for another preemptor and does not count.
            return self._has_moved_others
        now, priority = self.snapshot.now, self.need.pending.workload.priority
        return (
            self.budget > 0
            and held.workload.priority < priority
            and _rules(queue) is not None
            and held.is_admitted
            # Its former places are still taken by pods that stop; it may be moved once its pods have moved.
            and held.former is None
            and not self.snapshot.moves.has_moved(held.key, now=now)
            and self.need.losses.spared_until(held, queue, priority) is None
            # Inference is never stopped just to be moved.
            and not held.facts(with_aliases=queue.policy.reads_aliases).is_inference
        )

    # --- 2 to 4: the plan ---------------------------------------------------------------------------------

    def plan(self, movers: list[Target]) -> Steps[tuple[Target, ...]]:
        """Return which of `movers` to move; () where the gang, or one of them, would have no place.

        The answer is minimal in one sense: a Workload whose stay does not take the gang's place is left where
        it is. The snapshot is left as it was. One step for each Workload that is tried.
        """
        mark = self.snapshot.trial.mark()
        taken = yield from self._take(movers)
        taken = yield from self._without_idle(taken)
        # Limits are checked first: they are cheaper than placing every Workload.
        is_plan = bool(taken) and self._is_within_bounds(taken) and self._all_are_placed(taken)
        self.snapshot.trial.rollback(mark)
        return tuple(taken) if is_plan else ()

    def _take(self, movers: list[Target]) -> Steps[list[Target]]:
        """Remove Workloads on trial until the gang has a place; return them, [] where it has none."""
        taken: list[Target] = []
        for one in sorted(movers, key=self._order):
            self.snapshot.trial.remove(one.queue, one.held.usage, one.held.places)
            taken.append(one)
            yield
            if self._has_place():
                return taken
        # All of them are removed and there is still no place.
        return []

    def _without_idle(self, taken: list[Target]) -> Steps[list[Target]]:
        """Put back the Workloads that need not move for the gang."""
        kept = list(taken)
        # The greatest loss first: the Workload that would lose most is the first to stay.
        for one in sorted(taken, key=self._order, reverse=True):
            self.snapshot.trial.add(one.queue, one.held.usage, one.held.places)
            yield
            if self._has_place():
                kept.remove(one)
            else:
                self.snapshot.trial.remove(one.queue, one.held.usage, one.held.places)
        return kept

    def _order(self, target: Target) -> tuple[bool, int, float, str]:
        """Return the order in which Workloads are moved: leaving ones first, then low priority, then little
        loss.
        """
        held = target.held
        return not held.is_evicted, held.workload.priority, self._loss(target), held.workload.uid

    def _has_place(self) -> bool:
        """Return whether the gang has a place on the snapshot as it is now, trials included."""
        return self.snapshot.topology_cache.has_place(self.need.placing)

    def _is_within_bounds(self, taken: list[Target]) -> bool:
        """Return whether the policy's limits on the number of moves and on the lost work allow this plan."""
        lost, number = self.cost(taken)
        # The limit is for each device of the gang: placing a large gang may cost more, as it gains more.
        return number <= self.budget and lost <= self.rules.max_lost_seconds * devices_of(self.need.usage)

    def _all_are_placed(self, taken: list[Target]) -> bool:
        """Place the gang and every Workload that moves for it, and return whether that is possible."""
        moved = [one for one in taken if not one.held.is_evicted]
        # The largest first, as in any bin packing: these fit into the fewest places.
        moved.sort(key=lambda one: (-devices_of(one.held.usage), one.held.workload.uid))
        wanted = [(self.need.queue, self.need.placing)]
        wanted += [(one.queue, requests_again(self.snapshot, one.held)) for one in moved]
        for queue, requests in wanted:
            # Without a topology request it cannot be predicted where it would go, so it is not moved.
            found = (
                self.snapshot.topology_cache.place(requests) if requests else Unplaced(pod_set="", message="")
            )
            if isinstance(found, Unplaced):
                return False
            places = tuple(place_of(request, found[request.pod_set]) for request in requests)
            # Only the places: its usage of quota is the same wherever it runs.
            self.snapshot.trial.add(queue, {}, places)
        return True


def _has_enough(site: FlavorTopology, request: PlacementRequest) -> bool:
    """Return whether the free total covers the gang: each moved Workload takes the same amount elsewhere."""
    return all(
        sum(free for free in site.free(resource) if free > 0) >= amount * request.count
        for resource, amount in request.per_pod.items()
    )
