"""Which nodes refuse the pods of a request whatever is free on them: by taint, selector, affinity, bandwidth.

Worked out once for each node and set of rules, and again when the node changes. Shapes that ask for other
amounts by the same rules share the answer, and so do the real cluster and the empty one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.placement.request import NodeRules
from admission.placement.site import Site
from api.node import NodeInfo
from api.selectors import find_untolerated, matches_node, taint_text


@dataclass(slots=True, eq=False)
class Refusals:
    """Why leaves refuse pods of these rules, in the field's words. Only leaves that are a node do."""

    site: Site
    rules: NodeRules
    by_leaf: dict[int, str] = field(default_factory=dict)
    _read_to: int = -1
    # Whether every node without taints may be used, so that only taints are to be looked at.
    _takes_all: bool = field(init=False)

    def __post_init__(self) -> None:
        rules = self.rules
        self._takes_all = not rules.node_selector and rules.affinity is None and rules.bandwidth is None

    def refresh(self) -> None:
        """Look again at the nodes that have changed since the last time."""
        log = self.site.nodes_log
        if self._read_to == log.end or not self.site.is_by_host:
            return
        changed = log.since(self._read_to)
        self._read_to = log.end
        self._look_at(self.site.tree.at_level[-1] if changed is None else changed)

    def _look_at(self, leaves: Iterable[int]) -> None:
        nodes, hooked = self.site.nodes, self.site.tree.at_level[-1]
        for leaf in leaves:
            refusal = self._refusal(nodes[leaf]) if leaf in hooked else None
            if refusal is None:
                self.by_leaf.pop(leaf, None)
            else:
                self.by_leaf[leaf] = refusal

    def _refusal(self, nodes: Mapping[str, NodeInfo]) -> str | None:
        rules = self.rules
        for node in nodes.values():
            if node.taints:
                taint = find_untolerated(node.taints, rules.tolerations)
                if taint is not None:
                    return f'taint "{taint_text(taint)}"'
            if not self._takes_all:
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
