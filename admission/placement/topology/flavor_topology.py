"""One flavor's nodes as a tree of domains, with what is free in every leaf, kept as events come.

Theory of operation. A decision asks for sums over thousands of nodes, and changes a handful of them. So
nothing is summed up when it is asked for; each event leaves its mark where it happens, and what is derived
follows along the path of the change alone:

    event                     here, by leaf                             read by
    node put or dropped       capacity, free, one entry in `nodes_log`  refusals and counts
    pod of others             capacity, free, one entry in `nodes_log`
    Workload placed or gone   free, one entry in `uses_log`             counts as of now

    capacity(leaf)  =  allocatable of its nodes  -  what other pods take of them
    free(leaf)      =  capacity(leaf)  -  what placed Workloads take

Both are columns, a list of integers for each resource beside the tree: a shape that asks for two resources
reads two numbers a leaf and no mapping. `capacity` is kept apart from `free` since a Workload may also be
judged on the empty cluster: could it ever be placed? Nothing that Workloads do is read for that, which is
what the two logs are for.

Readers come when they are asked something (`admission.placement.topology.pod_counts`): a thousand
events between two questions cost the leaves that they touched once each, and a flavor that nobody asks
costs its columns alone. Pushing each event to every reader was the other way; it pays for shapes that
nobody asks for again. Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go, which copies the free
capacity for each cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.placement.topology.changelog import ChangeLog
from admission.placement.topology.tree import DomainTree, Values
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.workload import DomainCount

Amounts = Mapping[str, int]
# Who uses a leaf is known by the values that an assignment names: the hostname alone, or those of all levels.
UsedByLeaf = dict[Values, dict[str, int]]

_NOTHING: Amounts = {}


@dataclass(slots=True, eq=False)
class FlavorTopology:
    """The nodes of one flavor. `used` is what placed Workloads take, shared among flavors by hostname.

    `is_by_host`: every leaf is a node. A node that is away keeps what is used of it: its Workloads hold it
    until they are replaced, and find it taken when the node comes back.
    """

    levels: tuple[str, ...]
    node_labels: Mapping[str, str]
    used: UsedByLeaf
    tree: DomainTree = field(init=False)
    nodes: dict[int, dict[str, NodeInfo]] = field(default_factory=dict)
    # Leaves with a tainted node: few as a rule, and all that may refuse pods without a selector.
    tainted: dict[int, None] = field(default_factory=dict)
    nodes_log: ChangeLog = field(default_factory=ChangeLog)
    uses_log: ChangeLog = field(default_factory=ChangeLog)
    is_by_host: bool = field(init=False)
    # By resource, then by leaf; domains above stand in the lists as zeros.
    _capacity: dict[str, list[int]] = field(default_factory=dict)
    _free: dict[str, list[int]] = field(default_factory=dict)
    # The values by which an assignment names each leaf.
    names: dict[int, Values] = field(default_factory=dict)
    _entries: dict[tuple[int, int], DomainCount] = field(default_factory=dict)
    _left_on_node: dict[str, dict[str, int]] = field(default_factory=dict)
    _leaf_of_node: dict[str, int] = field(default_factory=dict)
    # One leaf as a rule. A node that moves to another rack makes a second one of its hostname; all of them
    # follow what is used of the host, so that it may move back at any time.
    _leaves_of_values: dict[Values, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tree = DomainTree(len(self.levels))
        self.is_by_host = self.levels[-1] == HOSTNAME

    # --- events -------------------------------------------------------------------------------------------

    def put_node(self, node: NodeInfo, taken: Amounts) -> bool:
        """Take in a node, of which other pods take `taken`. Returns whether it is one of this flavor's."""
        # Known before: where nothing else changed it is the same to the flavor.
        was_known = self.drop_node(node.name)
        if self.refusal(node) is not None:
            return was_known
        leaf = self._hook(tuple(node.labels[level] for level in self.levels))
        self._leaf_of_node[node.name] = leaf
        self.nodes.setdefault(leaf, {})[node.name] = node
        if node.taints:
            self.tainted[leaf] = None
        left = self._left_on_node[node.name] = dict(node.allocatable)
        for resource, amount in taken.items():
            left[resource] = left.get(resource, 0) - amount
        self._change_capacity(leaf, left, sign=1)
        return True

    def _hook(self, values: Values) -> int:
        leaf = self.tree.hook(values)
        # A host that was there before keeps its index, and all that is remembered by it.
        if leaf in self.names:
            return leaf
        # A new leaf is a new row in every column.
        for columns in (self._capacity, self._free):
            for column in columns.values():
                column.extend([0] * (len(self.tree) - len(column)))
        name = self.names[leaf] = values[-1:] if self.is_by_host else values
        self._leaves_of_values[name] = (*self._leaves_of_values.get(name, ()), leaf)
        # What Workloads hold of it stands already: they kept their places while the host was away.
        for resource, amount in self.used.get(name, _NOTHING).items():
            self.free(resource)[leaf] -= amount
        return leaf

    def drop_node(self, name: str) -> bool:
        """Forget a node. Returns whether it was one of this flavor's."""
        leaf = self._leaf_of_node.pop(name, None)
        if leaf is None:
            return False
        del self.nodes[leaf][name]
        # The last tainted node of the leaf has gone.
        if leaf in self.tainted and not any(node.taints for node in self.nodes[leaf].values()):
            del self.tainted[leaf]
        # A leaf without nodes leaves the tree; its numbers stay where they are.
        if not self.nodes[leaf]:
            self.tree.unhook(leaf)
        self._change_capacity(leaf, self._left_on_node.pop(name), sign=-1)
        return True

    def take(self, node: str, amounts: Amounts, *, sign: int) -> bool:
        """Count what another pod takes of a node (sign 1), or gives back (-1). Returns whether it is ours."""
        leaf = self._leaf_of_node.get(node)
        if leaf is None:
            return False
        left = self._left_on_node[node]
        for resource, amount in amounts.items():
            left[resource] = left.get(resource, 0) - sign * amount
        # Other pods take from the capacity: nothing of it can be had, whoever asks.
        self._change_capacity(leaf, amounts, sign=-sign)
        return True

    def shrink(self, values: Values, amounts: Amounts) -> None:
        """Take `amounts` of a leaf itself (negative: give back), for trials on the empty cluster."""
        for leaf in self._leaves_of_values.get(values, ()):
            self._change_capacity(leaf, amounts, sign=-1)

    def use(self, names: Iterable[Values], amounts: Amounts) -> None:
        """Note that Workloads use so much more of each leaf that is named (negative: less)."""
        # Looked up once and not once a resource: a gang of a thousand hosts changes three of them.
        find = self._leaves_of_values.get
        leaves = [leaf for name in names for leaf in find(name, ())]
        for resource, amount in amounts.items():
            column = self.free(resource)
            for leaf in leaves:
                column[leaf] -= amount
        self.uses_log.extend(leaves)

    def touch(self, names: Iterable[Values]) -> None:
        """Note that leaves are to be looked at again, though nothing of them is used otherwise."""
        find = self._leaves_of_values.get
        self.uses_log.extend([leaf for name in names for leaf in find(name, ())])

    def _change_capacity(self, leaf: int, amounts: Amounts, *, sign: int) -> None:
        for resource, amount in amounts.items():
            self.capacity(resource)[leaf] += sign * amount
            # Both columns: the empty cluster is smaller by that, too.
            self.free(resource)[leaf] += sign * amount
        self.nodes_log.add(leaf)

    # --- what there is ------------------------------------------------------------------------------------

    def capacity(self, resource: str) -> list[int]:
        """Return what leaves have of a resource that other pods do not take, by index."""
        column = self._capacity.get(resource)
        return column if column is not None else self._column(self._capacity, resource)

    def free(self, resource: str) -> list[int]:
        """Return what leaves have left of a resource, by index; negative where more is used than is there."""
        column = self._free.get(resource)
        return column if column is not None else self._column(self._free, resource)

    def _column(self, columns: dict[str, list[int]], resource: str) -> list[int]:
        columns[resource] = [0] * len(self.tree)
        return columns[resource]

    def free_of(self, leaf: int) -> dict[str, int]:
        """Return what is left of all resources in a leaf."""
        return {resource: column[leaf] for resource, column in self._free.items()}

    def find_leaf(self, values: Values) -> int | None:
        """Return the leaf that an assignment's level values name, None where it has no nodes now."""
        leaves = self._leaves_of_values.get(values[-1:] if self.is_by_host else values, ())
        # The last first: after a node moved it is its new leaf that counts.
        return next((leaf for leaf in reversed(leaves) if self.tree.is_hooked(leaf)), None)

    def domain_count(self, leaf: int, count: int) -> DomainCount:
        """Return the entry of an assignment that puts `count` pods on the leaf, the same one each time."""
        key = leaf, count
        # The same entries again and again, in thousands of assignments: kept, they cost nothing but a look.
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = DomainCount(values=self.names[leaf], count=count)
        return entry

    @property
    def assignment_levels(self) -> tuple[str, ...]:
        """The levels that an assignment gives values of: a hostname says all above it."""
        return self.levels[-1:] if self.is_by_host else self.levels

    def used_of(self, leaf: int) -> Amounts:
        """Return what placed Workloads take of the leaf."""
        return self.used.get(self.names[leaf], _NOTHING)

    # --- whose nodes --------------------------------------------------------------------------------------

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
            # Labels before levels: a node of another flavor says nothing about this one.
            if node.labels.get(key) != value:
                return f"label {key} is not {value}"
        missing = next((level for level in self.levels if level not in node.labels), None)
        return f"lacks the label {missing}" if missing is not None else None
