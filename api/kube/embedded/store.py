"""All objects of the server, their versions, and the log of changes that watches read.

Objects are never altered, only replaced, and each keeps its JSON bytes: a list joins bytes, a change is
encoded once for all watchers, and a page or a slow watcher can hold on to what it saw. Nothing here is kept
on disk.

One counter numbers all changes. It starts at the clock's milliseconds: a client that outlives a restart then
holds a version of the past, gets 410 and lists anew, where a counter from 1 would leave it waiting for ever.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

import msgspec

from api.kube.embedded.apply.schema import JsonObject

# Changes kept for each collection. A watcher that falls further behind gets 410 and lists anew.
_LOG_EVENTS = 20_000

encode = msgspec.json.Encoder().encode


class ChangeType(StrEnum):
    """What a change did, in the words of the watch protocol."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Stored:
    """An object and its bytes. The log keeps the bytes alone: the object is read from them when asked for."""

    __slots__ = ("_item", "raw")

    def __init__(self, raw: bytes, item: JsonObject | None = None) -> None:
        self.raw = raw
        self._item = item

    @property
    def item(self) -> JsonObject:
        """The object. It may be shared and must not be altered."""
        # Made when first asked for and kept: most entries of the log are never read as objects.
        if self._item is None:
            self._item = msgspec.json.decode(self.raw)
        return self._item


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChange:
    """One entry of the log. `previous` tells watches whether the object was in their selection before."""

    version: int
    type: ChangeType
    namespace: str
    stored: Stored
    previous: Stored | None
    # The object in other API versions than the stored one, made when a watcher first asks.
    views: dict[str, Stored] = field(default_factory=dict)


class Collection:
    """The objects of one kind, by namespace and name, and the latest changes to them."""

    def __init__(self, group: str, plural: str, version: int) -> None:
        self.group = group
        self.plural = plural
        # Watches from a version before this one cannot be served: their changes are gone.
        self.oldest_version = version
        self.changed = asyncio.Event()
        self._objects: dict[str, dict[str, Stored]] = {}
        self._log: deque[StoreChange] = deque()
        self._dropped = 0

    def find(self, namespace: str, name: str) -> Stored | None:
        """Return the object, or None. Cluster-scoped objects live in namespace ""."""
        return self._objects.get(namespace, {}).get(name)

    def all(self, namespace: str | None = None) -> list[Stored]:
        """Return the objects of one namespace, or of all (None), by namespace and name as etcd keeps them."""
        spaces = sorted(self._objects) if namespace is None else [namespace]
        found: list[Stored] = []
        for space in spaces:
            objects = self._objects.get(space, {})
            found += [objects[name] for name in sorted(objects)]
        return found

    def __iter__(self) -> Iterator[Stored]:
        """Iterate over all objects, in no order. Writing meanwhile is an error."""
        for objects in self._objects.values():
            yield from objects.values()

    @property
    def position(self) -> int:
        """The place behind the latest change, for `changes_since`."""
        return self._dropped + len(self._log)

    def position_of(self, version: int) -> int:
        """Return the place behind the last change that is not newer than `version`."""
        newer = 0
        # From the end, since a watch mostly begins at a version of a moment ago.
        for change in reversed(self._log):
            if change.version <= version:
                break
            newer += 1
        return self.position - newer

    def changes_since(self, position: int) -> list[StoreChange] | None:
        """Return the changes behind `position`, or None when the log no longer reaches back that far."""
        if position < self._dropped:
            return None
        # Positions count all changes ever made, so they stay good while old ones are dropped.
        start = position - self._dropped
        count = len(self._log) - start
        if count > len(self._log) // 2:
            return list(islice(self._log, start, None))
        # The deque is quick at its ends only: a few new changes are picked from the right one.
        return [self._log[at - count] for at in range(count)]

    def put(self, version: int, type_: ChangeType, stored: Stored) -> None:
        """Keep the object (or drop it), log the change and wake the watchers."""
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
            # Bytes alone: the log would else keep thousands of decoded objects alive.
            stored=Stored(stored.raw),
            previous=Stored(previous.raw) if previous else None,
        )
        self._log.append(change)
        if len(self._log) > _LOG_EVENTS:
            # Of this version the changes behind it are still there, so a watch may begin at it.
            self.oldest_version = self._log.popleft().version
            self._dropped += 1
        self.wake()

    def wake(self) -> None:
        """Let every waiting watcher look again."""
        self.changed.set()
        # Whoever waits holds the former event; a new one is for who comes later.
        self.changed = asyncio.Event()


# What is called after a change: the collection, what happened, the object, and what it was before.
Listener = Callable[[Collection, ChangeType, JsonObject, JsonObject | None], None]


class ObjectStore:
    """Every collection and the counter that they share."""

    def __init__(self, first_version: int) -> None:
        # Versions are shared by all kinds, as in etcd: they order changes across kinds.
        self.version = first_version
        self._collections: dict[tuple[str, str], Collection] = {}
        self._listeners: list[Listener] = []

    def collection(self, group: str, plural: str) -> Collection:
        """Return the collection of a kind, made on first use."""
        key = (group, plural)
        if key not in self._collections:
            self._collections[key] = Collection(group, plural, self.version)
        return self._collections[key]

    def collections(self) -> list[Collection]:
        """Return all collections."""
        return list(self._collections.values())

    def drop(self, collection: Collection) -> None:
        """Forget a collection whose kind is no longer served."""
        self._collections.pop((collection.group, collection.plural), None)
        # Its watchers find the collection gone, and end.
        collection.wake()

    def listen(self, listener: Listener) -> None:
        """Call `listener` after every change, in the order of registration."""
        self._listeners.append(listener)

    def commit(
        self, collection: Collection, type_: ChangeType, item: JsonObject, previous: JsonObject | None = None
    ) -> Stored:
        """Give the object the next version, keep it (or drop it), tell watchers and listeners; return it."""
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        numbered = {**item, "metadata": metadata}
        # Encoded once: every read, list and watch sends these bytes.
        stored = Stored(encode(numbered), numbered)
        collection.put(self.version, type_, stored)
        # In order and at once: the garbage collector and the stand-ins see each change before the next one.
        for listener in self._listeners:
            listener(collection, type_, numbered, previous)
        return stored
