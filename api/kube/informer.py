"""A local copy of all objects of a kind, kept up to date by list and watch.

    list ──▶ watch ──▶ watch ──▶ …      a watch ends every few minutes; the next goes on at the same version
     ▲         │
     └── 410 ──┘                        the version is forgotten: list anew and report the differences

What the change callback sees is exact: every object once as ADDED, then MODIFIED and at last DELETED, also
across lost connections, restarts of the server and an object deleted and made again under the same name.
A single object that cannot be decoded is named and skipped; the others go on. The copy may lag behind the
server by a watch's delay; whoever must know better lists.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Generic, TypeVar

import msgspec

from api.kube.client import KubeClient
from api.kube.errors import Gone, KubeError, NotFound, Unreachable, error_of_event, malformed
from api.kube.listing import PAGE_SIZE, Key, KubeObject, ListMeta, Page, Reader, Unreadable, pages
from api.kube.resources import Resource

T = TypeVar("T", bound=KubeObject)
T_co = TypeVar("T_co", bound=KubeObject, covariant=True)

log = logging.getLogger("berth.kube.informer")

# Objects taken from a page before other tasks get their turn: 250 take about 5 ms.
SLICE = 250

# A watch that ended sooner, without an error, is no sign of a healthy server.
SHORT_WATCH_SECONDS = 1.0

# After so many failures in a row at one version the list is read anew: a version from before an etcd was
# restored is answered with an error other than 410, for ever.
FAILURES_BEFORE_RELIST = 4


class ChangeType(StrEnum):
    """What happened to an object, as seen from this copy."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T_co]):
    """One object's change.

    `object` is the new state; for DELETED the last one that is known. `previous` is what this copy held
    before, None for ADDED. `raw` is the object's JSON without managedFields, where the informer keeps it.
    """

    type: ChangeType
    object: T_co
    previous: T_co | None
    raw: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerTiming:
    """The informer's patience.

    `watch_seconds`: how long the server is asked to keep a watch, plus up to a fifth so that many informers
    do not reconnect together. client-go asks 5 to 10 minutes.
    `idle_seconds`: no byte for so long means a dead connection; longer than any watch lasts, because a
    server need not send bookmarks. Hosts that vanish are noticed in one minute by TCP's own probes.
    `first_pause_seconds`, `longest_pause_seconds`: between failures, doubling, with jitter.
    `missing_retry_seconds`: how often an optional kind that the server does not serve is looked for.
    """

    page_size: int = PAGE_SIZE
    watch_seconds: int = 290
    idle_seconds: float = 380.0
    first_pause_seconds: float = 0.05
    longest_pause_seconds: float = 30.0
    missing_retry_seconds: float = 3.0


