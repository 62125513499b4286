"""All objects of the server, their versions, and the log of changes that watches read.

Objects are never modified, only replaced, and each keeps its JSON bytes: a list concatenates bytes, a
change is encoded once for all watchers, and a page or a slow watcher can keep the state that it saw.
Nothing is stored on disk.

One counter numbers all changes. It starts at the current time in milliseconds. So a client that
survives a restart of the server has an older version, gets 410 and lists again; with a counter from 1,
it would wait indefinitely.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

import msgspec

from api.kube.embedded.apply.schema import JsonObject

# Number of changes kept per collection. A watcher that falls further behind gets 410 and lists again.
_LOG_EVENTS = 20_000

encode = msgspec.json.Encoder().encode


class ChangeType(StrEnum):
    """The type of a change, in the words of the watch protocol."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Stored:
    """An object and its bytes. The log keeps only the bytes; the object is decoded from them on demand."""

    __slots__ = ("_item", "raw")

    def __init__(self, raw: bytes, item: JsonObject | None = None) -> None:
        self.raw = raw
        self._item = item

    @property
    def item(self) -> JsonObject:
        """The object. It may be shared and must not be modified."""
        # Decoded on first use and kept, because most entries of the log are never used as objects.
        if self._item is None:
            self._item = msgspec.json.decode(self.raw)
        return self._item


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChange:
    """One entry of the log. From `previous`, a watch determines whether it selected the object before."""

    version: int
    type: ChangeType
    namespace: str
    stored: Stored
    previous: Stored | None
    # The object in API versions other than the stored one, converted when a watcher first needs it.
    views: dict[str, Stored] = field(default_factory=dict)


class Collection:
    """The objects of one kind, by namespace and name, and the latest changes of them."""

    def __init__(self, group: str, plural: str, version: int) -> None:
        self.group = group
        self.plural = plural
        # Watches from an earlier version cannot be served, because its changes were dropped.
        self.oldest_version = version
        self.changed = asyncio.Event()
        # False once its kind is no longer served.
        self.is_served = True
        self._objects: dict[str, dict[str, Stored]] = {}
        self._log: deque[StoreChange] = deque()
        self._dropped = 0

    def find(self, namespace: str, name: str) -> Stored | None:
        """Return the object, or None. Cluster-scoped objects are in namespace ""."""
        return self._objects.get(namespace, {}).get(name)

    def all(self, namespace: str | None = None) -> list[Stored]:
        """Return the objects of one namespace, or of all (None), sorted by namespace and name, as in etcd."""
        spaces = sorted(self._objects) if namespace is None else [namespace]
        found: list[Stored] = []
        for space in spaces:
            objects = self._objects.get(space, {})
            found += [objects[name] for name in sorted(objects)]
        return found

    def __iter__(self) -> Iterator[Stored]:
        """Iterate over all objects, in no particular order. The collection must not change meanwhile."""
        for objects in self._objects.values():
            yield from objects.values()

    @property
    def position(self) -> int:
        """The position after the latest change, for `changes_since`."""
        return self._dropped + len(self._log)

    def position_of(self, version: int) -> int:
        """Return the position after the last change that is not newer than `version`."""
        newer = 0
        # Searched from the end, since most watches start at a recent version.
        for change in reversed(self._log):
            if change.version <= version:
                break
            newer += 1
        return self.position - newer

    def changes_since(self, position: int) -> list[StoreChange] | None:
        """Return the changes after `position`, or None if the log no longer contains them."""
        if position < self._dropped:
            return None
        # Positions count all changes ever made, so they stay valid when old changes are dropped.
        start = position - self._dropped
        count = len(self._log) - start
        if count > len(self._log) // 2:
            return list(islice(self._log, start, None))
        # A deque is fast only at its ends, so a few new changes are taken from the right end.
        return [self._log[at - count] for at in range(count)]

    def put(self, version: int, type_: ChangeType, stored: Stored) -> None:
        """Store the object (or remove it), log the change and wake the watchers."""
        metadata = stored.item["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        objects = self._objects.setdefault(namespace, {})
        previous = objects.get(name)
        if type_ is ChangeType.DELETED:
            objects.pop(name, None)
        else:
            objects[name] = stored
        change = StoreChange(
            version=version,
            type=type_,
            namespace=namespace,
            # Only the bytes; otherwise the log would keep thousands of decoded objects in memory.
            stored=Stored(stored.raw),
            previous=Stored(previous.raw) if previous else None,
        )
        self._log.append(change)
        if len(self._log) > _LOG_EVENTS:
            # The changes after this version are still in the log, so a watch may start at it.
            self.oldest_version = self._log.popleft().version
            self._dropped += 1
        self.wake()

    def wake(self) -> None:
        """Wake every waiting watcher."""
        self.changed.set()
        # Waiting watchers hold the old event; later ones get the new event.
        self.changed = asyncio.Event()


# Called after a change with the collection, the type of the change, the object, and its previous state.
Listener = Callable[[Collection, ChangeType, JsonObject, JsonObject | None], None]


class ObjectStore:
    """All collections, and the version counter that they share."""

    def __init__(self, first_version: int) -> None:
        # Versions are shared by all kinds, as in etcd, so they order changes across kinds.
        self.version = first_version
        self._collections: dict[tuple[str, str], Collection] = {}
        self._listeners: list[Listener] = []

    def collection(self, group: str, plural: str) -> Collection:
        """Return the collection of a kind; it is created on first use."""
        key = (group, plural)
        if key not in self._collections:
            self._collections[key] = Collection(group, plural, self.version)
        return self._collections[key]

    def collections(self) -> list[Collection]:
        """Return all collections."""
        return list(self._collections.values())

    def drop(self, collection: Collection) -> None:
        """Remove a collection whose kind is no longer served."""
        self._collections.pop((collection.group, collection.plural), None)
        # Its watchers send what is left, and end.
        collection.is_served = False
        collection.wake()

    def listen(self, listener: Listener) -> None:
        """Call `listener` after every change, in the order of registration."""
        self._listeners.append(listener)

    def commit(
        self, collection: Collection, type_: ChangeType, item: JsonObject, previous: JsonObject | None = None
    ) -> Stored:
        """Assign the next version to the object, store or remove it, notify watchers and listeners.

        Return it.
        """
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        numbered = {**item, "metadata": metadata}
        # Encoded once: every read, list and watch sends the same bytes.
        stored = Stored(encode(numbered), numbered)
        collection.put(self.version, type_, stored)
        # Synchronously and in order, so that the garbage collector processes each change before the next one.
        for listener in self._listeners:
            listener(collection, type_, numbered, previous)
        return stored
