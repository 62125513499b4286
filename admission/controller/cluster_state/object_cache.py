"""The object cache: Jobs and Workloads as last seen, with their bytes, indexed by owner.

An object arrives twice: in the answer to our own write, and later from the watch. Both go through `see`, and
`is_newer` tells the newer version by resourceVersion, so a late event never reverts a newer state. A deleted
object stays deleted: its uid is remembered for a while, and a late answer does not restore it. Where versions
go back for good, because the cluster was restored from a backup, the controller begins again with empty
caches (`api.kube.history`).

The bytes are kept because writes are built from them: fields of newer API versions survive.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.kube.history import version_number
from api.objects.common import Meta

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
ObjectKey = tuple[str, str]

# How many deleted objects are remembered. A late answer arrives within one request timeout.
MAX_TOMBSTONES = 10_000


@dataclass(frozen=True, slots=True)
class Seen(Generic[V_co]):
    """One object: its metadata, its value, its bytes."""

    metadata: Meta
    value: V_co
    raw: bytes


class ObjectCache(Generic[V]):
    """The objects of one kind by namespace and name, and by the uid of their controlling owner."""

    def __init__(self) -> None:
        self._objects: dict[ObjectKey, Seen[V]] = {}
        self._by_owner: dict[str, set[ObjectKey]] = {}
        self._by_uid: dict[str, ObjectKey] = {}
        self._tombstones: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Seen[V]]:
        return iter(self._objects.values())

    def all_keys(self) -> tuple[ObjectKey, ...]:
        """Return the namespaces and names of all objects, as they are now."""
        return tuple(self._objects)

    def get(self, key: ObjectKey) -> Seen[V] | None:
        """Return the object as last seen; None if there is none."""
        return self._objects.get(key)

    def by_uid(self, uid: str) -> Seen[V] | None:
        """Return the object with this uid; None if there is none."""
        key = self._by_uid.get(uid)
        return self._objects.get(key) if key is not None else None

    def owned_by(self, uid: str) -> tuple[Seen[V], ...]:
        """Return the objects whose controlling owner has this uid, by name."""
        return tuple(self._objects[key] for key in sorted(self._by_owner.get(uid, ())))

    def missing_from(self, listed: Collection[ObjectKey], version: str) -> tuple[Seen[V], ...]:
        """Return the objects that a list of this version should show if they existed, and does not.

        Some are known from a leader's own list or from the answer to a write, and were deleted before the
        watch, which was broken, could show that they existed.
        """
        at = version_number(version)
        return tuple(
            seen
            for key, seen in self._objects.items()
            if key not in listed and version_number(seen.metadata.resource_version) <= at
        )

    def is_newer(self, metadata: Meta) -> bool:
        """Return whether this metadata is newer than what is known of the object."""
        if metadata.uid in self._tombstones:
            return False
        known = self._objects.get((metadata.namespace, metadata.name))
        if known is None:
            return True
        fresh = version_number(metadata.resource_version)
        present = version_number(known.metadata.resource_version)
        # A list may show an object that was deleted and created again. The watch lags behind it and still
        # shows the last changes of the first object, which would free the quota that the second one holds.
        # Versions of one kind compare across objects, so they show which of the two is later.
        return fresh > present or (known.metadata.uid != metadata.uid and fresh == present)

    def has_gone(self, uid: str) -> bool:
        """Return whether the object with this uid was seen to be deleted (recently, see MAX_TOMBSTONES)."""
        return uid in self._tombstones

    def see(self, metadata: Meta, value: V, raw: bytes) -> None:
        """Store the object as it is now. The caller has checked `is_newer`."""
        key = (metadata.namespace, metadata.name)
        known = self._objects.get(key)
        if known is not None and known.metadata.uid != metadata.uid:
            # Another object of the same name: the former one was deleted, although no event has shown it.
            self._bury(known.metadata.uid)
        self._unlink(key)
        self._objects[key] = Seen(metadata, value, raw)
        self._by_uid[metadata.uid] = key
        owner = metadata.controller
        if owner is not None:
            self._by_owner.setdefault(owner.uid, set()).add(key)

    def forget(self, metadata: Meta) -> bool:
        """Remove an object that is gone. Return False if another of the same name has replaced it."""
        # Remembered even if another has taken its name: a late answer about it may still arrive.
        self._bury(metadata.uid)
        key = (metadata.namespace, metadata.name)
        known = self._objects.get(key)
        if known is None or known.metadata.uid != metadata.uid:
            return False
        self._unlink(key)
        return True

    def _bury(self, uid: str) -> None:
        self._tombstones[uid] = None
        if len(self._tombstones) > MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _unlink(self, key: ObjectKey) -> None:
        known = self._objects.pop(key, None)
        if known is None:
            return
        self._by_uid.pop(known.metadata.uid, None)
        owner = known.metadata.controller
        if owner is not None and (siblings := self._by_owner.get(owner.uid)) is not None:
            siblings.discard(key)
            if not siblings:
                del self._by_owner[owner.uid]
