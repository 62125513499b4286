"""The pods of Workloads: which pods to ask for a checkpoint, and what they report of theirs.

The pods of one Workload have the same owner key (`api.jobs.pod_owner_key`). Only what this task needs is
kept of a pod. A watch of all pods feeds this module, and runs only if a policy may evict or a flavor places
by topology: most clusters have many pods and never ask for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from admission.reconcile.workload.context import SavingPod
from api import keys
from api.jobs.checkpoint_annotations import parse_instant
from api.jobs.pod_owner_key import owner_key_of_pod
from api.kube.informer import Change, ChangeType
from api.node import is_finished
from api.objects.cluster import PodObject
from api.workload import WorkloadKey

_ASKED = (keys.CHECKPOINT_REQUESTED_AT, keys.CHECKPOINT_DEADLINE)
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A pod that has not ended. `saved_at` is when its last checkpoint was complete by its own report."""

    pod: SavingPod
    owner_key: str
    saved_at: float | None


class WorkloadPods:
    """The pods of all Workloads.

    `mark` is called with a watched Workload whose pods have changed. `mark_saved` is called with the owner
    key of a pod that reports a checkpoint.
    """

    def __init__(self, mark: Callable[[WorkloadKey], None], *, mark_saved: Callable[[str], None]) -> None:
        self._mark = mark
        self._mark_saved = mark_saved
        self._members: dict[str, _Member] = {}
        self._by_owner: dict[str, dict[str, None]] = {}
        # Owner keys of Workloads that wait for a checkpoint: every change of their pods is reported.
        self._watched: dict[str, WorkloadKey] = {}

    def take_pod(self, change: Change[PodObject]) -> None:
        """Take a change of a pod."""
        if change.type is ChangeType.DELETED:
            self._forget(change.object.metadata.uid)
        else:
            self._see(change.object)

    def see_raw(self, raw: bytes) -> None:
        """Take the bytes of a pod from the answer to a write. Raises msgspec.DecodeError."""
        self._see(_POD.decode(raw))

    def watch(self, owner_key: str, workload: WorkloadKey) -> None:
        """Mark this Workload from now on whenever its pods change."""
        self._watched[owner_key] = workload

    def unwatch(self, owner_key: str) -> None:
        """Stop marking the Workload of these pods."""
        self._watched.pop(owner_key, None)

    def pods_of(self, owner_key: str) -> tuple[SavingPod, ...]:
        """Return the pods with this owner key that have not ended, by name."""
        members = (self._members[uid] for uid in self._by_owner.get(owner_key, ()))
        return tuple(sorted((one.pod for one in members), key=lambda pod: pod.name))

    def saved_at(self, owner_key: str) -> float | None:
        """Return when the last checkpoint was complete, as these pods report; None if none does."""
        members = (self._members[uid] for uid in self._by_owner.get(owner_key, ()))
        return max((one.saved_at for one in members if one.saved_at is not None), default=None)

    def _see(self, obj: PodObject) -> None:
        metadata = obj.metadata
        owner_key = _owner_key_of(obj)
        # A pod that is ending reports nothing more and cannot be asked.
        if not owner_key or is_finished(obj) or metadata.deletion_timestamp:
            self._forget(metadata.uid)
            return
        annotations = metadata.annotations or _NOTHING
        member = _Member(
            pod=SavingPod(
                namespace=metadata.namespace,
                name=metadata.name,
                uid=metadata.uid,
                asked={key: annotations[key] for key in _ASKED if key in annotations} or _NOTHING,
            ),
            owner_key=owner_key,
            saved_at=parse_instant(annotations.get(keys.CHECKPOINT_TIME, "")),
        )
        known = self._members.get(metadata.uid)
        if known == member:
            return
        # The pod changed owners, as adopted pods do.
        if known is not None and known.owner_key != owner_key:
            self._forget(metadata.uid)
        self._members[metadata.uid] = member
        self._by_owner.setdefault(owner_key, {})[metadata.uid] = None
        self._mark_watched(owner_key)
        if member.saved_at is not None and (known is None or known.saved_at != member.saved_at):
            self._mark_saved(owner_key)

    def _forget(self, uid: str) -> None:
        known = self._members.pop(uid, None)
        if known is None:
            return
        members = self._by_owner[known.owner_key]
        del members[uid]
        if not members:
            del self._by_owner[known.owner_key]
        self._mark_watched(known.owner_key)

    def _mark_watched(self, owner_key: str) -> None:
        if owner_key in self._watched:
            self._mark(self._watched[owner_key])


def _owner_key_of(obj: PodObject) -> str:
    try:
        return owner_key_of_pod(obj)
    except ValueError:
        # `PodGroups` reports it.
        return ""


_POD = msgspec.json.Decoder(PodObject)
