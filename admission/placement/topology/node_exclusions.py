"""The nodes that refuse the pods of a request whatever is free on them, and why.

The reasons are taint, selector, affinity, bandwidth, hardware that does not fit, being outside the domain
that a reservation keeps, and that pods of the Workload could not be bound there.

They are computed once for each node and set of rules, and again when the node changes. Shapes with equal
rules share the result, and so do the real and the empty cluster. Nodes that are equal in all labels that the
rules name share a verdict: twenty thousand nodes are of a few kinds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from admission.hardware.fit import Misfit, misfit
from admission.hardware.node_hardware import NodeHardware
from admission.placement.topology.flavor_topology import FlavorTopology
from admission.placement.topology.request import NodeRules
from api.node import NodeInfo
from api.selectors import find_untolerated, keys_of_affinity, matches_node, taint_text

# The number of verdicts kept. It matters for rules that name a label with a distinct value on every node.
_MOST_VERDICTS = 1024

_Kind = tuple[str | None, ...]


@dataclass(slots=True, eq=False)
class NodeExclusions:
    """Why leaves refuse pods with these rules, in the words of Kueue's messages.

    Nodes are evaluated only where every leaf is one; the reserved domain is evaluated on any tree, and so is
    hardware: a leaf of several nodes is refused where none of them fits.
    """

    site: FlavorTopology
    rules: NodeRules
    by_leaf: dict[int, str] = field(default_factory=dict)
    _read_to: int = -1
    # The labels by which the rules distinguish nodes, and whether they also name nodes.
    _keys: tuple[str, ...] = field(init=False)
    _names_nodes: bool = field(init=False)
    _verdicts: dict[_Kind, str | None] = field(default_factory=dict)
    _misfits: dict[NodeHardware, Misfit | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rules = self.rules
        # The labels that the rules name decide which nodes they can distinguish.
        keys, self._names_nodes = keys_of_affinity(rules.affinity)
        selected = {key for key, _ in rules.node_selector}
        bandwidth = {rules.bandwidth.label} if rules.bandwidth is not None else set()
        self._keys = tuple(sorted(keys | selected | bandwidth))

    @property
    def _takes_all(self) -> bool:
        """Whether every node without taints may be used, so that only tainted nodes need evaluation."""
        return self._is_open and self.rules.hardware is None

    @property
    def _is_open(self) -> bool:
        """Whether nothing but taints and hardware refuses nodes."""
        rules = self.rules
        is_anywhere = not rules.node_selector and not rules.domain and not rules.excluded
        return is_anywhere and rules.affinity is None and rules.bandwidth is None

    def refresh(self) -> None:
        """Evaluate again the nodes that have changed since the last call.

        O(nodes changed), and all nodes where the log does not go back far enough.
        """
        log = self.site.nodes_log
        # Where a leaf is not one node its nodes are not evaluated, so there is nothing to update.
        is_judged = self.site.is_by_host or self.rules.domain or self.rules.hardware is not None
        if self._read_to == log.end or not is_judged:
            return
        changed = log.since(self._read_to)
        self._read_to = log.end
        if changed is not None:
            self._look_at(changed)
        elif self._takes_all:
            # Only tainted nodes can refuse; nodes that refused before may have lost their taint.
            self._look_at({**self.by_leaf, **self.site.tainted})
        elif self._is_open and self.site.is_by_host:
            self._refuse_kinds()
            self._look_at(self.site.tainted)
        else:
            self._look_at(self.site.tree.at_level[-1])

    def _refuse_kinds(self) -> None:
        """Refuse the leaves with a node of a kind that does not fit, and no others."""
        self.by_leaf.clear()
        for kind, leaves in self.site.kinds.items():
            found = self._misfit_of(kind)
            if found is not None:
                self.by_leaf.update(dict.fromkeys(leaves, found.reason))

    def _look_at(self, leaves: Iterable[int]) -> None:
        """Evaluate these leaves: by domain first, then by taint, by labels and by hardware."""
        hooked = self.site.tree.at_level[-1]
        for leaf in leaves:
            refusal = None
            if leaf in hooked:
                nodes = self.site.nodes[leaf].values()
                refusal = self._refusal_by_domain(leaf) or self._refusal_by_exclusion(leaf)
                if refusal is None:
                    refusal = self._refusal_by_nodes(nodes) if self.site.is_by_host else self._misfit(nodes)
            if refusal is None:
                self.by_leaf.pop(leaf, None)
            else:
                self.by_leaf[leaf] = refusal

    def _refusal_by_nodes(self, nodes: Collection[NodeInfo]) -> str | None:
        """Return why a host refuses the pods; one of its nodes suffices, since pods could be bound to it."""
        takes_all = self._takes_all
        for node in nodes:
            refusal = self._refusal_by_taint(node) if node.taints else None
            if refusal is None and not takes_all:
                refusal = self._refusal_by_labels(node) or self._misfit((node,))
            if refusal is not None:
                return refusal
        return None

    def _misfit(self, nodes: Collection[NodeInfo]) -> str | None:
        """Return why the hardware of none of these nodes fits, None where that of one does."""
        found = None
        for node in nodes:
            found = self._misfit_of(self.site.hardware.of(node))
            if found is None:
                return None
        return None if found is None else found.reason

    def _misfit_of(self, kind: NodeHardware) -> Misfit | None:
        """Return why nodes of this kind do not fit, evaluated once whatever their number."""
        if self.rules.hardware is None:
            return None
        if kind not in self._misfits:
            self._misfits[kind] = misfit(self.rules.hardware, kind)
        return self._misfits[kind]

    def _refusal_by_domain(self, leaf: int) -> str | None:
        domain = self.rules.domain
        is_outside = domain and self.site.tree.values[leaf][: len(domain)] != domain
        return "outsideReservation" if is_outside else None

    def _refusal_by_exclusion(self, leaf: int) -> str | None:
        host = self.site.tree.values[leaf][-1]
        return "couldNotBind" if self.site.is_by_host and host in self.rules.excluded else None

    def _refusal_by_taint(self, node: NodeInfo) -> str | None:
        taint = find_untolerated(node.taints, self.rules.tolerations)
        return None if taint is None else f'taint "{taint_text(taint)}"'

    def _refusal_by_labels(self, node: NodeInfo) -> str | None:
        """Return why the node's labels do not meet the rules, with the verdict for its kind of node."""
        kind: _Kind = (*map(node.labels.get, self._keys),)
        if self._names_nodes:
            # Rules that name nodes distinguish every node.
            kind = (*kind, node.name)
        if kind not in self._verdicts:
            # The rules name a label with a distinct value on each node. Clearing the cache
            # only costs computing verdicts again.
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            self._verdicts[kind] = self._judge(node)
        return self._verdicts[kind]

    def _judge(self, node: NodeInfo) -> str | None:
        """Return why the labels of a node do not suit the rules, None where they do."""
        rules = self.rules
        has_selected, meets = matches_node(
            dict(rules.node_selector), rules.affinity, name=node.name, labels=node.labels
        )
        if not has_selected:
            return "nodeSelector"
        if not meets:
            return "affinity"
        if rules.bandwidth is not None and not rules.bandwidth.is_met(node.labels):
            return "networkBandwidth"
        return None
