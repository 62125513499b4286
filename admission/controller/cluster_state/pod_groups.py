"""Pods that are queued themselves, with their bytes, by the units in which they are admitted.

Only pods that were gated at creation are kept, and those that own an admitted Workload. The pods of a queued
Job carry the same label, from the Job's template, but are left out: their Job is reconciled instead.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from admission.controller.cluster_state.object_cache import ObjectCache, ObjectKey, Seen
from admission.controller.cluster_state.observers import Observers, WorkloadTransition
from admission.controller.cluster_state.prebuilt_names import PrebuiltNames
from admission.controller.writer.write_order import ObjectTarget
from api import keys
from api.jobs.gang import in_gang
from api.jobs.pod import POD_KIND, Pod, to_pod
from api.kube.informer import Change, ChangeType
from api.objects.cluster import PodObject
from api.objects.common import Meta
from api.workload import Workload


class UnitKey(NamedTuple):
    """A group of pods. With an empty `group` it is the single pod `name`."""

    namespace: str
    group: str
    name: str


class PodGroups:
    """The queued pods, and which units have to be looked at."""

    def __init__(
        self,
        observers: Observers,
        *,
        is_kept: bool,
        note_empty: Callable[[UnitKey], None],
        note_ungated: Callable[[Pod], None],
        holds_quota: Callable[[Pod], bool],
        with_gangs: bool = False,
    ) -> None:
        """`is_kept`: whether the integration is on.

        `note_empty` is called when a group loses its last pod, `note_ungated` when a pod has lost the gate of
        admission. `holds_quota`: whether a Workload counts a pod that was never gated. `with_gangs`: whether
        pods that name a PodGroup of scheduling.x-k8s.io form a group.
        """
        self.is_kept = is_kept
        self.prebuilt = PrebuiltNames()
        self._with_gangs = with_gangs
        self._observers = observers
        self._note_empty = note_empty
        self._note_ungated = note_ungated
        self._holds_quota = holds_quota
        # By uid: the bytes of pods of a queue that were never gated, until a Workload counts them.
        self._ungated: dict[str, bytes] = {}
        # By uid: pods whose deletion the server has accepted and the watch has not shown yet. An eviction
        # changes the pod before it deletes it, and the watch shows that change first.
        self._ending: set[str] = set()
        self._pods: ObjectCache[Pod] = ObjectCache()
        self._units: dict[UnitKey, dict[ObjectKey, None]] = {}
        self._dirty: OrderedDict[UnitKey, None] = OrderedDict()
        # Groups that are looked at without pods too, with the uid of the owner that creates their pods.
        self._expected: dict[UnitKey, str] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def take(self, change: Change[PodObject]) -> None:
        """Take a change of a pod."""
        if change.type is ChangeType.DELETED:
            self._ungated.pop(change.object.metadata.uid, None)
            self._drop(change.object.metadata)
        else:
            self._see(change.object, change.raw or b"")

    def observe(self, change: WorkloadTransition) -> None:
        """Keep the pod that a Workload counts though it was never gated, until the Workload ends."""
        uid = change.workload.owner_uid
        if uid is None:
            return
        if (raw := self._ungated.get(uid)) is not None:
            self.see_raw(raw)
        seen = self._pods.by_uid(uid)
        if seen is not None and not self._is_queued(seen.value):
            self._drop(seen.metadata)

    def expect(self, unit: UnitKey, uid: str) -> None:
        """Look at this group from now on if it has no pods too: the owner with this uid creates them."""
        self._expected[unit] = uid

    def unexpect(self, unit: UnitKey, uid: str) -> None:
        """Look at this group no more if it has no pods, if the owner with this uid was the one."""
        if self._expected.get(unit) == uid:
            del self._expected[unit]

    def keeper_of(self, unit: UnitKey) -> str | None:
        """Return the uid of the owner that creates the pods of a group; None if none is known."""
        return self._expected.get(unit)

    def see_raw(self, raw: bytes) -> None:
        """Take the bytes of a pod from the answer to a write. Raises msgspec.DecodeError."""
        if self.is_kept:
            self._see(_POD.decode(raw), raw)

    def note_deletion(self, key: ObjectKey, uid: str) -> None:
        """Record that the server accepted a deletion of ours, which the watch has not shown yet.

        Without this record the next look would ask for the same deletion again.
        """
        # Only for this uid: another pod of the same name is not affected.
        seen = self._pods.get(key)
        if seen is not None and seen.metadata.uid == uid:
            self._ending.add(uid)
            self._pods.see(seen.metadata, replace(seen.value, is_deleted=True), seen.raw)

    def get(self, key: ObjectKey) -> Seen[Pod] | None:
        """Return a pod as last seen; None if there is none."""
        return self._pods.get(key)

    def by_uid(self, uid: str) -> Seen[Pod] | None:
        """Return the pod with this uid; None if there is none."""
        return self._pods.by_uid(uid)

    def owned_by(self, uid: str) -> tuple[Seen[Pod], ...]:
        """Return the pods whose controlling owner has this uid, by name."""
        return self._pods.owned_by(uid)

    def has_gone(self, uid: str) -> bool:
        """Return whether the pod with this uid was seen to be deleted, or is managed no longer."""
        return self._pods.has_gone(uid)

    def members(self, unit: UnitKey) -> tuple[Seen[Pod], ...]:
        """Return the known pods of a unit."""
        found = (self._pods.get(key) for key in self._units.get(unit, ()))
        return tuple(seen for seen in found if seen is not None)

    @staticmethod
    def unit_of(pod: Pod) -> UnitKey:
        """Return the unit that a pod belongs to."""
        return UnitKey(pod.namespace, pod.group, "" if pod.group else pod.name)

    def unit_of_workload(self, workload: Workload) -> UnitKey | None:
        """Return the unit that a Workload represents; None if it represents no pods."""
        if keys.IS_GROUP_WORKLOAD in workload.annotations:
            return UnitKey(workload.key.namespace, workload.key.name, "")
        if workload.owner_kind != "Pod" or workload.owner_name is None:
            return None
        # A pod beyond the minimum of its gang has a Workload of its own, and is looked at with the gang.
        pod = self._pods.get((workload.key.namespace, workload.owner_name))
        if pod is not None and pod.metadata.uid == workload.owner_uid:
            return self.unit_of(pod.value)
        return UnitKey(workload.key.namespace, "", workload.owner_name)

    # --- marks ------------------------------------------------------------------------------------

    def mark(self, unit: UnitKey | None, *, has_workload: bool = False) -> None:
        """Mark this unit. A group without pods is marked only if it has an owner or a Workload."""
        if unit is None:
            return
        if unit in self._units or unit in self._expected or (unit.group and has_workload):
            self._dirty[unit] = None
        else:
            # A follower takes no marks, so marks of deleted units would pile up.
            self._dirty.pop(unit, None)

    def mark_pod(self, key: ObjectKey) -> None:
        """Mark the unit of this pod."""
        seen = self._pods.get(key)
        if seen is not None:
            self.mark(self.unit_of(seen.value))

    def mark_all(self, namespace: str | None = None) -> None:
        """Mark all units, or those of one namespace."""
        units = (*self._units, *self._expected)
        self._dirty.update(dict.fromkeys(unit for unit in units if namespace in (None, unit.namespace)))

    @property
    def units_marked(self) -> int:
        """How many units have a mark. Those that were marked first are taken first."""
        return len(self._dirty)

    def take_dirty(self) -> UnitKey | None:
        """Return a marked unit and remove its mark; None if there is none."""
        return self._dirty.popitem(last=False)[0] if self._dirty else None

    # --- storing ----------------------------------------------------------------------------------

    def _see(self, obj: PodObject, raw: bytes) -> None:
        metadata = obj.metadata
        if not self._pods.is_newer(metadata):
            return
        try:
            pod = in_gang(to_pod(obj)) if self._with_gangs else to_pod(obj)
        except ValueError as error:
            self._observers.report_unreadable("Pod", metadata.namespace, metadata.name, str(error))
            return
        if not self._is_queued(pod):
            # Of all others, only pods that name a queue themselves may be imported: pods of Jobs do not.
            if pod.queue_name:
                self._ungated[pod.uid] = raw
            self._drop(metadata)
            return
        self._ungated.pop(pod.uid, None)
        key = (pod.namespace, pod.name)
        if pod.is_deleted:
            self._ending.discard(pod.uid)
        elif pod.uid in self._ending:
            pod = replace(pod, is_deleted=True)
        known = self._pods.get(key)
        was_gated = known is not None and known.metadata.uid == pod.uid and known.value.is_gated
        self._unlink(key)
        self._pods.see(metadata, pod, raw)
        self.prebuilt.see(ObjectTarget(POD_KIND, *key), pod)
        unit = self.unit_of(pod)
        self._units.setdefault(unit, {})[key] = None
        self._dirty[unit] = None
        if was_gated and not pod.is_gated:
            self._note_ungated(pod)

    def _is_queued(self, pod: Pod) -> bool:
        return pod.is_managed or self._holds_quota(pod)

    def _drop(self, metadata: Meta) -> None:
        key = (metadata.namespace, metadata.name)
        known = self._pods.get(key)
        # Another pod of the same name has replaced it.
        if known is None or known.metadata.uid != metadata.uid:
            return
        self._unlink(key)
        self._ending.discard(metadata.uid)
        self._pods.forget(metadata)
        self.prebuilt.forget(ObjectTarget(POD_KIND, *key))
        unit = self.unit_of(known.value)
        self.mark(unit)
        if unit.group and unit not in self._units:
            self._note_empty(unit)

    def _unlink(self, key: ObjectKey) -> None:
        known = self._pods.get(key)
        if known is None:
            return
        unit = self.unit_of(known.value)
        members = self._units.get(unit, {})
        members.pop(key, None)
        if not members:
            self._units.pop(unit, None)
            self._dirty.pop(unit, None)


_POD = msgspec.json.Decoder(PodObject)
