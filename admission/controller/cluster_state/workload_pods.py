"""The pods of Workloads: which pods to ask for a checkpoint, and what they report of theirs.

The pods of one Workload are its *crew* (`api.jobs.pod_owner_key` has the key). Only what this task needs is
kept of a pod. A watch of all pods feeds this module, and runs only if a policy may evict or a flavor places
by topology: most clusters have many pods and never ask for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from admission.reconcile.workload import SavingPod
from api import keys
from api.jobs.checkpoint_annotations import parse_instant
from api.jobs.pod_owner_key import pod_set_key_of_pod
from api.kube.informer import Change, ChangeType
from api.node import is_finished
from api.objects import PodObject
from api.workload import WorkloadKey

_ASKED = (keys.CHECKPOINT_REQUESTED_AT, keys.CHECKPOINT_DEADLINE)
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A pod that has not ended. `saved_at` is when its last checkpoint was complete by its own report."""

    pod: SavingPod
    crew: str
    saved_at: float | None


class WorkloadPods:
    """The pods of all Workloads.

    `mark` is called with a watched Workload whose pods have changed. `mark_saved` is called with the key of a
    crew when one of its pods reports a checkpoint.
    """

    def __init__(self, mark: Callable[[WorkloadKey], None], *, mark_saved: Callable[[str], None]) -> None:
        self._mark = mark
        self._mark_saved = mark_saved
        self._members: dict[str, _Member] = {}
        self._by_crew: dict[str, dict[str, None]] = {}
        # Crews whose Workloads wait for a checkpoint: every change of their pods is reported.
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

    def watch(self, crew: str, workload: WorkloadKey) -> None:
        """Mark this Workload from now on whenever its pods change."""
        self._watched[crew] = workload

    def unwatch(self, crew: str) -> None:
        """Stop marking the Workload of this crew."""
        self._watched.pop(crew, None)

    def pods_of(self, crew: str) -> tuple[SavingPod, ...]:
        """Return the pods of the crew that have not ended, by name."""
        members = (self._members[uid] for uid in self._by_crew.get(crew, ()))
        return tuple(sorted((one.pod for one in members), key=lambda pod: pod.name))

    def saved_at(self, crew: str) -> float | None:
        """Return when the last checkpoint was complete, as these pods report; None if none does."""
        members = (self._members[uid] for uid in self._by_crew.get(crew, ()))
        return max((one.saved_at for one in members if one.saved_at is not None), default=None)

    def _see(self, obj: PodObject) -> None:
        metadata = obj.metadata
        crew = _crew_of(obj)
        # A pod that is ending reports nothing more and cannot be asked.
        if not crew or is_finished(obj) or metadata.deletion_timestamp:
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
            crew=crew,
            saved_at=parse_instant(annotations.get(keys.CHECKPOINT_TIME, "")),
        )
        known = self._members.get(metadata.uid)
        if known == member:
            return
        # The pod changed owners, as adopted pods do.
        if known is not None and known.crew != crew:
            self._forget(metadata.uid)
        self._members[metadata.uid] = member
        self._by_crew.setdefault(crew, {})[metadata.uid] = None
        self._tell(crew)
        if member.saved_at is not None and (known is None or known.saved_at != member.saved_at):
            self._mark_saved(crew)

    def _forget(self, uid: str) -> None:
        known = self._members.pop(uid, None)
        if known is None:
            return
        members = self._by_crew[known.crew]
        del members[uid]
        if not members:
            del self._by_crew[known.crew]
        self._tell(known.crew)

    def _tell(self, crew: str) -> None:
        if crew in self._watched:
            self._mark(self._watched[crew])


def _crew_of(obj: PodObject) -> str:
    try:
        return pod_set_key_of_pod(obj)
    except ValueError:
        # `PodGroups` reports it.
        return ""


_POD = msgspec.json.Decoder(PodObject)
