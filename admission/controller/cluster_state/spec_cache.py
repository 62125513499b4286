"""The spec cache: queues, flavors, policies, namespaces and priority classes as last read.

An unreadable spec is reported in the log, and in the status of a queue that it makes inactive; all others are
still handled. Only a spec that has changed marks what it may affect: most changes are of a status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from admission.controller.cluster_state.dirty_set import DirtySet
from admission.controller.cluster_state.disruption_budgets import DisruptionBudgets
from admission.controller.cluster_state.invalid_objects import InvalidObjects
from admission.controller.cluster_state.object_cache import ObjectKey
from admission.controller.cluster_state.observers import Observers, SpecKey
from admission.controller.runtime.clock import Clock
from admission.engine.engine import Engine
from admission.reconcile.job.context import PriorityClass
from api import specs
from api.disruption_budget import DisruptionBudget
from api.kube.informer import Change, ChangeType
from api.objects.cluster import NamespaceObject
from api.objects.common import Meta, WireSelector
from api.objects.queues import PriorityClassObject
from api.parsing.class_namespaces import class_namespaces
from api.parsing.prices import flavor_price_problem
from api.queueing import ClusterQueue, LocalQueue, Namespace, ResourceFlavor
from api.selectors import matches_selector


class SpecCache:
    """The specs that the engine keeps as values, and those that only reconcilers need.

    A spec that has become unreadable keeps its last readable value here; the engine has it as unreadable.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        marks: DirtySet,
        disruptions: DisruptionBudgets,
        inspection: InvalidObjects,
        observers: Observers,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._marks = marks
        self._disruptions = disruptions
        self._inspection = inspection
        self._observers = observers
        # Every spec that could be parsed, as the engine has it.
        self._values: dict[tuple[type, SpecKey], object] = {}
        self._local_queues: dict[ObjectKey, LocalQueue] = {}
        self._cluster_queues: dict[str, ClusterQueue] = {}
        # The labels of each namespace.
        self._namespaces: dict[str, dict[str, str]] = {}
        self._workload_priorities: dict[str, int] = {}
        # Of each class: the namespaces that may use it; None: no namespace.
        self._class_namespaces: dict[str, WireSelector | None] = {}
        self._pod_class_namespaces: dict[str, WireSelector | None] = {}
        self._priorities: dict[str, PriorityClass] = {}

    # --- questions --------------------------------------------------------------------------------

    @property
    def local_queues(self) -> Mapping[ObjectKey, LocalQueue]:
        """Return all LocalQueues by namespace and name, as they are at the time of each read."""
        return self._local_queues

    @property
    def cluster_queues(self) -> Mapping[str, ClusterQueue]:
        """Return all ClusterQueues by name, as they are at the time of each read."""
        return self._cluster_queues

    @property
    def workload_priorities(self) -> Mapping[str, int]:
        """Return the value of each WorkloadPriorityClass, as it is at the time of each read."""
        return self._workload_priorities

    def may_use_class(self, name: str, namespace: str) -> bool:
        """Return whether Jobs and pods of the namespace may name this WorkloadPriorityClass."""
        return matches_selector(self._class_namespaces.get(name), self._namespaces.get(namespace))

    def may_use_pod_class(self, name: str, namespace: str) -> bool:
        """Return whether Jobs and pods of the namespace may get their priority from this PriorityClass."""
        return matches_selector(self._pod_class_namespaces.get(name), self._namespaces.get(namespace))

    @property
    def priorities(self) -> Mapping[str, PriorityClass]:
        """Return all PriorityClasses by name, as they are at the time of each read."""
        return self._priorities

    def labels_of(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if it is not known."""
        return self._namespaces.get(namespace)

    # --- changes from the watch -------------------------------------------------------------------

    def take(self, kind: type, read: Callable[[Any], Any], change: Change[Any]) -> None:
        """Take a change of an object that the engine keeps as a value: queues, flavors, limit ranges, ..."""
        metadata: Meta = change.object.metadata
        if change.type is ChangeType.DELETED:
            self._forget(kind, metadata)
            return
        # An unreadable price does not make the flavor unusable; it is only reported.
        if kind is ResourceFlavor and (problem := flavor_price_problem(metadata.annotations or {})):
            self._inspection.set_fault(kind.__name__, metadata, problem)
        try:
            value = read(change.object)
        # Every fault that makes a spec unusable is a ValueError whose message is meant for its owner.
        except ValueError as error:
            self._inspection.note(kind.__name__, metadata, str(error))
            self.take_unreadable(kind, metadata.namespace, metadata.name, str(error))
        else:
            if self._keep(kind, _key(metadata.namespace, metadata.name), value):
                self._mark_affected(kind, metadata.namespace, metadata.name)

    def take_unreadable(self, kind: type, namespace: str, name: str, error: str) -> None:
        """Record a spec that could not be read."""
        self._observers.report_unreadable(kind.__name__, namespace, name, error)
        key = _key(namespace, name)
        self._values.pop((kind, key), None)
        self._engine.objects.unreadable(kind, key, error, now=self._clock.now())
        self._mark_affected(kind, namespace, name)

    def take_namespace(self, change: Change[NamespaceObject]) -> None:
        """Take a change of a namespace's labels."""
        metadata = change.object.metadata
        if change.type is ChangeType.DELETED:
            self._namespaces.pop(metadata.name, None)
        else:
            labels = metadata.labels or {}
            # Only the labels matter, not a namespace's status.
            if self._namespaces.get(metadata.name) == labels:
                return
            self._namespaces[metadata.name] = labels
        self.take(Namespace, specs.to_namespace, change)
        self._marks.jobs_of(metadata.name)

    def take_workload_priority_class(self, change: Change[PriorityClassObject]) -> None:
        """Take a change of a WorkloadPriorityClass."""
        metadata = change.object.metadata
        if change.type is ChangeType.DELETED:
            self._workload_priorities.pop(metadata.name, None)
            self._class_namespaces.pop(metadata.name, None)
        else:
            self._workload_priorities[metadata.name] = change.object.value
            self._class_namespaces[metadata.name] = self._namespaces_of("WorkloadPriorityClass", metadata)
        self._marks.all_jobs()
        # Workloads of other owners name the class themselves.
        self._marks.all_unfinished()

    def take_priority_class(self, change: Change[PriorityClassObject]) -> None:
        """Take a change of a PriorityClass."""
        obj = change.object
        if change.type is ChangeType.DELETED:
            self._priorities.pop(obj.metadata.name, None)
            self._pod_class_namespaces.pop(obj.metadata.name, None)
        else:
            self._pod_class_namespaces[obj.metadata.name] = self._namespaces_of("PriorityClass", obj.metadata)
            self._priorities[obj.metadata.name] = PriorityClass(
                value=obj.value, is_global_default=bool(obj.global_default)
            )
        self._marks.all_jobs()

    def _namespaces_of(self, kind: str, metadata: Meta) -> WireSelector | None:
        """Return the namespaces that may use a class; None, and a report, where the annotation is unreadable.

        A class that was limited on purpose is not opened by a mistake.
        """
        try:
            return class_namespaces(metadata.annotations or {})
        except ValueError as error:
            self._inspection.set_fault(kind, metadata, str(error))
            return None

    # --- storing ----------------------------------------------------------------------------------

    def _forget(self, kind: type, metadata: Meta) -> None:
        key = _key(metadata.namespace, metadata.name)
        self._engine.objects.remove(kind, key, now=self._clock.now())
        self._values.pop((kind, key), None)
        if kind is LocalQueue:
            self._local_queues.pop((metadata.namespace, metadata.name), None)
        elif kind is ClusterQueue:
            self._cluster_queues.pop(metadata.name, None)
        self._observers.report_spec(kind, None)
        self._observers.report_gone(kind, key)
        self._mark_affected(kind, metadata.namespace, metadata.name)

    def _keep(self, kind: type, key: SpecKey, value: Any) -> bool:
        """Keep a readable spec. Return whether it is new or changed: most changes are of a status."""
        if isinstance(value, LocalQueue) and value.past_usage is not None:
            # Past usage written by another leader. It is in the status, so specs that are equal
            # may differ in it.
            self._engine.objects.adopt_usage((value.namespace, value.name), value.past_usage)
        # Status changes arrive here a thousand times as often as changes of a spec.
        if self._values.get((kind, key)) == value:
            return False
        self._values[kind, key] = value
        self._engine.objects.upsert(value, now=self._clock.now())
        if isinstance(value, LocalQueue):
            self._local_queues[value.namespace, value.name] = value
        elif isinstance(value, ClusterQueue):
            self._cluster_queues[value.name] = value
        self._observers.report_spec(kind, value)
        return True

    def _mark_affected(self, kind: type, namespace: str, name: str) -> None:
        """Mark what a changed spec may affect: what Workloads report and whether they keep their quota.

        For a LocalQueue these are its own Workloads. For all other kinds any Workload may be affected, and
        one pass over all of them serves many changes.
        """
        if kind is LocalQueue:
            self._marks.workloads_in(self._engine.workloads.members((namespace, name)))
        # A budget is read when victims are searched. It affects only groups that it holds back.
        elif kind is DisruptionBudget:
            self._disruptions.mark_held_back(namespace)
        else:
            self._marks.all_unfinished()


def _key(namespace: str, name: str) -> SpecKey:
    """Return the key of an object: namespaced kinds are keyed by namespace and name, others by name."""
    return (namespace, name) if namespace else name
