"""One flavor's nodes as a tree of domains, with what is free in every leaf, updated with each event.

Theory of operation. A decision reads sums over thousands of nodes and changes a handful of them. Sums are
therefore not computed when they are read. Each event changes the numbers where it happens, and derived values
follow along the path of the change alone:

    event                     changes here, by leaf                     read by
    node added or removed     capacity, free, one entry in `nodes_log`  exclusions and counts
    pod of others             capacity, free, one entry in `nodes_log`
    Workload placed or gone   free, one entry in `uses_log`             counts of the present

    capacity(leaf)  =  allocatable of its nodes  -  what other pods take of them
    free(leaf)      =  capacity(leaf)  -  what placed Workloads take

Both are columns, a list of integers for each resource beside the tree: a shape with two resources reads
two numbers per leaf and no mapping. `capacity` is separate from `free` because a Workload may also be
judged on the empty cluster: could it ever be placed? That reads nothing that Workloads change, which is
why there are two logs.

Readers read the logs when they are asked (`admission.placement.topology.pod_counts`): a thousand events
between two questions cost each touched leaf once, and a flavor that is not asked for costs only its columns.
The alternative, notifying every reader of each event, also costs shapes that are never asked for again.
Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go, which copies the free capacity for each cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.hardware.inventory import HardwareInventory
from admission.hardware.node_hardware import NodeHardware
from admission.placement.topology.address_book import AddressBook
from admission.placement.topology.changelog import ChangeLog
from admission.placement.topology.tree import DomainTree, Values
from api.jobs.gpu_share import WHOLE
from api.jobs.inference_memory import INFERENCE_MEMORY
from api.keys import ADDRESS, GPU_MEMORY_MIB, GPU_MILLI, HOSTNAME
from api.node import NodeInfo
from api.parsing.quantities import add_amounts
from api.workload import DomainCount

Amounts = Mapping[str, int]
# Usage of a leaf is keyed by the values in an assignment: the hostname alone, or the values of all levels.
UsedByLeaf = dict[Values, dict[str, int]]

_NOTHING: Amounts = {}
_MIB_PER_GB = 1024
_UNLIMITED = 1 << 60


@dataclass(slots=True, eq=False)
class FlavorTopology:
    """The nodes of one flavor. `used` is what placed Workloads take; flavors by hostname share it.

    `is_by_host`: every leaf is one node. Usage of a node that is absent is kept: its Workloads hold it until
    they are replaced, and it is still counted when the node returns.
    """

    flavor: str
    levels: tuple[str, ...]
    node_labels: Mapping[str, str]
    used: UsedByLeaf
    # The owner of the leaves as spots: empty for hosts, which flavors share, otherwise the flavor.
    owner: str = field(init=False)
    tree: DomainTree = field(init=False)
    nodes: dict[int, dict[str, NodeInfo]] = field(default_factory=dict)
    # Leaves with a tainted node: as a rule few, and the only ones that refuse pods without a selector.
    tainted: dict[int, None] = field(default_factory=dict)
    # What nodes offer, and their pools of addresses, which all flavors share.
    hardware: HardwareInventory = field(default_factory=HardwareInventory)
    addresses: AddressBook = field(default_factory=AddressBook)
    # The leaves with a node of each kind, so that a new request costs an answer for each kind.
    kinds: dict[NodeHardware, dict[int, None]] = field(default_factory=dict)
    # How many of the kinds have GPUs that are not all linked, and how many offer theirs several times.
    unlinked_kinds: int = 0
    oversold_kinds: int = 0
    nodes_log: ChangeLog = field(default_factory=ChangeLog)
    uses_log: ChangeLog = field(default_factory=ChangeLog)
    is_by_host: bool = field(init=False)
    # By resource, then by leaf. The entries of domains above leaves are 0.
    _capacity: dict[str, list[int]] = field(default_factory=dict)
    _free: dict[str, list[int]] = field(default_factory=dict)
    # The values by which an assignment identifies each leaf.
    names: dict[int, Values] = field(default_factory=dict)
    _entries: dict[tuple[int, int], DomainCount] = field(default_factory=dict)
    _left_on_node: dict[str, dict[str, int]] = field(default_factory=dict)
    _leaf_of_node: dict[str, int] = field(default_factory=dict)
    # As a rule one leaf. A node that moves to another rack adds a second leaf for its hostname. Usage of the
    # host is counted on all of them, so that the node may move back at any time.
    _leaves_of_values: dict[Values, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tree = DomainTree(len(self.levels))
        self.is_by_host = self.levels[-1] == HOSTNAME
        self.owner = "" if self.is_by_host else self.flavor

    # --- events -------------------------------------------------------------------------------------------

    def put_node(self, node: NodeInfo, taken: Amounts) -> bool:
        """Add or update a node, of which other pods take `taken`. Return whether the flavor is affected.

        Amounts are in canonical units. A node that is not ready, is cordoned or lacks a label is left out,
        and removed if it was known.
        """
        # The former version is removed first. If the new one does not belong to the flavor,
        # that was a change.
        was_known = self.drop_node(node.name)
        if self.refusal(node) is not None:
            return was_known
        leaf = self._hook(tuple(node.labels[level] for level in self.levels))
        self._leaf_of_node[node.name] = leaf
        self.nodes.setdefault(leaf, {})[node.name] = node
        kind = self.hardware.of(node)
        if kind not in self.kinds:
            self._count_kind(kind, 1)
        self.kinds.setdefault(kind, {})[leaf] = None
        if node.taints:
            self.tainted[leaf] = None
        left = self._left_on_node[node.name] = dict(node.allocatable)
        if kind.devices:
            # What shares of GPUs are taken from, beside the GPUs themselves.
            left[GPU_MILLI] = WHOLE * kind.devices
            left[GPU_MEMORY_MIB] = kind.memory_mib * kind.devices
        # What pods of inference use of all its GPUs together; without limit where that is not known.
        left[INFERENCE_MEMORY] = kind.total_memory_gb * _MIB_PER_GB or _UNLIMITED
        if addresses := self.addresses.pool_size(node.name):
            # The most that it may have: other nodes may share its pool (`address_room`).
            left[ADDRESS] = addresses
        add_amounts(left, taken, -1)
        self._change_capacity(leaf, left, sign=1)
        return True

    def _hook(self, values: Values) -> int:
        """Attach a leaf to the tree and return its index; a known one keeps index and usage."""
        leaf = self.tree.attach(values)
        # A host that was known before keeps its index, and everything recorded under it.
        if leaf in self.names:
            return leaf
        # A new leaf adds a row to every column.
        for columns in (self._capacity, self._free):
            for column in columns.values():
                column.extend([0] * (len(self.tree) - len(column)))
        name = self.names[leaf] = values[-1:] if self.is_by_host else values
        self._leaves_of_values[name] = (*self._leaves_of_values.get(name, ()), leaf)
        # Usage may exist already: Workloads keep their places while a host is absent.
        for resource, amount in self.used.get(name, _NOTHING).items():
            self.free(resource)[leaf] -= amount
        return leaf

    def drop_node(self, name: str) -> bool:
        """Remove a node. Return whether it belonged to this flavor.

        Usage of Workloads on it stays recorded, for its return: their pods may still run.
        """
        leaf = self._leaf_of_node.pop(name, None)
        if leaf is None:
            return False
        kind = self.hardware.of(self.nodes[leaf].pop(name))
        # Two nodes of one kind may share a leaf.
        if all(self.hardware.of(node) != kind for node in self.nodes[leaf].values()):
            del self.kinds[kind][leaf]
            if not self.kinds[kind]:
                del self.kinds[kind]
                self._count_kind(kind, -1)
        # The last tainted node of the leaf is gone.
        if leaf in self.tainted and not any(node.taints for node in self.nodes[leaf].values()):
            del self.tainted[leaf]
        # A leaf without nodes leaves the tree; its entries in the columns stay.
        if not self.nodes[leaf]:
            self.tree.detach(leaf)
        self._change_capacity(leaf, self._left_on_node.pop(name), sign=-1)
        return True

    def _count_kind(self, kind: NodeHardware, change: int) -> None:
        """Count a kind of nodes that is new (1) or gone (-1)."""
        # Without GPUs there are none to link: amounts keep pods off.
        if kind.gpus and not kind.is_one_island:
            self.unlinked_kinds += change
        if kind.offers_more_than_it_has:
            self.oversold_kinds += change

    def take(self, node: str, amounts: Amounts, *, sign: int) -> bool:
        """Count what another pod takes of a node (sign 1) or gives back (-1). Return whether it is ours.

        For pods that Berth has not placed, such as DaemonSets. What Workloads take is recorded by `use`.
        """
        leaf = self._leaf_of_node.get(node)
        if leaf is None:
            return False
        add_amounts(self._left_on_node[node], amounts, -sign)
        # Other pods reduce the capacity, because no Workload can have what they use.
        self._change_capacity(leaf, amounts, sign=-sign)
        return True

    def shrink(self, values: Values, amounts: Amounts) -> None:
        """Take `amounts` from a leaf's capacity (negative: give back), for trials on the empty cluster.

        `values` are the level values of the leaf; leaves of that name that are not attached count as well.
        """
        for leaf in self._leaves_of_values.get(values, ()):
            self._change_capacity(leaf, amounts, sign=-1)

    def use(self, names: Iterable[Values], amounts: Amounts) -> None:
        """Record that Workloads use this much more of each named leaf (negative: less).

        Names without nodes have no effect here. May make `free` negative.
        """
        # Leaves are looked up once and not per resource: a gang has a thousand hosts
        # and about three resources.
        find = self._leaves_of_values.get
        leaves = [leaf for name in names for leaf in find(name, ())]
        for resource, amount in amounts.items():
            column = self.free(resource)
            for leaf in leaves:
                column[leaf] -= amount
        self.uses_log.extend(leaves)

    def touch(self, names: Iterable[Values]) -> None:
        """Record that leaves must be evaluated again, although their usage is unchanged."""
        find = self._leaves_of_values.get
        self.uses_log.extend([leaf for name in names for leaf in find(name, ())])

    def touch_node(self, name: str) -> bool:
        """Record that a node must be evaluated again, although what is taken of it is unchanged.

        Return whether it is one of the flavor's.
        """
        leaf = self._leaf_of_node.get(name)
        if leaf is not None:
            self.nodes_log.add(leaf)
        return leaf is not None

    def _change_capacity(self, leaf: int, amounts: Amounts, *, sign: int) -> None:
        """Change what a leaf has, in both columns, and log that it has changed."""
        for resource, amount in amounts.items():
            self.capacity(resource)[leaf] += sign * amount
            # Both columns, because the capacity of the empty cluster changes as well.
            self.free(resource)[leaf] += sign * amount
        self.nodes_log.add(leaf)

    # --- what there is ------------------------------------------------------------------------------------

    def leaf_of(self, node: str) -> int | None:
        """Return the leaf of a node, None where it is none of the flavor's."""
        return self._leaf_of_node.get(node)

    def capacity(self, resource: str) -> list[int]:
        """Return the column of what leaves have of a resource, less what other pods take.

        Indexed by leaf. The list is the live column: do not change it.
        """
        column = self._capacity.get(resource)
        return column if column is not None else self._column(self._capacity, resource)

    def free(self, resource: str) -> list[int]:
        """Return the column of what leaves have left of a resource; negative where usage exceeds capacity.

        Indexed by leaf. The list is the live column: do not change it.
        """
        column = self._free.get(resource)
        return column if column is not None else self._column(self._free, resource)

    def _column(self, columns: dict[str, list[int]], resource: str) -> list[int]:
        """Add the column of a resource that no node has had so far."""
        columns[resource] = [0] * len(self.tree)
        return columns[resource]

    def free_of(self, leaf: int) -> dict[str, int]:
        """Return what a leaf has left of every resource."""
        return {resource: column[leaf] for resource, column in self._free.items()}

    def find_leaf(self, values: Values) -> int | None:
        """Return the leaf that an assignment's level values name, None where it has no nodes at present.

        O(1). Where the lowest level is the hostname only the host counts, so a node that moved to another
        rack is found.
        """
        leaves = self._leaves_of_values.get(values[-1:] if self.is_by_host else values, ())
        # The last one first, because a node that moved is now on its latest leaf.
        for leaf in reversed(leaves):
            if self.tree.is_attached(leaf):
                return leaf
        return None

    def spot_of(self, values: Values) -> tuple[str, Values]:
        """Return the spot that an assignment's level values name."""
        return self.owner, values[-1:] if self.is_by_host else values

    def domain_count(self, leaf: int, count: int) -> DomainCount:
        """Return the entry of an assignment that puts `count` pods on the leaf."""
        key = leaf, count
        # Cached, because thousands of assignments have the same entries.
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = DomainCount(values=self.names[leaf], count=count)
        return entry

    @property
    def assignment_levels(self) -> tuple[str, ...]:
        """The levels of an assignment. A hostname identifies a node without the levels above it."""
        return self.levels[-1:] if self.is_by_host else self.levels

    def used_of(self, leaf: int) -> Amounts:
        """Return what placed Workloads take of the leaf."""
        return self.used.get(self.names[leaf], _NOTHING)

    # --- membership ---------------------------------------------------------------------------------------

    def is_of_flavor(self, node: NodeInfo) -> bool:
        """Return whether the node has the flavor's labels, whether it is usable or not."""
        return all(node.labels.get(key) == value for key, value in self.node_labels.items())

    def refusal(self, node: NodeInfo) -> str | None:
        """Return why the node cannot be used through this flavor by any pod; None where it can.

        The words are those of `berth explain`. Taints are not checked here, because pods may tolerate them.
        """
        if not node.is_ready:
            return "not ready"
        if node.is_unschedulable:
            return "cordoned"
        for key, value in self.node_labels.items():
            # Labels before levels: of another flavor's node no missing level is to be reported.
            if node.labels.get(key) != value:
                return f"label {key} is not {value}"
        missing = next((level for level in self.levels if level not in node.labels), None)
        return f"lacks the label {missing}" if missing is not None else None
