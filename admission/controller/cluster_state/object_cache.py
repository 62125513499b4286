"""The Mirror: Jobs and Workloads as last seen, with their bytes, and who belongs to whom.

Objects arrive twice: as the answer to our own write, and later from the watch. Both go through `see`, which
keeps the newer by resourceVersion, so an old event never undoes what we already know. A deleted object stays
deleted: its uid is remembered for a while, and an answer that arrives late does not bring it back.

Bytes are kept because writes are built from them: fields of newer versions survive.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.objects import Meta

V = TypeVar("V")
ObjectKey = tuple[str, str]

# How many deleted objects are remembered; late answers arrive within one request timeout.
MAX_TOMBSTONES = 10_000


@dataclass(frozen=True, slots=True)
class Seen(Generic[V]):
    """One object: its metadata, its value, its bytes."""

    metadata: Meta
    value: V
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

    def get(self, key: ObjectKey) -> Seen[V] | None:
        """Return the object as last seen."""
        return self._objects.get(key)

    def by_uid(self, uid: str) -> Seen[V] | None:
        """Return the object with this uid."""
        key = self._by_uid.get(uid)
        return self._objects.get(key) if key is not None else None

    def owned_by(self, uid: str) -> tuple[Seen[V], ...]:
        """Return the objects whose controlling owner has this uid, by name."""
        return tuple(self._objects[key] for key in sorted(self._by_owner.get(uid, ())))

    def is_news(self, metadata: Meta) -> bool:
        """Return whether these metadata are newer than what is known of the object."""
        if metadata.uid in self._tombstones:
            return False
        known = self._objects.get((metadata.namespace, metadata.name))
        if known is None:
            return True
        fresh, present = version(metadata.resource_version), version(known.metadata.resource_version)
        # A list may show an object that was deleted and made again before the watch, which lags behind it,
        # shows the last changes of the first one: those would free what the second one holds. Versions of
        # one kind compare across objects, so they tell which of the two is the later.
        return fresh > present or (known.metadata.uid != metadata.uid and fresh == present)

    def has_gone(self, uid: str) -> bool:
        """Return whether the object with this uid was seen to go."""
        return uid in self._tombstones

    def see(self, metadata: Meta, value: V, raw: bytes) -> None:
        """Take the object as it is now; the caller has asked `is_news`."""
        key = (metadata.namespace, metadata.name)
        known = self._objects.get(key)
        if known is not None and known.metadata.uid != metadata.uid:
            # Two lives of one name: the first has ended, though nobody said so.
            self._bury(known.metadata.uid)
        self._unlink(key)
        self._objects[key] = Seen(metadata, value, raw)
        self._by_uid[metadata.uid] = key
        owner = metadata.controller
        if owner is not None:
            self._by_owner.setdefault(owner.uid, set()).add(key)

    def forget(self, metadata: Meta) -> bool:
        """Take note that the object is gone; False where another of the same name has taken its place."""
        # Remembered even where another has taken its name: a late answer about it may still come.
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


def version(text: str) -> int:
    """Return a resourceVersion as a number; 0 where it is none.

    Since Kubernetes 1.35 resourceVersions of one resource compare as integers by contract
    (KEP-5504); before, every server did so in practice.
    """
    return int(text) if text.isdigit() else 0
