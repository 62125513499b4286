"""The pods that Jobs run: whom to ask for a checkpoint, and what they tell of theirs.

Kept by the uid of the Job, and of each pod no more than that takes. A watch of all pods feeds it, which runs
only where a policy may evict (or a flavor places by topology): most clusters have many pods and ask nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from admission.lifecycle import AskedPod
from api import keys
from api.checkpoint_facts import parse_instant
from api.kube.informer import Change, ChangeType
from api.node import is_finished
from api.objects import PodObject

_ASKED = (keys.CHECKPOINT_REQUESTED_AT, keys.CHECKPOINT_DEADLINE)
_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A pod that has not ended. `saved_at` is its own last word on a checkpoint, in Unix seconds."""

    pod: AskedPod
    owner: str
    saved_at: float | None


class Crews:
    """The pods of all Jobs.

    `mark` is called with the uid of a watched Job whose pods tell something new, `mark_saved` with that of
    any Job one of whose pods tells of a checkpoint.
    """

    def __init__(self, mark: Callable[[str], None], *, mark_saved: Callable[[str], None]) -> None:
        self._mark = mark
        self._mark_saved = mark_saved
        self._members: dict[str, _Member] = {}
        self._by_owner: dict[str, dict[str, None]] = {}
        # Jobs whose Workloads wait for a checkpoint: whatever their pods tell is looked at.
        self._watched: set[str] = set()

    def take_pod(self, change: Change[PodObject]) -> None:
        """Take a change of a pod."""
        if change.type is ChangeType.DELETED:
            self._forget(change.object.metadata.uid)
        else:
            self._see(change.object)

    def see_raw(self, raw: bytes) -> None:
        """Take the bytes of a pod that answered a write of ours; raises msgspec.DecodeError."""
        self._see(_POD.decode(raw))

    def watch(self, owner: str) -> None:
        """Mark this Job from now on when its pods tell something new."""
        self._watched.add(owner)

    def unwatch(self, owner: str) -> None:
        """Mark it no longer."""
        self._watched.discard(owner)

    def pods_of(self, owner: str) -> tuple[AskedPod, ...]:
        """Return the pods of a Job that have not ended, by name."""
        members = (self._members[uid] for uid in self._by_owner.get(owner, ()))
        return tuple(sorted((one.pod for one in members), key=lambda pod: pod.name))

    def saved_at(self, owner: str) -> float | None:
        """Return when the last checkpoint was complete by what the Job's pods say; None where none does."""
        members = (self._members[uid] for uid in self._by_owner.get(owner, ()))
        return max((one.saved_at for one in members if one.saved_at is not None), default=None)

    def _see(self, obj: PodObject) -> None:
        metadata = obj.metadata
        owner = next((one.uid for one in metadata.owner_references or () if one.controller), None)
        if owner is None or is_finished(obj) or metadata.deletion_timestamp:
            self._forget(metadata.uid)
            return
        annotations = metadata.annotations or _NOTHING
        member = _Member(
            pod=AskedPod(
                namespace=metadata.namespace,
                name=metadata.name,
                uid=metadata.uid,
                asked={key: annotations[key] for key in _ASKED if key in annotations} or _NOTHING,
            ),
            owner=owner,
            saved_at=parse_instant(annotations.get(keys.CHECKPOINT_TIME, "")),
        )
        known = self._members.get(metadata.uid)
        if known == member:
            return
        self._members[metadata.uid] = member
        self._by_owner.setdefault(owner, {})[metadata.uid] = None
        self._tell(owner)
        if member.saved_at is not None and (known is None or known.saved_at != member.saved_at):
            self._mark_saved(owner)

    def _forget(self, uid: str) -> None:
        known = self._members.pop(uid, None)
        if known is None:
            return
        members = self._by_owner[known.owner]
        del members[uid]
        if not members:
            del self._by_owner[known.owner]
        self._tell(known.owner)

    def _tell(self, owner: str) -> None:
        if owner in self._watched:
            self._mark(owner)


_POD = msgspec.json.Decoder(PodObject)