class Informer(Generic[T]):
    """Keeps `store` equal to the server's objects of one kind and calls `on_change` for each difference.

    `store` is updated before `on_change` is called, and both are touched by run() alone. `raw` holds the
    JSON of each stored object, with apiVersion and kind and without managedFields, where `keep_raw` is set
    (15,000 objects of 2.5 KB, half of it managedFields: 38 MB with their structs). `synced` is set once the
    first list is complete. `unreadable` names what cannot be decoded now; of such an object the last
    readable state stays in `store`, because to forget it would free what it uses. `last_error` is None while
    all is well.
    `on_unreadable_gone` hears of the end of an object that could not be decoded last.
    `optional`: a kind that the server does not serve counts as one without objects.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        type_: type[T],
        on_change: Callable[[Change[T]], None],
        *,
        on_unreadable: Callable[[Unreadable], None] | None = None,
        on_unreadable_gone: Callable[[Key], None] | None = None,
        on_error: Callable[[KubeError], None] | None = None,
        namespace: str | None = None,
        params: Mapping[str, str] | None = None,
        keep_raw: bool = False,
        optional: bool = False,
        timing: InformerTiming | None = None,
    ) -> None:
        self.resource = resource
        self.store: dict[Key, T] = {}
        self.raw: dict[Key, bytes] = {}
        self.unreadable: dict[Key, Unreadable] = {}
        self.synced = asyncio.Event()
        self.relists = 0
        self.reconnects = 0
        self.last_error: KubeError | None = None
        self._client = client
        self._path = resource.path(namespace)
        self._params = dict(params or {})
        self._on_change = on_change
        # Logged where nobody listens: an object that silently does not count is the hardest fault to find.
        self._on_unreadable = on_unreadable or partial(log_unreadable, resource)
        self._on_unreadable_gone = on_unreadable_gone or _ignore
        self._on_error = on_error or partial(_log_error, resource)
        self._reader = Reader(type_, resource)
        self._keep_raw = keep_raw
        self._optional = optional
        self._timing = timing or InformerTiming()
        self._version = ""
        # Failures in a row without news: a watch that lasts, or an event that moves the
        # version, ends the row.
        self._failures = 0
        self._missing = 0
        self._watched = False

    async def run(self) -> None:
        """List, watch, and begin again for as long as the task lives; it ends by cancellation only.

        What `on_change` raises passes through: it is an error of the caller's.
        """
        while True:
            try:
                pause = await self._follow()
            except KubeError as error:
                pause = self._pause_after(error)
            await asyncio.sleep(pause)

    async def _follow(self) -> float:
        """List where no version is known, then watch until the server ends the watch.

        Returns the seconds to wait before the next watch. None after a watch that lasted; a server that
        ends each watch at once, without an error, is left alone for longer and longer.
        """
        if not self._version:
            await self._list()
        began = asyncio.get_running_loop().time()
        await self._watch()
        if asyncio.get_running_loop().time() - began >= SHORT_WATCH_SECONDS:
            # To have lasted is all the proof of health there is: a server may close a
            # watch whenever it likes.
            self._failures = 0
            return 0.0
        self._failures += 1
        return self._backoff()

    # Listing

    async def _list(self) -> None:
        self.relists += 1
        seen: set[Key] = set()
        # No version is known until the list is complete: a list broken off must begin anew, while
        # what it has brought so far already counts.
        version = ""
        stream = pages(self._client.fetch_page, self._path, self._params, self._timing.page_size)
        async with aclosing(stream):
            async for page in stream:
                if page.restarted:
                    seen.clear()
                await self._take_page(page, seen)
                version = page.resource_version
        # Deletions last, when all pages are in: an object that is not on this page may be on the next.
        self._drop_all_but(seen)
        self._version = version
        self._missing = 0
        self._recovered()
        # After the callbacks: whoever waits for it may trust that every object has been handed over.
        self.synced.set()

    async def _take_page(self, page: Page, seen: set[Key]) -> None:
        for index, raw in enumerate(page.items, start=1):
            seen.add(self._take(raw))
            if index % SLICE == 0:
                # A page of large objects is decoded in slices; informers of other kinds and the
                # brain have their turn between.
                await asyncio.sleep(0)

    def _drop_all_but(self, seen: set[Key]) -> None:
        for key in [key for key in self.store if key not in seen]:
            self._delete(key, self.store[key], self.raw.get(key))
        for key in [key for key in self.unreadable if key not in seen]:
            self._drop_unreadable(key)

    # Watching

    async def _watch(self) -> None:
        timing = self._timing
        params = {
            **self._params,
            # Bookmarks move the version on while nothing of this kind changes. Without them the
            # next watch would begin so far back that the server has forgotten it (410), and
            # everything would be listed again.
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(timing.watch_seconds * random.uniform(1.0, 1.2))),
        }
        lines = self._client.watch(self._path, params, idle_seconds=timing.idle_seconds)
        async with aclosing(lines):
            async for line in lines:
                if line:
                    self._take_event(line)
                else:
                    # The empty line: headers have come. Only now is the server known to be well; a
                    # watch may stay silent for minutes.
                    self._connected()

    def _connected(self) -> None:
        if self._watched:
            self.reconnects += 1
        self._watched = True
        self._recovered()

    def _take_event(self, line: bytes) -> None:
        try:
            event = _event_decoder.decode(line)
            if event.type == "BOOKMARK":
                self._advance(_bookmark_decoder.decode(event.object).metadata.resource_version)
                return
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # What was meant is unknown, so the present state must be read.
            # Forgotten, so that the next round lists: to watch on from the old version would meet
            # the same bytes again.
            self._version = ""
            raise malformed(f"watch event of {self.resource.plural}", error) from error
        if event.type == "ERROR":
            raise error_of_event(event.object)
        if event.type == "DELETED":
            self._take_deletion(event.object)
        # Other types are of a newer API than ours, and may be passed over: what they announce
        # is in no object.
        elif event.type in ("ADDED", "MODIFIED"):
            self._take(event.object, from_watch=True)

    # Keeping the copy

    def _take(self, raw: msgspec.Raw, *, from_watch: bool = False) -> Key:
        """Store one present object and return its key; report it where it differs from what is known."""
        value, own = self._reader.read(raw)
        if isinstance(value, Unreadable):
            # Its version counts all the same: else every reconnection would begin before it
            # and meet it again.
            self._report(value)
            if from_watch:
                self._advance(value.resource_version)
            return value.key
        key = value.metadata.namespace, value.metadata.name
        self.unreadable.pop(key, None)
        self._put(key, value, own)
        if from_watch:
            # A list moves the version as a whole; an object in it is often older than the list.
            self._advance(value.metadata.resource_version)
        return key

    def _put(self, key: Key, value: T, own: bytes) -> None:
        previous = self.store.get(key)
        if previous is not None and previous.metadata.uid != value.metadata.uid:
            # Deleted and made again between two looks: two objects, and the first one's end is news too.
            self._delete(key, previous, self.raw.get(key))
            previous = None
        # Seen already: a list after a 410 brings everything anew, and what has not changed is no news.
        if previous is not None and previous.metadata.resource_version == value.metadata.resource_version:
            return
        self.store[key] = value
        if self._keep_raw:
            self.raw[key] = own
        kind = ChangeType.MODIFIED if previous is not None else ChangeType.ADDED
        self._on_change(Change(kind, value, previous, own if self._keep_raw else None))

    def _take_deletion(self, raw: msgspec.Raw) -> None:
        value, own = self._reader.read(raw)
        if isinstance(value, Unreadable):
            key, version = value.key, value.resource_version
            last = self.store.get(key)
            # The event's own bytes cannot be read either, so the last good ones stand in.
            own = self.raw.get(key, b"")
        else:
            key, version = (value.metadata.namespace, value.metadata.name), value.metadata.resource_version
            last = value
        # An object that was ADDED and DELETED while the watch was down was never announced, so its
        # end is not either.
        if last is not None and key in self.store:
            self._delete(key, last, own)
        self._drop_unreadable(key)
        self._advance(version)

    def _drop_unreadable(self, key: Key) -> None:
        """Tell that an object is gone that was never readable: no change will say so."""
        if self.unreadable.pop(key, None) is not None:
            self._on_unreadable_gone(key)

    def _advance(self, version: str) -> None:
        """Note how far the watch has come: the next one goes on from here."""
        if version and version != self._version:
            self._version = version
            self._failures = 0

    def _delete(self, key: Key, last: T, own: bytes | None) -> None:
        previous = self.store.pop(key)
        self.raw.pop(key, None)
        self._on_change(Change(ChangeType.DELETED, last, previous, own if self._keep_raw else None))

    # Failures

    def _report(self, unreadable: Unreadable) -> None:
        """Tell of an unreadable object once, and again only when the fault is another."""
        known = self.unreadable.get(unreadable.key)
        self.unreadable[unreadable.key] = unreadable
        if known is None or known.error != unreadable.error:
            self._on_unreadable(unreadable)

    def _pause_after(self, error: KubeError) -> float:
        """Note the failure and return the seconds to wait before the next attempt."""
        self._failures += 1
        if isinstance(error, NotFound) and self._optional:
            self._version = ""
            return self._pause_while_missing()
        # An unreachable server says nothing about the version; to list anew for it would load a
        # server that is just coming back.
        stuck = self._failures >= FAILURES_BEFORE_RELIST and not isinstance(error, Unreachable)
        if stuck or isinstance(error, (Gone, NotFound)):
            self._version = ""
        # 410 is how the protocol says "list again" and no fault to be told.
        if not isinstance(error, Gone):
            self._failed(error)
        return max(self._backoff(), error.retry_after_seconds or 0.0)

    def _backoff(self) -> float:
        # The power is capped too: a server that is away for days must not overflow it.
        doubled = self._timing.first_pause_seconds * 2.0 ** min(self._failures - 1, 30)
        return _jitter(min(self._timing.longest_pause_seconds, doubled))

    def _pause_while_missing(self) -> float:
        # A server that is starting may not serve a custom kind yet and say 404 for a moment. What is
        # known is given up only when a second look, seconds later, finds the kind still missing.
        self._missing += 1
        if self._missing > 1 or not self.store:
            self._drop_all_but(set())
            self._recovered()
            self.synced.set()
        return _jitter(self._timing.missing_retry_seconds)

    def _failed(self, error: KubeError) -> None:
        known, self.last_error = self.last_error, error
        if known is None or (type(known), known.message) != (type(error), error.message):
            self._on_error(error)

    def _recovered(self) -> None:
        if self.last_error is not None:
            log.info("informer_recovered resource=%s", self.resource.plural)
        self.last_error = None


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct, gc=False):
    metadata: ListMeta


_event_decoder = msgspec.json.Decoder(_Event)
_bookmark_decoder = msgspec.json.Decoder(_Bookmark)


def _jitter(seconds: float) -> float:
    """Spread what many informers would otherwise do at the same moment."""
    return seconds * random.uniform(0.5, 1.0)


def _ignore(_: Key) -> None:
    """Nobody asked to be told."""


def log_unreadable(resource: Resource, unreadable: Unreadable) -> None:
    """Name an object that cannot be decoded, where nobody else does: it silently does not count."""
    log.warning(
        "object_unreadable resource=%s namespace=%s name=%s error=%r",
        resource.plural,
        unreadable.namespace,
        unreadable.name,
        unreadable.error,
    )


def _log_error(resource: Resource, error: KubeError) -> None:
    log.warning(
        "informer_failed resource=%s status=%s error=%r", resource.plural, error.status, error.message
    )
