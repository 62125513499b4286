"""Which Workload holds how much quota, computed from the API objects only.

This is deliberately a second implementation, which imports nothing of `queues`: a fault in the controller's
quota tree cannot hide itself here.

    limit(n)   without a parent: subtree(n); else subtree(n) + borrowingLimit(n), None if that is not set
    subtree(n) own nominal quota + what the children lend
    local(n)   what n does not lend: subtree(n) − lendingLimit(n), 0 if that is not set
    used(n)    of a Cohort: what its children use above their local(child)

A Workload holds quota while it has `status.admission` and QuotaReserved=True and is not Finished; pods that
it has released (`reclaimablePods`) are not counted. A resource that a ClusterQueue does not list, or lists
with an invalid quantity, has the limit 0. Source: Kueue, pkg/cache/scheduler/resource_node.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from admission.simulation.records import ObjectRecord
from api.objects.queues import ClusterQueueObject, CohortObject, WireFlavorQuotas, WireResourceGroup
from api.objects.workloads import WirePodSetAssignment, WorkloadObject
from api.parsing.quantities import QuantityError, amount
from api.reasons import ConditionType
from api.workload import WorkloadKey
from queues.quota.resources import FlavorResource


class NodeKey(NamedTuple):
    """A node of the quota tree; a ClusterQueue and a Cohort may have the same name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def queue_node(name: str) -> NodeKey:
    """Return the node of a ClusterQueue."""
    return NodeKey("ClusterQueue", name)


