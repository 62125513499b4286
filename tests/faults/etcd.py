"""The model of what an API server stores: objects with versions, the log of changes, snapshots.

It holds to what the guards of Berth rest on: one counter numbers all changes, status is written apart from
the rest, a write that changes nothing makes no version, an object with finalizers outlives its deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from api.kube.informer import ChangeType

Object = dict[str, Any]


class Key(NamedTuple):
    """Where an object is: the plural of its kind, its namespace ("": none) and its name."""

    plural: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of an object, and its bytes."""

    item: Object
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One commit. `before` None: it is new; for a deletion `after` is the last state, with a new version."""

    version: int
    type: ChangeType
    key: Key
    before: Stored | None
    after: Stored

    @property
    def now(self) -> Object | None:
        """Return the object as it is after the change, None if it is gone."""
        return None if self.type is ChangeType.DELETED else self.after.item


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The objects at one version."""

    version: int
    objects: dict[Key, Stored]


class Etcd:
    """All objects. Listeners are called at each commit, in the order in which they were added."""

    def __init__(self) -> None:
        self.version = 1_000
        self.objects: dict[Key, Stored] = {}
        self.listeners: list[Callable[[Change], None]] = []
        # The changes that a watch may still ask for, and the version from which on none is missing.
        self.log: list[Change] = []
        self.oldest = self.version
        # How often it was restored: a watch of an earlier time ends.
        self.restores = 0
        self._born = 0

    def of(self, plural: str) -> Iterator[Stored]:
        """Iterate over the objects of a kind, sorted by namespace and name."""
        return (self.objects[key] for key in sorted(self.objects) if key.plural == plural)

    def find(self, key: Key) -> Object | None:
        """Return an object as stored; it must not be changed."""
        stored = self.objects.get(key)
        return stored.item if stored is not None else None

    def create(self, key: Key, item: Object, *, at: str) -> Stored:
        """Store a new object, with a uid of its own."""
        self._born += 1
        metadata = {**item["metadata"], "uid": f"uid-{self._born:05d}", "creationTimestamp": at}
        return self._commit(key, {**item, "metadata": {**metadata, "generation": 1}}, ChangeType.ADDED)

    def update(self, key: Key, item: Object) -> Stored:
        """Store a new state of an object; one that is being deleted and has no finalizers goes."""
        before = self.objects[key]
        if item == before.item:
            return before
        metadata = dict(item["metadata"])
        if item.get("spec") != before.item.get("spec"):
            metadata["generation"] = metadata.get("generation", 0) + 1
        is_over = "deletionTimestamp" in metadata and not metadata.get("finalizers")
        type_ = ChangeType.DELETED if is_over else ChangeType.MODIFIED
        return self._commit(key, {**item, "metadata": metadata}, type_)

    def edit(self, key: Key, change: Callable[[Object], None]) -> None:
        """Change an object as a client with any version would."""
        item = msgspec.json.decode(self.objects[key].raw)
        change(item)
        self.update(key, item)

    def delete(self, key: Key, *, at: str) -> Stored:
        """Delete an object, or mark it while it has finalizers."""
        item = self.objects[key].item
        metadata = {**item["metadata"], "deletionTimestamp": item["metadata"].get("deletionTimestamp", at)}
        return self.update(key, {**item, "metadata": metadata})

    def compact(self) -> None:
        """Forget all changes: a watch from an earlier version gets 410."""
        self.log.clear()
        self.oldest = self.version

    def snapshot(self) -> Snapshot:
        """Return what is stored now."""
        return Snapshot(self.version, dict(self.objects))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot, its version included, as `etcdutl snapshot restore` does."""
        self.version, self.objects = snapshot.version, dict(snapshot.objects)
        self.restores += 1
        self.compact()

    def _commit(self, key: Key, item: Object, type_: ChangeType) -> Stored:
        self.version += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        stored = Stored(item, msgspec.json.encode(item))
        before = self.objects.get(key)
        if type_ is ChangeType.DELETED:
            del self.objects[key]
        else:
            self.objects[key] = stored
        change = Change(version=self.version, type=type_, key=key, before=before, after=stored)
        self.log.append(change)
        for listener in self.listeners:
            listener(change)
        return stored
