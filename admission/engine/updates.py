"""Updates: takes in objects of every kind, new, changed, deleted or unreadable, in any order.

A changed spec may affect the status of every queue and wakes pending Workloads. What has to be computed
again for it is deferred until a query or a decision needs it, so that a burst of changes costs one rebuild.
"""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.cache.specs import Spec
from admission.cache.workload_record import LocalQueueKey
from admission.cache.workload_store import WorkloadStore
from admission.engine.under_way import UnderWay
from admission.hardware.rules import HardwareRules
from admission.scheduler.cycle_statistics import CycleStatistics
from api.devices.values import ClaimTemplate, DeviceClass, ResourceSlice
from api.disruption_budget import DisruptionBudget
from api.jobs.resource_requests import LimitRange, RuntimeClass
from api.node import NodeInfo, PodUsage
from api.past_usage import PastUsage
from api.queueing import (
    ClusterQueue,
    LocalQueue,
    Namespace,
)
from api.workload import Workload, WorkloadKey

Ground = NodeInfo | PodUsage | DisruptionBudget
Devices = DeviceClass | ClaimTemplate | ResourceSlice
Upsertable = Workload | Spec | LocalQueue | Namespace | LimitRange | RuntimeClass | Devices | Ground
ObjectKey = str | tuple[str, str] | WorkloadKey


