"""What is known comes in: objects of every kind, new, changed, gone or unreadable, in any order.

The engine's taking side (`admission.engine.queries` is its asking side, `admission.engine.engine` decides). A
changed spec may touch every queue's status and wakes what waits; what has to be worked out anew for it is
gathered until somebody asks or decides, so a burst of changes costs one rebuild.
"""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.cache.workload_record import LocalQueueKey
from admission.cache.workload_store import WorkloadStore
from admission.engine.queries import Queries
from admission.scheduler.resumable_cycle import Cycle
from api.disruption_budget import DisruptionBudget
from api.jobs.resource_requests import LimitRange, RuntimeClass
from api.node import NodeInfo, PodUsage
from api.past_usage import PastUsage
from api.policy import AdmissionPolicy
from api.queueing import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    ResourceFlavor,
    Topology,
)
from api.workload import Workload, WorkloadKey
from queues.profile.capacity_profile import CapacityProfile
from queues.steps import Steps

Spec = ClusterQueue | Cohort | ResourceFlavor | Topology | AdmissionCheck | AdmissionPolicy
Ground = NodeInfo | PodUsage | DisruptionBudget
Upsertable = Workload | Spec | LocalQueue | Namespace | LimitRange | RuntimeClass | Ground
ObjectKey = str | tuple[str, str] | WorkloadKey


