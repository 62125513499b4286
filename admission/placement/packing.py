"""Pods on nodes by the gradient of fragmentation: where the least of the free GPUs becomes useless.

For one shape of pods on one site. A pod goes to the node with the lowest rise of fragmentation
(`admission.placement.fragmentation`), the next one likewise, as if the first was there. Nodes are compared by
heap (`TopCandidate`) and judged again only where something has changed since, or where another mix of demands
is known. Which nodes hold the pods at all is decided by the counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from admission.placement.fragmentation import Demand, Gradient, NodeState, Rise
from admission.placement.fragmentation_mix import DemandMix
from admission.placement.top_candidate import CandidateFamily, RankedCandidate, TopCandidate
from admission.placement.topology.flavor_topology import Amounts
from admission.placement.topology.pod_counts import PodCounts
from api.jobs.gpu_share import WHOLE, share_in
from api.jobs.resource_requests import gpus_of
from queues.steps import Steps

_FAMILY = CandidateFamily(0, 0, ())


def demand_of(per_pod: Amounts) -> Demand:
    """Return what a pod that takes these amounts of its node demands."""
    share, cpu = share_in(per_pod), per_pod.get("cpu", 0)
    if share is not None:
        return Demand(cpu, 1, share.milli)
    return Demand(cpu, gpus_of(per_pod), WHOLE)


@dataclass(slots=True, eq=False, kw_only=True)
class PackedNodes:
    """The nodes of a site, compared for pods of one shape. `counts` must be up to date when it is asked."""

    counts: PodCounts
    mix: DemandMix
    _demand: Demand = field(init=False)
    _gradient: Gradient | None = None
    _nodes: TopCandidate | None = None
    _known: set[int] = field(default_factory=set)
    _nodes_read: int = -1
    _uses_read: int = -1
    # What nodes of equal state cost, for the present gradient.
    _costs: dict[NodeState, tuple[Rise, NodeState] | None] = field(default_factory=dict)
    # The state of nodes that got a pod of the gang that is being placed, and how many more they hold.
    _trial: dict[int, tuple[NodeState, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._demand = demand_of(dict(self.counts.shape.per_pod))

    def preparing(self) -> Steps[None]:
        """Do in steps what `anywhere` needs and does not know yet."""
        yield from self._refreshed().judging()

    def anywhere(self, pods: int) -> list[tuple[int, int]] | None:
        """Return nodes of the site with the pods that each gets; None where they do not hold all."""
        nodes = self._refreshed()
        given: dict[int, int] = {}
        for left in range(pods, 0, -1):
            best = nodes.best()
            if best is None:
                break
            (leaf,) = best[1]
            given[leaf] = given.get(leaf, 0) + 1
            # Nothing follows the last pod, and most pod sets that are packed have only one.
            if left > 1:
                self._take(leaf)
                nodes.changed((leaf,))
        touched = list(self._trial)
        self._trial.clear()
        nodes.changed(touched)
        return list(given.items()) if sum(given.values()) == pods else None

    def within(self, leaves: Sequence[int], pods: int) -> list[tuple[int, int]] | None:
        """Return some of these nodes with the pods that each gets; None where they do not hold all.

        O(nodes · pods), for the nodes of one leaf switch.
        """
        self._follow_mix()
        given: dict[int, int] = {}
        values = self.counts.site.tree.values
        for _ in range(pods):
            costs = [(cost[0], values[leaf], leaf) for leaf in leaves if (cost := self._cost(leaf))]
            if not costs:
                break
            leaf = min(costs)[-1]
            given[leaf] = given.get(leaf, 0) + 1
            self._take(leaf)
        self._trial.clear()
        return list(given.items()) if sum(given.values()) == pods else None

    # --- within ------------------------------------------------------------------------------------------

    def _refreshed(self) -> TopCandidate:
        """Return the comparison of all nodes, which follows the site's logs."""
        site = self.counts.site
        changed, used = site.nodes_log.since(self._nodes_read), site.uses_log.since(self._uses_read)
        self._nodes_read, self._uses_read = site.nodes_log.end, site.uses_log.end
        nodes = self._nodes
        is_known = not self._follow_mix() and changed is not None and used is not None
        if nodes is None or not is_known or not (changed or set()) <= self._known:
            self._known = set(site.tree.at_level[-1])
            nodes = self._nodes = TopCandidate(
                tuple([(leaf,) for leaf in self._known]), self._judge, lambda _: ()
            )
        else:
            nodes.changed((changed or set()) | (used or set()))
        return nodes

    def _follow_mix(self) -> bool:
        """Take the present gradient. Return whether it is another one."""
        gradient = self.mix.gradient
        if gradient is self._gradient:
            return False
        self._gradient = gradient
        self._costs.clear()
        return True

    def _judge(self, group: tuple[int, ...]) -> RankedCandidate | None:
        (leaf,) = group
        cost = self._cost(leaf)
        return (
            None if cost is None else RankedCandidate(_FAMILY, (cost[0], self.counts.site.tree.values[leaf]))
        )

    def _cost(self, leaf: int) -> tuple[Rise, NodeState] | None:
        """Return what one more pod costs on the leaf and what it leaves, None where it does not fit."""
        state, room = self._trial.get(leaf) or (None, self.counts.pods[leaf])
        if room <= 0:
            return None
        if state is None:
            state = self._state(leaf)
        if state not in self._costs:
            assert self._gradient is not None, "the mix was followed"
            self._costs[state] = self._gradient.rise(state, self._demand)
        return self._costs[state]

    def _take(self, leaf: int) -> None:
        """Count a pod of the gang on the leaf, for which it has room."""
        room = self._trial[leaf][1] if leaf in self._trial else self.counts.pods[leaf]
        cost = self._cost(leaf)
        assert cost is not None, "the leaf was chosen"
        self._trial[leaf] = cost[1], room - 1

    def _state(self, leaf: int) -> NodeState:
        """Return what the leaf has free, as the counts see it."""
        site, is_empty = self.counts.site, self.counts.shape.is_empty
        cpu = (site.capacity if is_empty else site.free)("cpu")[leaf]
        hardware, placed = site.hardware, () if is_empty else ((site.owner, site.names[leaf]),)
        gpus: Iterable[int] = [
            max(0, left.milli)
            for node in site.nodes[leaf].values()
            for left in hardware.gpu_pods.free(hardware.of(node), (node.name, *placed))
        ]
        return NodeState(max(0, cpu), tuple(sorted(gpus)))