class Updates:
    """Takes in changes of objects.

    Objects are values that `api` has translated. `now` is in Unix seconds; it matters only because a cycle
    that is under way ends at every change.
    """

    def __init__(
        self, cache: Cache, workload_store: WorkloadStore, under_way: UnderWay, tally: CycleStatistics
    ) -> None:
        self._cache = cache
        self._workload_store = workload_store
        self._under_way = under_way
        self._tally = tally

    def upsert(self, value: Upsertable, *, now: float) -> None:
        """Take in an object, new or changed. An equal one changes nothing and costs next to nothing.

        An object that contradicts others, such as a ClusterQueue with an unknown flavor, is kept and reported
        as inactive. The order of objects does not matter.
        """
        self._under_way.begin_change(now)
        match value:
            case Workload():
                self._workload_store.put(value)
            case LocalQueue():
                self._upsert_local_queue(value)
            case Namespace():
                self._upsert_namespace(value)
            case LimitRange():
                if self._cache.specs.set_limit_range(value.namespace, value.name, value):
                    self._reread_namespace(value.namespace)
            case RuntimeClass():
                if self._cache.specs.runtime_classes.get(value.name) != value:
                    self._cache.specs.runtime_classes[value.name] = value
                    self._workload_store.reread(self._workload_store.index.records.values())
            case DeviceClass() | ClaimTemplate() | ResourceSlice():
                if self._cache.specs.devices.put(value):
                    self._reread_claimants(value)
            case DisruptionBudget():
                self._put_budget(value)
            case NodeInfo():
                self._nodes_changed(self._cache.topology_cache.put_node(value), are_nodes=True)
            case PodUsage():
                self._nodes_changed(self._cache.topology_cache.put_pod(value))
            # An object that comes twice is usually from a relist; `put_spec` compares specs of all kinds.
            case _:
                if self._cache.specs.put_spec(value) and isinstance(value, ClusterQueue):
                    self._reroute_queue(value.name)

    def remove(self, kind: type, key: ObjectKey, *, now: float) -> None:
        """Forget an object that was deleted; an unknown one is no error.

        `kind` is the class of the value that was put in. `key` is a name, or a pair of namespace and name for
        kinds in a namespace.
        """
        self._under_way.begin_change(now)
        # The name may be created again and be readable then, so the old message must go.
        self._cache.specs.note_readable(kind, key)
        if kind is Workload:
            self._workload_store.drop(WorkloadKey(*_pair(key)))
        elif kind is LocalQueue:
            self._cache.specs.remove_local_queue(_pair(key))
            # Its past usage must not count for another LocalQueue created under the same name.
            if self._cache.ledger is not None:
                self._cache.ledger.forget(_pair(key))
            self._workload_store.reroute(_pair(key))
        elif kind is Namespace:
            self._cache.specs.namespaces.pop(str(key), None)
        elif kind is LimitRange:
            namespace, name = _pair(key)
            if self._cache.specs.set_limit_range(namespace, name, None):
                self._reread_namespace(namespace)
        elif kind is RuntimeClass:
            if self._cache.specs.runtime_classes.pop(str(key), None) is not None:
                self._workload_store.reread(self._workload_store.index.records.values())
        elif kind in (DeviceClass, ClaimTemplate, ResourceSlice):
            if (gone := self._cache.specs.devices.remove(kind, key)) is not None:
                self._reread_claimants(gone)
        elif kind is DisruptionBudget:
            self._cache.specs.budgets.pop(_pair(key), None)
            self._replicas_changed()
        elif kind is NodeInfo:
            self._nodes_changed(self._cache.topology_cache.drop_node(str(key)), are_nodes=True)
        elif kind is PodUsage:
            self._nodes_changed(self._cache.topology_cache.drop_pod(_pair(key)))
        elif self._cache.specs.remove_spec(kind, str(key)) and kind is ClusterQueue:
            self._tally.forget(str(key))
            self._reroute_queue(str(key))

    def unreadable(self, kind: type, key: ObjectKey, message: str, *, now: float) -> None:
        """Record that an object exists but cannot be read; `message` says what is wrong and how to fix it.

        A ClusterQueue becomes inactive, as does every ClusterQueue that depends on an unreadable Cohort,
        flavor, topology or check. A Workload leaves its queue, and so do the Workloads of a LocalQueue. An
        AdmissionPolicy is not in force. Everything else continues.
        """
        self._under_way.begin_change(now)
        self._cache.specs.note_unreadable(kind, key, message)
        if kind is ClusterQueue:
            self._reroute_queue(str(key))
        elif kind is Workload:
            record = self._workload_store.index.records.get(WorkloadKey(*_pair(key)))
            if record is not None:
                # It leaves its queue, since it is not known any more what it would be admitted with.
                self._workload_store.pending.unqueue(record)
        elif kind is LocalQueue:
            self._workload_store.reroute(_pair(key))

    def adopt_usage(self, local_queue: LocalQueueKey, past: PastUsage) -> None:
        """Take in the past usage from a LocalQueue's status if it is newer than what is known.

        A new leader continues with its predecessor's usage this way. No effect without admission fair
        sharing.
        """
        # Only newer values, so that the controller's own writes are ignored.
        if self._cache.ledger is not None:
            self._cache.ledger.adopt(local_queue, past)

    def note_provisioning_served(self) -> None:
        """Record that the cluster has the kind ProvisioningRequest: checks that need it can be evaluated."""
        if not self._cache.specs.is_provisioning_served:
            self._cache.specs.is_provisioning_served = True
            self._cache.specs.invalidate()

    def set_hardware_rules(self, rules: HardwareRules, *, now: float) -> None:
        """Bind pods by these rules from now on; what was found by others is searched again."""
        if rules == self._cache.topology_cache.hardware.rules:
            return
        self._under_way.begin_change(now)
        self._cache.topology_cache.hardware.rules = rules
        # Every kept answer belongs to a queue or tree, and those are built again.
        self._cache.specs.invalidate()
        self._workload_store.refresh()
        self._workload_store.trees.wake_all()

    def _put_budget(self, value: DisruptionBudget) -> None:
        """Take in a PodDisruptionBudget, and wake queues if it allows more disruptions."""
        key = (value.namespace, value.name)
        known = self._cache.specs.budgets.get(key)
        self._cache.specs.budgets[key] = value
        # More pods may be evicted than before, or others are covered. A budget that
        # shrinks helps no Workload.
        has_more = known is not None and (
            known.allowed < value.allowed or (known.keeps_unready and not value.keeps_unready)
        )
        if known is None or has_more or known.selector != value.selector:
            self._replicas_changed()

    def _replicas_changed(self) -> None:
        """Wake queues that may preempt replicas: more of them may be evicted than before."""
        for queue in self._cache.queues.values():
            section = queue.policy.preemption
            # Budgets matter only where a policy lets replicas be preempted.
            if section is not None and section.rules.prefers_inference:
                self._workload_store.trees.wake(queue.name)

    def _nodes_changed(self, flavors: frozenset[str], *, are_nodes: bool = False) -> None:
        """Wake what may use these flavors' nodes: their capacity has changed, and promises may move.

        `are_nodes`: the nodes themselves have changed, so that reserved domains may be others now.
        """
        # Only trees with these flavors, since nodes come and go all day in an autoscaled cluster.
        self._workload_store.admitted.note_freed(flavors)
        if flavors:
            self._cache.schedule_plan.note_nodes()
            if are_nodes:
                self._cache.note_nodes()
        # A kind of node has come that Workloads may wait for, with a topology or without.
        if are_nodes and self._cache.topology_cache.hardware.take_news():
            self._workload_store.trees.wake_all()

    # --- specs -------------------------------------------------------------------------------------------

    def _upsert_local_queue(self, value: LocalQueue) -> None:
        """Take in a LocalQueue and the past usage in its status."""
        key = (value.namespace, value.name)
        if value.past_usage is not None:
            # Past usage is this controller's own status. It is taken in before the comparison, which
            # it would always fail.
            self.adopt_usage(key, value.past_usage)
        if self._cache.specs.put_local_queue(value):
            self._workload_store.reroute(key)

    def _upsert_namespace(self, value: Namespace) -> None:
        """Take in the labels of a namespace, by which ClusterQueues select it."""
        if self._cache.specs.namespaces.get(value.name) == value.labels:
            return
        self._cache.specs.namespaces[value.name] = dict(value.labels)
        # The queues have to be built before their trees can be woken.
        self._workload_store.refresh()
        for (namespace, _), spec in self._cache.specs.local_queues.items():
            if namespace == value.name:
                self._workload_store.trees.wake(spec.cluster_queue)

    def _reread_namespace(self, namespace: str) -> None:
        """Have the requests of the namespace's Workloads computed again."""
        records = [
            one for key, one in self._workload_store.index.records.items() if key.namespace == namespace
        ]
        self._workload_store.reread(records)

    def _reread_claimants(self, value: Devices) -> None:
        """Have the requests of Workloads computed again that may ask for these devices."""
        index = self._workload_store.index
        if isinstance(value, ClaimTemplate):
            records = [one for key, one in index.claimants.items() if key.namespace == value.namespace]
        # A resource may stand for a class from now on, or no longer.
        elif isinstance(value, DeviceClass):
            records = list(index.records.values())
        else:
            records = list(index.claimants.values())
        self._workload_store.reread(records)

    def _reroute_queue(self, cluster_queue: str) -> None:
        """Have the Workloads of a ClusterQueue that was added or removed placed again."""
        for key, local_queue in self._cache.specs.local_queues.items():
            if local_queue.cluster_queue == cluster_queue:
                self._workload_store.reroute(key)


def _pair(key: ObjectKey) -> LocalQueueKey:
    """Return the key of a namespaced object. Raise TypeError for a bare name."""
    if isinstance(key, str):
        raise TypeError(f"{key!r} names no namespace")
    return key[0], key[1]
