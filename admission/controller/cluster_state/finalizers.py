"""The finalizer on queues, flavors, topologies and checks: added at first sight, removed when unused.

Level-triggered: an object is looked at when it was seen, when a write on it has ended, and, while it waits
for its deletion, when its last user may be gone. For a ClusterQueue that may be at any change of a Workload,
so the few ClusterQueues that wait are looked at each time. All other kinds wait for a change of another spec.

A finalizer that another client has taken off is not added again: its user wants the object gone although it
is in use. As in Kueue, which adds it at the creation.
"""

from __future__ import annotations

from collections.abc import Callable

from admission.cache.in_use import finalizer_patch
from admission.controller.writer.write_order import ObjectTarget
from admission.decisions.api_writes import Write
from admission.engine.engine import Engine
from api.keys import RESOURCE_IN_USE
from api.kube.history import version_number
from api.objects.common import Meta

# The kinds that refer to others by name and thereby keep them in use.
_NAMING_KINDS = ("ClusterQueue", "ResourceFlavor")


class Finalizers:
    """The metadata of all objects that carry the finalizer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[ObjectTarget, Meta] = {}
        # The uids of objects that have been seen with the finalizer.
        self._had: set[str] = set()
        self._due: dict[ObjectTarget, None] = {}
        # Objects that are being deleted and were in use when last looked at.
        self._awaited: dict[ObjectTarget, None] = {}

    def see(self, kind: str, metadata: Meta) -> None:
        """Take the object as it is now, from the watch or from the answer to a write."""
        target = ObjectTarget(kind, "", metadata.name)
        known = self._known.get(target)
        # The watch may lag behind the answer to our own write: the newer version is kept.
        if known is not None and known.uid == metadata.uid and not _is_newer(metadata, known):
            return
        self._known[target] = metadata
        if RESOURCE_IN_USE in (metadata.finalizers or ()):
            self._had.add(metadata.uid)
        self._due[target] = None
        self._note_change(kind)

    def forget(self, kind: str, metadata: Meta) -> None:
        """Drop an object that is gone, unless another of the same name has replaced it."""
        target = ObjectTarget(kind, "", metadata.name)
        known = self._known.get(target)
        if known is not None and known.uid == metadata.uid:
            del self._known[target]
            self._had.discard(metadata.uid)
            self._due.pop(target, None)
            self._awaited.pop(target, None)
        self._note_change(kind)

    def mark(self, target: ObjectTarget) -> None:
        """Have this object looked at again, if its kind carries the finalizer."""
        if target in self._known:
            self._due[target] = None

    def mark_all(self) -> None:
        """Have all objects looked at again."""
        self._due.update(dict.fromkeys(self._known))

    def take_due(self, is_left_alone: Callable[[ObjectTarget], bool]) -> tuple[Write, ...]:
        """Return the writes that are due now. An object that is to be left alone stays due."""
        queues = (target for target in self._awaited if target.kind == "ClusterQueue")
        writes = []
        # Each object once. ClusterQueues that wait for their deletion are looked at each time.
        for target in dict.fromkeys((*self._due, *queues)):
            if is_left_alone(target):
                continue
            self._due.pop(target, None)
            write = self._look(target)
            if write is not None:
                writes.append(write)
        return tuple(writes)

    def _look(self, target: ObjectTarget) -> Write | None:
        metadata = self._known[target]
        is_deleted = metadata.deletion_timestamp is not None
        is_used = is_deleted and self._engine.queues.is_in_use(target.kind, target.name)
        if is_used:
            self._awaited[target] = None
        else:
            self._awaited.pop(target, None)
        if metadata.uid in self._had and RESOURCE_IN_USE not in (metadata.finalizers or ()):
            return None
        return finalizer_patch(target.kind, metadata, is_used=is_used)

    def _note_change(self, kind: str) -> None:
        if kind in _NAMING_KINDS:
            # A change of a ClusterQueue or flavor may end the use of another object.
            self._due.update(self._awaited)


def _is_newer(metadata: Meta, known: Meta) -> bool:
    return version_number(metadata.resource_version) > version_number(known.resource_version)
