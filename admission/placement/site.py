"""One flavor's nodes as a tree of domains, with what is free in every leaf, kept as events come.

    free(leaf)  =  allocatable of its nodes  -  what other pods take of them  -  what placed Workloads take

The last term is kept apart (`used`), since a Workload may also be judged on the empty cluster: could it ever
be placed? What changes is noted in a log. Whoever has worked something out about the domains reads in the
log which to look at again (`admission.placement.counts`), so a decision costs what changed, not what exists.
Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.placement.tree import DomainTree, Values
from api.keys import HOSTNAME
from api.node import NodeInfo

Amounts = Mapping[str, int]
# Who uses a leaf is known by the values that an assignment names: the hostname alone, or those of all levels.
UsedByLeaf = dict[Values, dict[str, int]]

_NOTHING: Amounts = {}
# Above this many entries the log is begun anew; what is worked out is then worked out in full once.
_LONGEST_LOG = 100_000


@dataclass(slots=True, eq=False)
class Site:
    """The nodes of one flavor. `used` is what placed Workloads take, shared among flavors by hostname.

    `is_by_host`: every leaf is a node.
    """

    levels: tuple[str, ...]
    node_labels: Mapping[str, str]
    used: UsedByLeaf
    tree: DomainTree = field(init=False)
    nodes: dict[int, dict[str, NodeInfo]] = field(default_factory=dict)
    capacity: dict[int, dict[str, int]] = field(default_factory=dict)
    log: list[int] = field(default_factory=list)
    log_begins: int = 0
    is_by_host: bool = field(init=False)
    # The values by which an assignment names each leaf.
    _names: dict[int, Values] = field(default_factory=dict)
    _left_on_node: dict[str, dict[str, int]] = field(default_factory=dict)
    _leaf_of_node: dict[str, int] = field(default_factory=dict)
    _leaf_of_values: dict[Values, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tree = DomainTree(len(self.levels))
        self.is_by_host = self.levels[-1] == HOSTNAME

    def put_node(self, node: NodeInfo, taken: Amounts) -> bool:
        """Take in a node, of which other pods take `taken`. Returns whether it is one of this flavor's."""
        was_known = self.drop_node(node.name)
        if self.refusal(node) is not None:
            return was_known
        leaf = self.tree.hook(tuple(node.labels[level] for level in self.levels))
        self._leaf_of_node[node.name] = leaf
        values = self.tree.values[leaf]
        self._names[leaf] = values[-1:] if self.is_by_host else values
        self._leaf_of_values[self._names[leaf]] = leaf
        self.nodes.setdefault(leaf, {})[node.name] = node
        left = self._left_on_node[node.name] = dict(node.allocatable)
        _subtract(left, taken)
        _add(self.capacity.setdefault(leaf, {}), left)
        self._touch(leaf)
        return True

    def drop_node(self, name: str) -> bool:
        """Forget a node. Returns whether it was one of this flavor's."""
        leaf = self._leaf_of_node.pop(name, None)
        if leaf is None:
            return False
        del self.nodes[leaf][name]
        _subtract(self.capacity[leaf], self._left_on_node.pop(name))
        if not self.nodes[leaf]:
            self.tree.unhook(leaf)
        self._touch(leaf)
        return True

    def take(self, node: str, amounts: Amounts, *, sign: int) -> bool:
        """Count what another pod takes of a node (sign 1), or gives back (-1). Returns whether it is ours."""
        leaf = self._leaf_of_node.get(node)
        if leaf is None:
            return False
        change = _subtract if sign > 0 else _add
        change(self.capacity[leaf], amounts)
        change(self._left_on_node[node], amounts)
        self._touch(leaf)
        return True

    def shrink(self, values: Values, amounts: Amounts) -> None:
        """Take `amounts` of a leaf itself (negative: give back), for trials on the empty cluster."""
        leaf = self._leaf_of_values.get(values)
        if leaf is not None:
            _subtract(self.capacity[leaf], amounts)
            self._touch(leaf)

    def touch(self, values: Values) -> None:
        """Note that what Workloads use of this leaf has changed."""
        leaf = self._leaf_of_values.get(values)
        if leaf is not None:
            self._touch(leaf)

    def find_leaf(self, values: Values) -> int | None:
        """Return the leaf that an assignment's level values name, None where it has no nodes now."""
        leaf = self._leaf_of_values.get(values[-1:] if self.is_by_host else values)
        return leaf if leaf is not None and self.tree.is_hooked(leaf) else None

    def leaf_values(self, leaf: int) -> Values:
        """Return the values by which an assignment names the leaf."""
        return self._names[leaf]

    @property
    def assignment_levels(self) -> tuple[str, ...]:
        """The levels that an assignment gives values of: a hostname says all above it."""
        return self.levels[-1:] if self.is_by_host else self.levels

    def used_of(self, leaf: int) -> Amounts:
        """Return what placed Workloads take of the leaf."""
        return self.used.get(self._names[leaf], _NOTHING)

    def is_of_flavor(self, node: NodeInfo) -> bool:
        """Return whether the node carries the flavor's labels, be it usable or not."""
        return all(node.labels.get(key) == value for key, value in self.node_labels.items())

    def refusal(self, node: NodeInfo) -> str | None:
        """Return why the node is none of this flavor's, whoever asks; None where it is one."""
        if not node.is_ready:
            return "not ready"
        if node.is_unschedulable:
            return "cordoned"
        for key, value in self.node_labels.items():
            if node.labels.get(key) != value:
                return f"label {key} is not {value}"
        missing = next((level for level in self.levels if level not in node.labels), None)
        return f"lacks the label {missing}" if missing is not None else None

    def _touch(self, leaf: int) -> None:
        if len(self.log) >= _LONGEST_LOG:
            self.log_begins += len(self.log)
            self.log.clear()
        self.log.append(leaf)


def _add(total: dict[str, int], more: Amounts) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _subtract(total: dict[str, int], less: Amounts) -> None:
    for resource, amount in less.items():
        total[resource] = total.get(resource, 0) - amount
