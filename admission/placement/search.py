"""The search for the placement of one pod set, with the leader of its group if it has one, in one site.

It neither takes places nor remembers them; `admission.placement.topology_cache` does.

Cost. The counts of a shape are kept and follow the changes of the site, so a search costs the changes since
the last one and the choice itself. A new shape costs one pass over all nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from admission.placement.candidate_leaves import CandidateLeaves, Terms
from admission.placement.domain_selection import DomainSelection, Shortage
from admission.placement.fragmentation_mix import DemandMix
from admission.placement.gangs import GangSearch
from admission.placement.packing import PackedNodes
from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.node_exclusions import NodeExclusions
from admission.placement.topology.placement_options import PlacementOptions, Strategy
from admission.placement.topology.pod_counts import MOST_SHAPES, PodCounts, Shape, make_shape
from admission.placement.topology.pod_room import PodRoom
from admission.placement.topology.request import (
    NodeRules,
    NoPlacement,
    Placement,
    PlacementGates,
    PlacementPlan,
    PlacementRequest,
    make_plan,
)
from api.workload import TopologyAssignment, TopologyRequest
from queues.steps import Steps

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
# Gang searches kept for one site. Each costs a few values per leaf, and keeps its counts alive.
_MOST_GANGS = 24
# Plans kept for one site. They are small and of few kinds.
_MOST_PLANS = 1024


class PlacementSearch:
    """Searches in one site. It keeps the counts of the shapes used last."""

    def __init__(self, site: FlavorTopology, topology: str, gates: PlacementGates | None = None) -> None:
        self.site = site
        self._gates = gates or PlacementGates()
        self.topology = topology
        self._counts: dict[Shape, PodCounts] = {}
        self._offers: dict[tuple[PodCounts, PodCounts, Terms], CandidateLeaves] = {}
        self._gangs: dict[tuple[CandidateLeaves, PlacementOptions, int], GangSearch] = {}
        # Requests in terms of this site's levels. They never become stale, because levels never change.
        self._packings: dict[PodCounts, PackedNodes] = {}
        self._plans: dict[tuple[TopologyRequest | None, int, bool], PlacementPlan | NoPlacement] = {}
        # The performance score of each host (`admission.placement.performance`).
        self.performance: Mapping[str, float] = {}
        # The demands by which fragmentation is measured.
        self.mix = DemandMix()

    def find(
        self,
        request: PlacementRequest,
        *,
        leader: PlacementRequest | None = None,
        is_empty: bool = False,
        within: int | None = None,
    ) -> Placement | NoPlacement:
        """Return where the pods go, or why they have no place.

        `is_empty`: as if no Workload was placed. `within`: only below this domain.

        `leader` is the request of the group's leader, one pod that shares the domain of the workers. `within`
        is the index of a domain of the site's tree. The message of NoPlacement counts the nodes and the
        reasons for which they were excluded, in Kueue's words.
        """
        plan = self.plan(request)
        if isinstance(plan, NoPlacement):
            return plan
        options = request.options
        # Options apply to pod sets without a topology request of their own, and only to the whole pod set.
        if options is not None and leader is None and within is None and request.topology is None:
            found = self._find_by_options(request, plan, options, is_empty=is_empty)
            if found is not None:
                return found
        counts = self.counts(request, plan, leader=leader, is_empty=is_empty)
        leaders = leader.count if leader is not None else 0
        chosen = DomainSelection(
            counts=counts, plan=plan, pods=request.count, leaders=leaders, within=within
        ).choose()
        if isinstance(chosen, Shortage):
            return NoPlacement(message=self._shortage(chosen, plan, counts, within))
        return Placement(
            assignment=self._assignment([(share.domain, share.pods) for share in chosen]),
            leader=self._assignment([(share.domain, share.leaders) for share in chosen]) if leaders else None,
        )

    def plan(self, request: PlacementRequest) -> PlacementPlan | NoPlacement:
        """Return the request in terms of levels, or why the topology does not suit it."""
        # Everything that `make_plan` reads.
        key = request.topology, request.count, request.keeps_domains_whole
        plan = self._plans.get(key)
        if plan is None:
            plan = make_plan(request, self.site.levels, self._gates)
            _keep(self._plans, key, plan, most=_MOST_PLANS)
        return plan

    def preparing(self, request: PlacementRequest) -> Steps[None]:
        """Compute, in steps, what `find` needs of the site and what is not cached yet.

        At most one new count of all nodes a step, which takes some milliseconds on thousands of nodes.
        """
        plan = self.plan(request)
        if isinstance(plan, NoPlacement):
            return
        if not self._is_counted(request, plan, is_empty=False):
            self.counts(request, plan)
            yield
        options = request.options
        if options is None or request.topology is not None or not self.site.is_by_host:
            return
        if not self._is_counted(request, plan, is_empty=True):
            self.counts(request, plan, is_empty=True)
            yield
        yield from self._gang_search(request, plan, options, is_empty=False).preparing()

    def _is_counted(self, request: PlacementRequest, plan: PlacementPlan, *, is_empty: bool) -> bool:
        """Return whether the counts of the request's shape are known already."""
        return make_shape(request, None, plan, is_empty=is_empty) in self._counts

    def has_place(self, request: PlacementRequest) -> bool:
        """Return whether `find` finds a place, at a fraction of its cost, for searches that repeat it.

        For a request without a leader, on the present state of the site.
        """
        plan = self.plan(request)
        if isinstance(plan, NoPlacement):
            return False
        # The gang search keeps its candidates, so it can answer without computing places.
        if request.topology is None and request.options is not None and self.site.is_by_host:
            gang = self._gang_search(request, plan, request.options, is_empty=False)
            return not isinstance(gang.find(), str)
        return DomainSelection(counts=self.counts(request, plan), plan=plan, pods=request.count).has_place()

    def _find_by_options(
        self, request: PlacementRequest, plan: PlacementPlan, options: PlacementOptions, *, is_empty: bool
    ) -> Placement | NoPlacement | None:
        """Return the place by a policy's options, None where a leaf of the site is not a node."""
        if not self.site.is_by_host:
            return None
        search = self._gang_search(request, plan, options, is_empty=is_empty)
        found = search.find()
        if isinstance(found, str):
            left_out = search.offers.counts.describe_exclusions()
            return NoPlacement(message=f'topology "{self.topology}" {found}. {left_out}')
        return Placement(assignment=self._assignment(found))

    def _gang_search(
        self, request: PlacementRequest, plan: PlacementPlan, options: PlacementOptions, *, is_empty: bool
    ) -> GangSearch:
        """Return the search for a gang of this size with these options, an earlier one if kept."""
        empty = self.counts(request, plan, is_empty=True)
        offers = self._offers_of(empty if is_empty else self.counts(request, plan), empty, options)
        # The size is part of the key: a gang with two more pods may need another number of leaves.
        key = offers, options, request.count
        search = self._gangs.pop(key, None) or GangSearch(
            offers=offers,
            options=options,
            pods=request.count,
            performance=self.performance,
            packing=self._packing(offers.counts) if options.strategy is Strategy.PACKED else None,
        )
        _keep(self._gangs, key, search, most=_MOST_GANGS)
        return search

    def _packing(self, counts: PodCounts) -> PackedNodes:
        """Return the nodes compared by fragmentation, which all gangs of a shape share."""
        packing = self._packings.pop(counts, None) or PackedNodes(counts=counts, mix=self.mix)
        _keep(self._packings, counts, packing, most=_MOST_GANGS)
        return packing

    def _offers_of(self, counts: PodCounts, empty: PodCounts, options: PlacementOptions) -> CandidateLeaves:
        """Return the leaves as gangs with these options see them."""
        terms = Terms(
            rules=options.rules, gpus_per_pod=options.gpus_per_pod, preferred_domain=options.preferred_domain
        )
        key = counts, empty, terms
        offers = self._offers.pop(key, None)
        if offers is None:
            offers = CandidateLeaves(site=self.site, counts=counts, empty=empty, terms=terms)
        _keep(self._offers, key, offers, most=_MOST_GANGS)
        return offers

    def counts(
        self,
        request: PlacementRequest,
        plan: PlacementPlan,
        *,
        leader: PlacementRequest | None = None,
        is_empty: bool = False,
    ) -> PodCounts:
        """Return how many pods of the request fit into every domain, as of now.

        Indexed by domain of the site's tree. The object is shared and follows the site: do not keep numbers
        from it across changes.
        """
        return self._counted(make_shape(request, leader, plan, is_empty=is_empty))

    def room(self, request: PlacementRequest) -> PodRoom | None:
        """Return the room for pods of the request, each node considered by itself.

        None where the request does not suit the topology.
        """
        plan = self.plan(request)
        if isinstance(plan, NoPlacement):
            return None
        return PodRoom(counts=self.counts(request, plan), needed=request.count)

    def _counted(self, shape: Shape) -> PodCounts:
        """Return the counts of a shape, up to date; at most `MOST_SHAPES` shapes are kept."""
        # Removed and inserted again, which makes it the most recently used.
        counts = self._counts.pop(shape, None)
        if counts is None:
            counts = PodCounts(self.site, shape, self._refusing(shape.rules))
        _keep(self._counts, shape, counts, most=MOST_SHAPES)
        counts.refresh()
        return counts

    def _refusing(self, rules: NodeRules) -> NodeExclusions:
        """Return which nodes refuse pods with these rules, shared by all shapes with the same rules."""
        # Shapes with equal rules share one result per node, whatever amounts they request.
        return next((one.refusals for one in self._counts.values() if one.shape.rules == rules), None) or (
            NodeExclusions(self.site, rules)
        )

    def _assignment(self, pods: Iterable[tuple[int, int]]) -> TopologyAssignment:
        """Return the assignment of pods to leaves as it is written to the Workload."""
        site = self.site
        values, entry = site.tree.values, site.domain_count
        # Sorted by level values, so that an assignment has the order of the tree.
        given = sorted([(values[leaf], leaf, count) for leaf, count in pods if count])
        return TopologyAssignment(
            levels=site.assignment_levels,
            domains=tuple([entry(leaf, count) for _, leaf, count in given]),
        )

    def _shortage(self, short: Shortage, plan: PlacementPlan, counts: PodCounts, within: int | None) -> str:
        """Return the message for a shortage, with what excluded the nodes."""
        unit = "slice(s)" if plan.slice_size > 1 else "pod(s)"
        if short.fitting:
            text = f"allows to fit only {short.fitting} out of {short.needed} {unit}"
        else:
            text = f"doesn't allow to fit any of {short.needed} {unit}"
        leaves = None if within is None else dict.fromkeys(self.site.tree.leaves_below(within))
        return f'topology "{self.topology}" {text}. {counts.describe_exclusions(leaves)}'


def _keep(kept: dict[_Key, _Value], key: _Key, value: _Value, *, most: int) -> None:
    """Insert the value as the most recently used, and drop the least recently used beyond `most`."""
    kept[key] = value
    while len(kept) > most:
        del kept[next(iter(kept))]
