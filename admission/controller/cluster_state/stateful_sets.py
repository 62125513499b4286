"""The StatefulSets in queues, with their bytes, and the group of pods that each has.

A set has one group, whose Workload exists before its pods (`api.jobs.stateful_set`). Its name is that of the
pods and the Workload which are there, and otherwise follows from the set:

    its pods are in a group           that group, also if a set that was deleted without its pods began it
    it owns the Workload of a group   that group
    a Workload of the older name      the older name: another controller, or another release, made it
    its template has the older name   the older name: the template would restart the pods if it changed
    otherwise                         the name with its uid

Source: Kueue, pkg/controller/jobs/statefulset (findWorkloadName).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from admission.controller.cluster_state.object_cache import ObjectCache, ObjectKey, Seen
from admission.controller.cluster_state.observers import Observers, WorkloadTransition
from admission.controller.cluster_state.pod_groups import PodGroups, UnitKey
from api import keys
from api.jobs.stateful_set import (
    STATEFUL_SET_KIND,
    StatefulSet,
    claims_stateful_set,
    template_pod,
    to_stateful_set,
)
from api.kube.informer import Change, ChangeType
from api.objects.cluster import StatefulSetObject
from api.objects.common import Meta, OwnerReference
from api.workload import Workload


class StatefulSets:
    """The sets by namespace and name. `pods` are marked when their set changes."""

    def __init__(self, pods: PodGroups, workloads: ObjectCache[Workload], observers: Observers) -> None:
        self._pods = pods
        self._workloads = workloads
        self._observers = observers
        self._sets: ObjectCache[StatefulSet] = ObjectCache()
        # The sets that own the Workload of a group, and the other way round: they do not control it.
        self._owners: dict[ObjectKey, tuple[str, ...]] = {}
        self._owned: dict[str, dict[ObjectKey, None]] = {}

    def take(self, change: Change[StatefulSetObject]) -> None:
        """Take a change of a set."""
        metadata = change.object.metadata
        if change.type is ChangeType.DELETED:
            self._forget(metadata)
        elif self._sets.is_newer(metadata):
            self._see(change.object, change.raw or b"")

    def observe(self, change: WorkloadTransition) -> None:
        """Take a Workload as it is now: which sets own it."""
        key: ObjectKey = change.workload.key
        for uid in self._owners.pop(key, ()):
            owned = self._owned[uid]
            del owned[key]
            if not owned:
                del self._owned[uid]
        seen = self._workloads.get(key) if change.after is not None else None
        if seen is None or keys.IS_GROUP_WORKLOAD not in seen.value.annotations:
            return
        owners = tuple(one.uid for one in seen.metadata.owner_references or () if claims_stateful_set(one))
        if owners:
            self._owners[key] = owners
            for uid in owners:
                self._owned.setdefault(uid, {})[key] = None

    def get(self, key: ObjectKey) -> Seen[StatefulSet] | None:
        """Return a set as last seen; None if there is none."""
        return self._sets.get(key)

    def has_gone(self, uid: str) -> bool:
        """Return whether the set with this uid was seen to be deleted."""
        return self._sets.has_gone(uid)

    def of_unit(self, unit: UnitKey) -> Seen[StatefulSet] | None:
        """Return the set whose group this is; None if it is that of none that is known."""
        return next((one for one in self.claiming(unit) if self.group_of(one.value) == unit.group), None)

    def claiming(self, unit: UnitKey) -> Iterator[Seen[StatefulSet]]:
        """Yield the sets whose group this may be: by its pods, its Workload, or its name."""
        if not unit.group:
            return
        owners = (pod.value.owner for pod in self._pods.members(unit))
        uids = [one.uid for one in owners if one is not None and claims_stateful_set(one)]
        uids += self._owners.get((unit.namespace, unit.group), ())
        if (named := self._pods.keeper_of(unit)) is not None:
            uids.append(named)
        for uid in dict.fromkeys(uids):
            found = self._sets.by_uid(uid)
            if found is not None and found.value.is_held and found.metadata.namespace == unit.namespace:
                yield found

    def owns(self, found: StatefulSet, unit: UnitKey) -> bool:
        """Return whether the set is an owner of this group's Workload."""
        return (unit.namespace, unit.group) in self._owned.get(found.uid, ())

    def group_of(self, found: StatefulSet) -> str:
        """Return the name of the set's group, which is that of its Workload."""
        pods = (seen.value for seen in self._pods.owned_by(found.uid))
        # Any user can name any owner: only what its controller may have created, or has adopted, counts.
        groups = {pod.group for pod in pods if found.is_group(pod.group) and found.is_pod(pod.name)}
        groups = groups or {name for _, name in self._owned.get(found.uid, ())}
        for name in (found.group, found.older_group, *sorted(groups)):
            if name in groups:
                return name
        is_older = found.template_group == found.older_group or self._is_free(found)
        return found.older_group if is_older else found.group

    def of_pod(self, namespace: str, owner: OwnerReference) -> StatefulSet | None:
        """Return the set that a new pod names as its controller, as far as it is known; None if none."""
        if not claims_stateful_set(owner):
            return None
        seen = self._sets.by_uid(owner.uid)
        if seen is not None and seen.metadata.namespace == namespace:
            return seen.value
        # The watch may lag behind: its name follows from the owner alone.
        return StatefulSet(namespace=namespace, name=owner.name, uid=owner.uid)

    def _is_free(self, found: StatefulSet) -> bool:
        """Return whether there is a group's Workload of the older name that belongs to no other set."""
        key = (found.namespace, found.older_group)
        seen = self._workloads.get(key)
        return (
            seen is not None
            and keys.IS_GROUP_WORKLOAD in seen.value.annotations
            and seen.value.deleted_at is None
            and key not in self._owners
        )

    def _see(self, obj: StatefulSetObject, raw: bytes) -> None:
        metadata, found = obj.metadata, to_stateful_set(obj)
        try:
            template_pod(raw, found.group)
        except (msgspec.DecodeError, ValueError) as error:
            namespace, name = metadata.namespace, metadata.name
            self._observers.report_unreadable(STATEFUL_SET_KIND, namespace, name, str(error))
            return
        known = self._sets.get((found.namespace, found.name))
        if known is not None and known.metadata.uid != found.uid:
            self._forget(known.metadata)
        self._sets.see(metadata, found, raw)
        # Nothing holds the pods of any other set: they run beside its queue.
        for name in (found.group, found.older_group) if found.is_held else ():
            self._pods.expect(UnitKey(found.namespace, name, ""), found.uid)
        self._mark_groups(found)

    def mark(self, key: ObjectKey) -> None:
        """Mark the group of a set, and the ones that it may have left behind."""
        seen = self._sets.get(key)
        if seen is not None:
            self._mark_groups(seen.value)

    def mark_group(self, found: StatefulSet) -> None:
        """Mark the group that a set has now."""
        self._pods.mark(UnitKey(found.namespace, self.group_of(found), ""), has_workload=True)

    def _mark_groups(self, found: StatefulSet) -> None:
        for name in dict.fromkeys((found.group, found.older_group, self.group_of(found))):
            has_workload = self._workloads.get((found.namespace, name)) is not None
            self._pods.mark(UnitKey(found.namespace, name, ""), has_workload=has_workload)

    def _forget(self, metadata: Meta) -> None:
        known = self._sets.get((metadata.namespace, metadata.name))
        self._sets.forget(metadata)
        if known is not None and known.metadata.uid == metadata.uid:
            for name in (known.value.group, known.value.older_group):
                self._pods.unexpect(UnitKey(metadata.namespace, name, ""), metadata.uid)
            # Its Workload may have to be ended.
            self._mark_groups(known.value)