class Updates(Queries):
    """The taking side of an engine."""

    def __init__(self, cache: Cache, workload_store: WorkloadStore) -> None:
        super().__init__(cache, workload_store)
        self._touched_cohorts: set[str] = set()
        self._touched_policies: set[str] = set()
        # The cycle under way, which any change ends.
        self._cycle: Cycle | None = None
        # The look at all promises under way, which ends as well; and of which profile one has come to its end
        # since the last change.
        self._settling: Steps[None] | None = None
        self._settled: CapacityProfile | None = None

    def upsert(self, value: Upsertable, *, now: float) -> None:
        """Take in an object, new or changed. An equal one changes nothing and costs next to nothing."""
        self._begin_change(now)
        match value:
            case Workload():
                self._workload_store.put(value)
            case LocalQueue():
                self._upsert_local_queue(value)
            case Namespace():
                self._upsert_namespace(value)
            case LimitRange():
                if self._cache.set_limit_range(value.namespace, value.name, value):
                    self._reread_namespace(value.namespace)
            case RuntimeClass():
                if self._cache.runtime_classes.get(value.name) != value:
                    self._cache.runtime_classes[value.name] = value
                    self._workload_store.reread(self._workload_store.records.values())
            case DisruptionBudget():
                self._put_budget(value)
            case NodeInfo():
                self._nodes_changed(self._cache.topology_cache.put_node(value), are_nodes=True)
            case PodUsage():
                self._nodes_changed(self._cache.topology_cache.put_pod(value))
            # Nearly everything that comes twice is a relist; specs are compared by `put_spec`,
            # which knows them all.
            case _:
                self._upsert_spec(value)

    def remove(self, kind: type, key: ObjectKey, *, now: float) -> None:
        """Forget an object that was deleted; one that is not known is no error."""
        self._begin_change(now)
        # A name that could not be read may be created anew and readable, and must not stay
        # under the old sentence.
        if self._cache.unreadable.pop((kind, key), None) is not None:
            self._cache.invalidate()
        if kind is Workload:
            self._workload_store.drop(WorkloadKey(*_pair(key)))
        elif kind is LocalQueue:
            self._cache.local_queues.pop(_pair(key), None)
            # Its past usage would otherwise weigh on another LocalQueue of the name.
            if self._cache.ledger is not None:
                self._cache.ledger.forget(_pair(key))
            self._note_owner(_pair(key))
            self._workload_store.reroute(_pair(key))
        elif kind is Namespace:
            self._cache.namespaces.pop(str(key), None)
        elif kind is LimitRange:
            namespace, name = _pair(key)
            if self._cache.set_limit_range(namespace, name, None):
                self._reread_namespace(namespace)
        elif kind is RuntimeClass:
            if self._cache.runtime_classes.pop(str(key), None) is not None:
                self._workload_store.reread(self._workload_store.records.values())
        elif kind is DisruptionBudget:
            self._cache.budgets.pop(_pair(key), None)
            self._replicas_changed()
        elif kind is NodeInfo:
            self._nodes_changed(self._cache.topology_cache.drop_node(str(key)), are_nodes=True)
        elif kind is PodUsage:
            self._nodes_changed(self._cache.topology_cache.drop_pod(_pair(key)))
        elif self._cache.remove_spec(kind, str(key)):
            self._specs_changed()
            if kind is ClusterQueue:
                self._reroute_queue(str(key))

    def unreadable(self, kind: type, key: ObjectKey, message: str, *, now: float) -> None:
        """Note that an object exists but cannot be read; `message` says what is wrong and how to mend it.

        A ClusterQueue becomes inactive, a Workload waits outside the queue, an AdmissionPolicy is not in
        force; all others go on.
        """
        self._begin_change(now)
        self._cache.unreadable[(kind, key)] = message
        self._cache.invalidate()
        self._specs_changed()
        if kind is ClusterQueue:
            name = str(key)
            # It must be shown as inactive with its reason, even if it has never been readable.
            if name not in self._cache.cluster_queues:
                self._cache.put_spec(ClusterQueue(name=name))
            self._reroute_queue(name)
        elif kind is Workload:
            record = self._workload_store.records.get(WorkloadKey(*_pair(key)))
            if record is not None:
                # Out of its queue, whatever it asks: nobody can say any more what it would be admitted with.
                self._workload_store.unqueue(record)
        elif kind is LocalQueue:
            namespace, name = _pair(key)
            # It needs a place to show its status, even if it has never been readable.
            unknown = LocalQueue(namespace=namespace, name=name, cluster_queue="")
            self._cache.local_queues.setdefault((namespace, name), unknown)
            self._workload_store.reroute((namespace, name))
        elif kind is AdmissionPolicy:
            # Not the last good version: what is in force must follow from the objects alone, so that a
            # controller that starts now decides like one that has seen the edit.
            self._cache.remove_spec(kind, str(key))

    def adopt_usage(self, local_queue: LocalQueueKey, past: PastUsage) -> None:
        """Take in the past usage in a LocalQueue's status, where it is newer than what is known here."""
        # Newer ones only, so that the controller's own writes do not come back as news.
        if self._cache.ledger is not None:
            self._cache.ledger.adopt(local_queue, past)

    def _begin_change(self, now: float) -> None:
        """What is known is about to change: a cycle under way ends first."""
        self._workload_store.now = now
        if now >= self._cache.next_boundary_at:
            # A quota window opens or closes: as if an administrator had edited the ClusterQueue. A
            # reservation that begins or ends lets others in, too.
            self._cache.invalidate()
            self._specs_changed()
        # Taken out first: interrupting carries decisions out, which must not find a cycle under way.
        cycle, self._cycle = self._cycle, None
        looking, self._settling, self._settled = self._settling, None, None
        if looking is not None:
            looking.close()
        if cycle is not None:
            for queue in cycle.interrupt():
                self._workload_store.unsettled[queue.tree] = None

    def _put_budget(self, value: DisruptionBudget) -> None:
        key = (value.namespace, value.name)
        known = self._cache.budgets.get(key)
        self._cache.budgets[key] = value
        # More may be taken than before, or others are covered; a budget that shrinks lets nobody in.
        has_more = known is not None and (
            known.allowed < value.allowed or (known.keeps_unready and not value.keeps_unready)
        )
        if known is None or has_more or known.selector != value.selector:
            self._replicas_changed()

    def _replicas_changed(self) -> None:
        """More replicas may be taken than before: who was refused them is to ask again."""
        for queue in self._cache.queues.values():
            section = queue.policy.preemption
            # Only where a policy lets replicas be taken: elsewhere budgets decide on nothing.
            if section is not None and section.rules.prefers_inference:
                self._workload_store.woken.add(queue.tree)

    def _nodes_changed(self, flavors: frozenset[str], *, are_nodes: bool = False) -> None:
        """Capacity of these flavors' nodes came or went: parked Workloads may fit, promises may move.

        Where the nodes themselves did, a reserved domain may be another one now.
        """
        # Trees of those flavors alone, for nodes come and go all day in a cluster that scales.
        self._workload_store.wake_flavors(flavors)
        if flavors:
            self._cache.schedule_plan.note_nodes()
            if are_nodes and self._cache.note_nodes():
                self._specs_changed()

    # --- specs -------------------------------------------------------------------------------------------

    def _upsert_spec(self, value: Spec) -> None:
        was_unreadable = self._cache.unreadable.pop((type(value), value.name), None) is not None
        is_new = self._cache.put_spec(value)
        # A spec that could not be read and is the same as before has effect again all the same.
        if is_new is None and not was_unreadable:
            return
        self._cache.invalidate()
        self._specs_changed()
        if is_new and isinstance(value, ClusterQueue):
            self._reroute_queue(value.name)

    def _upsert_local_queue(self, value: LocalQueue) -> None:
        key = (value.namespace, value.name)
        if value.past_usage is not None:
            # Past usage is our own status come back; taken in before the comparison, which
            # it would always fail.
            self.adopt_usage(key, value.past_usage)
        was_unreadable = self._cache.unreadable.pop((LocalQueue, key), None) is not None
        if self._cache.local_queues.get(key) == value and not was_unreadable:
            return
        self._cache.local_queues[key] = value
        self._note_owner(key)
        self._workload_store.reroute(key)

    def _note_owner(self, local_queue: LocalQueueKey) -> None:
        """A LocalQueue came, went or changed: reservations for it may come into force, or not be any more."""
        policies = self._cache.policies.values()
        if any(one.local_queue == local_queue for policy in policies for one in policy.reservations):
            self._cache.invalidate()
            self._specs_changed()

    def _upsert_namespace(self, value: Namespace) -> None:
        if self._cache.namespaces.get(value.name) == value.labels:
            return
        self._cache.namespaces[value.name] = dict(value.labels)
        # Which queues there are must be known before their trees can be woken.
        self._workload_store.refresh()
        for (namespace, _), spec in self._cache.local_queues.items():
            queue = self._cache.queues.get(spec.cluster_queue)
            if namespace == value.name and queue is not None:
                self._workload_store.woken.add(queue.tree)

    def _reread_namespace(self, namespace: str) -> None:
        records = [one for key, one in self._workload_store.records.items() if key.namespace == namespace]
        self._workload_store.reread(records)

    def _reroute_queue(self, cluster_queue: str) -> None:
        """Note that a ClusterQueue came or went."""
        for key, local_queue in self._cache.local_queues.items():
            if local_queue.cluster_queue == cluster_queue:
                self._workload_store.reroute(key)

    def _specs_changed(self) -> None:
        """A change of specs may show in the status of every queue."""
        # Everything, though most is unaffected: the statuses are compared before they are written.
        self._workload_store.touched_queues.update(self._cache.cluster_queues)
        self._workload_store.touched_local_queues.update(self._cache.local_queues)
        self._touched_cohorts.update(self._cache.cohorts)
        self._touched_policies.update(self._cache.policies)


def _pair(key: ObjectKey) -> LocalQueueKey:
    """Return the key of a namespaced object. Raises TypeError for a bare name."""
    if isinstance(key, str):
        raise TypeError(f"{key!r} names no namespace")
    return key[0], key[1]