def cohort_node(name: str) -> NodeKey:
    """Return the node of a Cohort."""
    return NodeKey("Cohort", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The quota that one Workload holds of one ClusterQueue, in canonical units."""

    cluster_queue: str
    amounts: Mapping[FlavorResource, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The usage and limit of one flavor-resource at one node. `limit` None: only ancestors limit it."""

    node: NodeKey
    flavor_resource: FlavorResource
    used: int
    limit: int | None

    @property
    def is_over(self) -> bool:
        """Return whether the usage exceeds the limit."""
        return self.limit is not None and self.used > self.limit


def holding_of(workload: WorkloadObject) -> Holding | None:
    """Return the quota that a Workload holds, or None."""
    status = workload.status
    true = {condition.type for condition in status.conditions or () if condition.status == "True"}
    # Check all three, because they are written one after another, and only together they mean that
    # the Workload holds quota.
    if status.admission is None or ConditionType.QUOTA_RESERVED not in true or ConditionType.FINISHED in true:
        return None
    reclaimable = {entry.name: entry.count for entry in status.reclaimable_pods or ()}
    amounts: dict[FlavorResource, int] = {}
    for assignment in status.admission.pod_set_assignments or ():
        for flavor_resource, used in _charged(assignment, reclaimable.get(assignment.name, 0)):
            amounts[flavor_resource] = amounts.get(flavor_resource, 0) + used
    return Holding(cluster_queue=status.admission.cluster_queue, amounts=amounts)


def _charged(assignment: WirePodSetAssignment, given_back: int) -> Iterator[tuple[FlavorResource, int]]:
    count = 1 if assignment.count is None else assignment.count
    for resource, quantity in (assignment.resource_usage or {}).items():
        flavor = (assignment.flavors or {}).get(resource)
        # Without a flavor or without pods there is nothing to count.
        if flavor is None or count == 0:
            continue
        used = amount(resource, quantity)
        # The usage is that of `count` pods, so it is divisible by their number.
        yield FlavorResource(flavor, resource), used * max(0, count - given_back) // count


@dataclass(slots=True)
class _Node:
    key: NodeKey
    parent: NodeKey | None = None
    children: list[_Node] = field(default_factory=list)
    nominal: dict[FlavorResource, int] = field(default_factory=dict)
    borrowing: dict[FlavorResource, int] = field(default_factory=dict)
    lending: dict[FlavorResource, int] = field(default_factory=dict)
    used: dict[FlavorResource, int] = field(default_factory=dict)
    subtree: dict[FlavorResource, int] = field(default_factory=dict)

    def local(self, fr: FlavorResource) -> int:
        if fr not in self.lending:
            return 0
        return max(0, self.subtree.get(fr, 0) - self.lending[fr])

    def limit(self, fr: FlavorResource) -> int | None:
        # A ClusterQueue may not use a resource that it does not list, whatever its cohort has.
        if self.key.kind == "ClusterQueue" and fr not in self.nominal:
            return 0
        if self.parent is None:
            return self.subtree.get(fr, 0)
        # Without a borrowing limit, only its ancestors limit it.
        if fr not in self.borrowing:
            return None
        return self.subtree.get(fr, 0) + self.borrowing[fr]


class QuotaLedger:
    """The state of all quota after the applied records. Apply records in the order of their writes."""

    def __init__(self) -> None:
        self._specs: dict[NodeKey, ClusterQueueObject | CohortObject] = {}
        self._nodes: dict[NodeKey, _Node] = {}
        self._holdings: dict[WorkloadKey, Holding] = {}

    @property
    def holdings(self) -> Mapping[WorkloadKey, Holding]:
        """Return the Workloads that hold quota, with what they hold."""
        return self._holdings

    def apply(self, record: ObjectRecord) -> bool:
        """Apply one version of an object. Return whether any limit or usage may have changed."""
        if isinstance(record.object, WorkloadObject):
            return self._apply_workload(record.object, is_deleted=record.is_deleted)
        return self._apply_spec(record.object, is_deleted=record.is_deleted)

    def uses(self) -> Iterator[Use]:
        """Yield every node's usage of every flavor-resource for which it has quota or usage."""
        for node in self._nodes.values():
            for fr in sorted({*node.nominal, *node.used}):
                yield self._use(node, fr, node.used.get(fr, 0))

    def path(self, holding: Holding) -> Iterator[Use]:
        """Yield the usage of what `holding` holds at its ClusterQueue and each ancestor."""
        for fr in holding.amounts:
            node: _Node | None = self._nodes.get(queue_node(holding.cluster_queue))
            while node is not None:
                yield self._use(node, fr, node.used.get(fr, 0))
                node = self._parent(node)

    def would_fit(self, holding: Holding) -> bool:
        """Return whether no node would exceed its limit if `holding` were added."""
        return all(
            not self._use(node, fr, node.used.get(fr, 0) + more).is_over
            for fr, wanted in holding.amounts.items()
            for node, more in self._climb(holding.cluster_queue, fr, wanted)
        )

    def nominal(self, cluster_queue: str) -> Mapping[FlavorResource, int]:
        """Return the nominal quota of a ClusterQueue, empty if it does not exist."""
        node = self._nodes.get(queue_node(cluster_queue))
        return node.nominal if node else {}

    def used(self, cluster_queue: str) -> Mapping[FlavorResource, int]:
        """Return the sum of what the Workloads of a ClusterQueue hold."""
        node = self._nodes.get(queue_node(cluster_queue))
        return node.used if node else {}

    def cluster_queues(self) -> tuple[str, ...]:
        """Return the names of all ClusterQueues, including those that only a Workload names."""
        return tuple(key.name for key in self._nodes if key.kind == "ClusterQueue")

    def _apply_workload(self, workload: WorkloadObject, *, is_deleted: bool) -> bool:
        key = WorkloadKey(workload.metadata.namespace, workload.metadata.name)
        before = self._holdings.get(key)
        now = None if is_deleted else holding_of(workload)
        # Most versions of a Workload do not change its quota.
        if now == before:
            return False
        if before is not None:
            self._add(before, sign=-1)
            del self._holdings[key]
        if now is not None:
            self._holdings[key] = now
            self._add(now, sign=1)
        return True

    def _apply_spec(self, spec: ClusterQueueObject | CohortObject, *, is_deleted: bool) -> bool:
        name = spec.metadata.name
        key = queue_node(name) if isinstance(spec, ClusterQueueObject) else cohort_node(name)
        before = self._specs.get(key)
        if is_deleted:
            self._specs.pop(key, None)
        else:
            self._specs[key] = spec
        # Most versions of a ClusterQueue differ only in their status.
        if not is_deleted and before is not None and before.spec == spec.spec:
            return False
        self._rebuild()
        return True

    def _rebuild(self) -> None:
        self._nodes = {}
        for key, spec in self._specs.items():
            node = self._node(key)
            groups = spec.spec.resource_groups
            _read_quotas(node, groups)
            parent = spec.spec.cohort_name if isinstance(spec, ClusterQueueObject) else spec.spec.parent_name
            node.parent = cohort_node(parent) if parent else None
        # Iterate over a copy, because a Cohort that is only named by others is created in this loop.
        for node in tuple(self._nodes.values()):
            if node.parent is not None:
                self._node(node.parent).children.append(node)
        self._cut_cycles()
        for node in self._nodes.values():
            if node.parent is None:
                _sum_quotas(node)
        for holding in self._holdings.values():
            self._add(holding, sign=1)

    def _cut_cycles(self) -> None:
        """Cut each cycle at one member. Such a tree admits nothing, so any member will do."""
        for node in self._nodes.values():
            seen, ancestor = {node.key}, self._parent(node)
            while ancestor is not None and ancestor.key not in seen:
                seen.add(ancestor.key)
                ancestor = self._parent(ancestor)
            if ancestor is not None and ancestor.key == node.key and node.parent is not None:
                self._nodes[node.parent].children.remove(node)
                node.parent = None

    def _add(self, holding: Holding, *, sign: int) -> None:
        # Create the node of an unknown ClusterQueue as well: its usage exceeds every limit,
        # and must be found.
        self._node(queue_node(holding.cluster_queue))
        for fr, held in holding.amounts.items():
            for node, more in self._climb(holding.cluster_queue, fr, sign * held):
                node.used[fr] = node.used.get(fr, 0) + more

    def _climb(self, cluster_queue: str, fr: FlavorResource, more: int) -> Iterator[tuple[_Node, int]]:
        """Yield each node from the ClusterQueue upward with what `more` adds to its usage."""
        node = self._nodes.get(queue_node(cluster_queue))
        while node is not None and more:
            local = node.local(fr)
            used = node.used.get(fr, 0)
            above = max(0, used + more - local) - max(0, used - local)
            yield node, more
            node, more = self._parent(node), above

    def _node(self, key: NodeKey) -> _Node:
        return self._nodes.setdefault(key, _Node(key))

    def _parent(self, node: _Node) -> _Node | None:
        return self._nodes.get(node.parent) if node.parent else None

    def _use(self, node: _Node, fr: FlavorResource, used: int) -> Use:
        return Use(node=node.key, flavor_resource=fr, used=used, limit=node.limit(fr))


def _read_quotas(node: _Node, groups: Iterable[WireResourceGroup] | None) -> None:
    for group in groups or ():
        for flavor in group.flavors:
            _read_flavor(node, flavor)


def _read_flavor(node: _Node, flavor: WireFlavorQuotas) -> None:
    for quota in flavor.resources:
        fr = FlavorResource(flavor.name, quota.name)
        # Skip an invalid quantity, which means the limit 0, as the controller does.
        with suppress(QuantityError):
            node.nominal[fr] = amount(quota.name, quota.nominal_quota)
            if quota.borrowing_limit is not None:
                node.borrowing[fr] = amount(quota.name, quota.borrowing_limit)
            if quota.lending_limit is not None:
                node.lending[fr] = amount(quota.name, quota.lending_limit)


def _sum_quotas(node: _Node) -> None:
    """Compute the subtree quota of `node` and of each node below it."""
    node.subtree = dict(node.nominal)
    for child in node.children:
        _sum_quotas(child)
        for fr, quota in child.subtree.items():
            node.subtree[fr] = node.subtree.get(fr, 0) + quota - child.local(fr)
