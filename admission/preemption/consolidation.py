"""Moving others so that a gang gets a domain: a policy's `spec.placement.consolidation`.

Theory of operation. A gang waits though its quota is free and the cluster has as many free nodes as it needs:
they lie here and there, and it must have them side by side. Whoever sits between them could as well sit where
the gang cannot. So a plan is sought in which all go on, each at its place:

    1 domain   one that could ever hold the gang; those first that lack least for it
    2 take     who may be moved from it, the least loss first, until the gang has a place
    3 return   whoever the gang does not need gone after all, the greatest loss first
    4 place    the gang, then every one of those taken, the largest first, on what is free beside it

    rack a   x x . .        rack a   g g g g      gang g needs a rack; x and y share one
    rack b   y y . .        rack b   y y x x      x is moved, and nobody waits in the end

If one finds no place the plan is none: an eviction for good is what preemption is for, by its own rules. Of
the plans of a few domains the one that loses least counts. The search is greedy; that it finds no plan does
not mean that there is none, which is the price of bounding what is a search for a bin packing.

Who may be moved: of lower priority than the gang, in a ClusterQueue whose own policy has consolidation too,
not spared by that policy's rules for victims, no inference, and not within an hour of its last move. Places
are sought again when they have stopped, the gang first and those who were moved before all of their priority;
nobody holds a place for them meanwhile. Who was moved for the gang and has not stopped yet is found by the
same search, so that no second one is moved for the same need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from admission.flavors.topology_assigner import requests_again
from admission.placement.rules import leaf_level
from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.place import place_of
from admission.placement.topology.request import NoPlacement, PlacementRequest, make_plan
from admission.placement.topology_cache import Unplaced
from admission.preemption.eviction_cost import devices_of
from admission.preemption.preemption_request import PreemptionRequest
from admission.preemption.targets import Target
from admission.snapshot.snapshot import HeldWorkload, QueueState, Snapshot
from api.policy import Aliases, Consolidation
from api.reasons import PreemptionReason
from queues.steps import Steps

# Each domain costs a search for places for everybody who is taken from it.
_MOST_DOMAINS = 8
# The whole topology: where the gang may lie anywhere, it is nodes that others share.
_ANYWHERE = -1


def consolidating_targets(snapshot: Snapshot, need: PreemptionRequest) -> Steps[tuple[Target, ...]]:
    """Return whom to move so that `need`, whose quota is free, has a place; () where no plan is found.

    Those who are leaving anyway are named too where the gang waits for them. The snapshot is left as it was.
    """
    rules = _rules(need.queue)
    # Moving others frees places, never quota.
    if rules is None or not need.placing or not need.queue.node.fits(need.usage):
        return ()
    # One search for all domains: losses and moves are looked at once.
    search = _Search(snapshot=snapshot, need=need, rules=rules, budget=_budget(snapshot, need, rules))
    plans: list[tuple[Target, ...]] = []
    for movers in search.domains():
        plan = yield from search.plan(movers)
        if plan:
            plans.append(plan)
    # By cost, and of equals the first domain: those were asked for in order of what they lack.
    return min(plans, key=search.cost, default=())


def _rules(queue: QueueState) -> Consolidation | None:
    placement = queue.policy.placement
    return placement.consolidation if placement is not None else None


def _budget(snapshot: Snapshot, need: PreemptionRequest, rules: Consolidation) -> int:
    """Return how many may be moved now; notes when that may be more."""
    name, now = need.queue.policy.name, snapshot.now
    waits_until = need.pending.queued_at + rules.min_waiting_seconds
    if waits_until > now:
        # Time alone may change the answer, so the head is woken then.
        need.losses.note_spared(need.queue.name, waits_until)
        return 0
    left = rules.max_moves_per_hour - snapshot.moves.number(name, now=now)
    next_at = snapshot.moves.next_at(name, now=now)
    if next_at is not None:
        need.losses.note_spared(need.queue.name, next_at)
    return max(0, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The search for one gang. `budget` is how many may be moved for it who are not leaving anyway."""

    snapshot: Snapshot
    need: PreemptionRequest
    rules: Consolidation
    budget: int

    def cost(self, plan: Iterable[Target]) -> tuple[float, int]:
        """Return what a plan loses, in device-seconds, and how many it moves."""
        fresh = [one for one in plan if not one.held.is_evicted]
        return sum(self._loss(one) for one in fresh), len(fresh)

    def _loss(self, target: Target) -> float:
        return self.need.losses.of(target.held, target.queue)

    @property
    # Others were evicted for it before: they are on their way, and taking more for the same need
    # would be one too many.
    def _has_moved_others(self) -> bool:
        return self.need.queue.pending.is_preemptor(self.need.pending)

    # --- 1: where -----------------------------------------------------------------------------------------

    def domains(self) -> Iterator[list[Target]]:
        """Yield who could be moved from a domain, domain by domain, those first that lack least."""
        request = self.need.placing[0]
        search = self.snapshot.topology_cache.search(request.flavor)
        # Of a gang with a leader the workers decide: they are the many.
        plan = make_plan(request, search.site.levels)
        if isinstance(plan, NoPlacement):
            return
        # What is free now, and what an empty domain would hold.
        free, empty = search.counts(request, plan).pods, search.counts(request, plan, is_empty=True).pods
        tree = search.site.tree
        # Whoever moves takes up the same elsewhere, so without as much free in all no plan can
        # exist; asked first because it is cheap.
        if not self._has_moved_others and not _has_enough(search.site, request):
            return
        movable = self._movable(request)
        # Where the gang may lie anywhere all movers are in one bag.
        if _ANYWHERE in movable:
            yield movable[_ANYWHERE]
            return
        # A domain that could not even hold it when empty is not worth emptying.
        able = [domain for domain in movable if empty[domain] >= request.count]
        # Those that lack least first: fewest have to move. Names settle ties, so that replicas agree.
        able.sort(key=lambda one: (request.count - free[one], tree.values[one]))
        for domain in able[:_MOST_DOMAINS]:
            yield movable[domain]

    def _movable(self, request: PlacementRequest) -> dict[int, list[Target]]:
        """Return who may be moved, by each domain in which it has pods."""
        site = self.snapshot.topology_cache.search(request.flavor).site
        level = self._level(request)
        found: dict[int, list[Target]] = {}
        for queue in self.snapshot.queues.values():
            for held in queue.held.values():
                if not self._is_movable(held, queue):
                    continue
                target = Target(held=held, queue=queue, reason=PreemptionReason.CONSOLIDATION)
                values = {domain.values for place in held.places for domain in place.assignment.domains}
                # A Workload may lie in several domains, and then helps to empty each of them.
                leaves = {leaf for one in values if (leaf := site.find_leaf(one)) is not None}
                domains = {_ANYWHERE if level is None else site.tree.ancestor(leaf, level) for leaf in leaves}
                for domain in domains:
                    found.setdefault(domain, []).append(target)
        return found

    def _level(self, request: PlacementRequest) -> int | None:
        """Return the level of the domain that must hold all pods; None where they may lie anyhow."""
        levels = self.snapshot.topology_cache.levels(request.flavor)
        topology, wishes = request.topology, request.wishes
        if topology is not None and topology.required is not None:
            return levels.index(topology.required)
        if topology is None and wishes is not None and wishes.has_size_rules:
            level = leaf_level(levels, wishes.rules)
            # The leaf level itself is a node where there are no switches: that is as good as anywhere.
            return level if level < len(levels) - 1 else None
        return None

    def _is_movable(self, held: HeldWorkload, queue: QueueState) -> bool:
        if not held.places or self.snapshot.is_gone(held):
            return False
        if held.is_evicted:
            # Who was moved for this gang and is still stopping is found here again, and counted as
            # the same mover.
            # Of those who are leaving only its own count: the others leave for somebody else.
            return self._has_moved_others
        now, priority = self.snapshot.now, self.need.pending.workload.priority
        return (
            self.budget > 0
            and held.workload.priority < priority
            and _rules(queue) is not None
            and held.is_admitted
            # Its places of before are still taken by pods that stop; it is moved once it stands.
            and held.former is None
            and not self.snapshot.moves.has_moved(held.key, now=now)
            and self.need.losses.spared_until(held, queue, priority) is None
            and not self._serves(held, queue)
        )

    def _serves(self, held: HeldWorkload, queue: QueueState) -> bool:
        """Return whether it is inference: what serves is not stopped for the sake of order."""
        with_aliases = queue.policy.aliases is Aliases.ARTICLES
        return held.facts(with_aliases=with_aliases).is_inference

    # --- 2 to 4: the plan ---------------------------------------------------------------------------------

    def plan(self, movers: list[Target]) -> Steps[tuple[Target, ...]]:
        """Return who of them is to be moved, () where the gang gets no place, or one of them no other."""
        mark = self.snapshot.mark()
        taken = yield from self._take(movers)
        taken = yield from self._without_idle(taken)
        # Bounds first: to place everybody costs more than to add up.
        is_plan = bool(taken) and self._is_within_bounds(taken) and self._all_are_placed(taken)
        self.snapshot.rollback(mark)
        return tuple(taken) if is_plan else ()

    def _take(self, movers: list[Target]) -> Steps[list[Target]]:
        taken: list[Target] = []
        for one in sorted(movers, key=self._order):
            self.snapshot.remove(one.queue, one.held.usage, one.held.places)
            taken.append(one)
            yield
            if self._has_place():
                return taken
        # All of them are gone and there is still no place.
        return []

    def _without_idle(self, taken: list[Target]) -> Steps[list[Target]]:
        """Put back those that the gang does not need gone."""
        kept = list(taken)
        # The greatest loss first: who would lose most is the first to be let be.
        for one in sorted(taken, key=self._order, reverse=True):
            self.snapshot.add(one.queue, one.held.usage, one.held.places)
            yield
            if self._has_place():
                kept.remove(one)
            else:
                self.snapshot.remove(one.queue, one.held.usage, one.held.places)
        return kept

    def _order(self, target: Target) -> tuple[bool, int, float, str]:
        held = target.held
        return not held.is_evicted, held.workload.priority, self._loss(target), held.workload.uid

    def _has_place(self) -> bool:
        return self.snapshot.topology_cache.has_place(self.need.placing)

    def _is_within_bounds(self, taken: list[Target]) -> bool:
        lost, number = self.cost(taken)
        # A bound for each device of the gang: a large gang may cost more to place, as it gains more.
        return number <= self.budget and lost <= self.rules.max_lost_seconds * devices_of(self.need.usage)

    def _all_are_placed(self, taken: list[Target]) -> bool:
        """Place the gang and everybody who moves for it, and return whether that is possible."""
        moved = [one for one in taken if not one.held.is_evicted]
        # The largest first, as in any bin packing: they fit into the fewest places.
        moved.sort(key=lambda one: (-devices_of(one.held.usage), one.held.workload.uid))
        wanted = [(self.need.queue, self.need.placing)]
        wanted += [(one.queue, requests_again(self.snapshot, one.held)) for one in moved]
        for queue, requests in wanted:
            # Without a topology of its own nobody can tell where it would go, so it is not moved.
            found = (
                self.snapshot.topology_cache.place(requests) if requests else Unplaced(pod_set="", message="")
            )
            if isinstance(found, Unplaced):
                return False
            places = tuple(place_of(request, found[request.pod_set]) for request in requests)
            # Places alone: its quota is its own wherever it runs.
            self.snapshot.add(queue, {}, places)
        return True


def _has_enough(site: FlavorTopology, request: PlacementRequest) -> bool:
    """Return whether as much is free in all as the gang takes: whoever moves takes the same elsewhere."""
    return all(
        sum(free for free in site.free(resource) if free > 0) >= amount * request.count
        for resource, amount in request.per_pod.items()
    )
