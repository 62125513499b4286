"""Keeping: the finalizer on queues, flavors, topologies and checks, put on at first sight, off when due.

Level-triggered: an object is looked at when it was seen, when a write on it came to an end, and, where it
waits for its deletion, when what it waits for may have ended. For a ClusterQueue that may be at any change of
a Workload, so these, which are few, are looked at each time; all others wait for another spec to change.
"""

from __future__ import annotations

from collections.abc import Callable

from admission.cache.in_use import finalizer_patch
from admission.controller.cluster_state.object_cache import version
from admission.controller.writer.executor import ObjectTarget
from admission.decisions.api_writes import Write
from admission.engine.engine import Engine
from api.objects import Meta

# What these name is in use.
_NAMING_KINDS = ("ClusterQueue", "ResourceFlavor")


class Finalizers:
    """The metadata of all objects that carry the finalizer. One task owns it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[ObjectTarget, Meta] = {}
        self._due: dict[ObjectTarget, None] = {}
        # Being deleted, and in use when last looked at.
        self._awaited: dict[ObjectTarget, None] = {}

    def see(self, kind: str, metadata: Meta) -> None:
        """Take the object as it is now, from the watch or from the answer to a write."""
        target = ObjectTarget(kind, "", metadata.name)
        known = self._known.get(target)
        # The watch behind our own answer: the newer of both is kept.
        if known is not None and known.uid == metadata.uid and not _is_newer(metadata, known):
            return
        self._known[target] = metadata
        self._due[target] = None
        self._note_change(kind)

    def forget(self, kind: str, metadata: Meta) -> None:
        """The object is gone, unless another of its name has taken its place."""
        target = ObjectTarget(kind, "", metadata.name)
        known = self._known.get(target)
        if known is not None and known.uid == metadata.uid:
            del self._known[target]
            self._due.pop(target, None)
            self._awaited.pop(target, None)
        self._note_change(kind)

    def mark(self, target: ObjectTarget) -> None:
        """Look at this object again, where it is one of these."""
        if target in self._known:
            self._due[target] = None

    def mark_all(self) -> None:
        """Look at all again."""
        self._due.update(dict.fromkeys(self._known))

    def take_due(self, is_left_alone: Callable[[ObjectTarget], bool]) -> tuple[Write, ...]:
        """Return the writes that are wanted now; whoever is to be left alone stays due."""
        queues = (target for target in self._awaited if target.kind == "ClusterQueue")
        writes = []
        # Each once, those due first; queues that wait to go are looked at each time.
        for target in dict.fromkeys((*self._due, *queues)):
            if is_left_alone(target):
                continue
            # Only who is not left alone: others stay due for the next time.
            self._due.pop(target, None)
            write = self._look(target)
            if write is not None:
                writes.append(write)
        return tuple(writes)

    def _look(self, target: ObjectTarget) -> Write | None:
        metadata = self._known[target]
        is_deleted = metadata.deletion_timestamp is not None
        is_used = is_deleted and self._engine.is_in_use(target.kind, target.name)
        if is_used:
            self._awaited[target] = None
        else:
            self._awaited.pop(target, None)
        return finalizer_patch(target.kind, metadata, is_used=is_used)

    def _note_change(self, kind: str) -> None:
        if kind in _NAMING_KINDS:
            # A ClusterQueue or a flavor that changed may have been what others are kept for.
            self._due.update(self._awaited)


def _is_newer(metadata: Meta, known: Meta) -> bool:
    return version(metadata.resource_version) > version(known.resource_version)
