"""A local copy of all objects of a kind, kept up to date by list and watch.

    list ──▶ watch ──▶ watch ──▶ …      a watch ends every few minutes; the next continues at the same version
     ▲         │
     └── 410 ──┘                        the version has expired: list again and report the differences

Versions that go back mean that the cluster was restored from a backup (`api.kube.history`), which ends run().

The change callback receives an exact sequence: every object once as ADDED, then as MODIFIED, and finally as
DELETED, also across lost connections, restarts of the server, and an object that is deleted and created again
with the same name. An object that cannot be decoded is reported and skipped; the others are processed. The
copy may lag behind the server by the delay of a watch; a caller that needs the current state must list.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Generic, TypeVar

import msgspec

from api.kube.client import KubeClient
from api.kube.errors import (
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    Unreachable,
    error_of_event,
    malformed,
)
from api.kube.history import History, check_order
from api.kube.listing import (
    PAGE_SIZE,
    Key,
    KubeObject,
    ListMeta,
    Page,
    Reader,
    Unreadable,
    list_version,
    pages,
)
from api.kube.resources import Resource

T = TypeVar("T", bound=KubeObject)
T_co = TypeVar("T_co", bound=KubeObject, covariant=True)

log = logging.getLogger("berth.kube.informer")

# Number of objects that are processed before other tasks may run: 250 take about 5 ms.
SLICE = 250

# A watch that ends earlier, even without an error, does not show that the server is healthy.
SHORT_WATCH_SECONDS = 1.0

# After this many failures in a row at one version, the list is read again: a server may refuse one version
# permanently with an error other than 410.
FAILURES_BEFORE_RELIST = 4


class ChangeType(StrEnum):
    """What happened to an object, relative to this copy.

    A change that the watch reports as MODIFIED is ADDED here where this copy did not have the object.
    """

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T_co]):
    """One change of an object.

    `object` is the new state; for DELETED the last known one. `previous` is the state in this copy before the
    change, None for ADDED. `raw` is the object's JSON without managedFields, if the informer reports it.
    """

    type: ChangeType
    object: T_co
    previous: T_co | None
    raw: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InformerTiming:
    """Timeouts and intervals of an informer.

    `watch_seconds`: how long the server is asked to keep a watch open, plus up to a fifth, so that many
    informers do not reconnect at the same time. client-go asks for 5 to 10 minutes. `idle_seconds`: time
    without a byte after which the connection counts as dead. It is longer than any watch lasts, because a
    server need not send bookmarks; TCP keep-alive detects hosts that disappear within one minute.
    `first_pause_seconds`, `longest_pause_seconds`: pause after failures, doubled each time, with jitter.
    `missing_retry_seconds`: how often an optional kind that the server does not serve is tried.
    """

    page_size: int = PAGE_SIZE
    watch_seconds: int = 290
    idle_seconds: float = 380.0
    first_pause_seconds: float = 0.05
    longest_pause_seconds: float = 30.0
    missing_retry_seconds: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWatch(Generic[T]):
    """Which objects are listed and watched, and as what they are decoded.

    `params` are selectors. `optional`: a kind that the server does not serve is treated as a kind without
    objects.
    """

    resource: Resource
    type_: type[T]
    namespace: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False

    @property
    def path(self) -> str:
        """Return the path of the collection."""
        return self.resource.path(self.namespace)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Listener(Generic[T]):
    """The callbacks that receive what an informer finds.

    `on_unreadable` is called for each object that cannot be decoded, which is logged by default, because an
    object that is silently ignored is the hardest fault to find. `on_unreadable_gone` is called when an
    object is deleted whose last state could not be decoded. `on_list` is called with the keys of every
    complete list and its version: for listeners that learn of objects in other ways too, perhaps of one
    whose deletion no event shows.
    """

    on_change: Callable[[Change[T]], None]
    on_unreadable: Callable[[Unreadable], None] | None = None
    on_unreadable_gone: Callable[[Key], None] | None = None
    on_list: Callable[[frozenset[Key], str], None] | None = None


class Informer(Generic[T]):
    """Keeps `store` equal to the server's objects of one kind and reports each difference to its listener.

    `store` is updated before the listener is called, and both happen only in run(). `raw` contains the JSON
    of each stored object, with apiVersion and kind and without managedFields, if `keep_raw` is set (15,000
    objects of 2.5 KB, half of it managedFields, take 38 MB with their structs). `synced` is set once the
    first list is complete. `unreadable` contains the objects that cannot be decoded now; the last readable
    state of such an object stays in `store`, because dropping it would release the resources that it uses.
    `last_error` is None if the last request succeeded.

    `keeps` is for a listener that keeps the objects itself, so that they are not kept twice: it returns what
    of an object stays in `store`, at least its name, namespace, uid and version. `raw` is empty then, though
    changes have bytes with `keep_raw`. `previous`, and the object of a deletion that a list shows, are what
    was kept.
    """

    def __init__(
        self,
        client: KubeClient,
        what: ListWatch[T],
        listener: Listener[T],
        *,
        keep_raw: bool = False,
        keeps: Callable[[T], T] | None = None,
        on_error: Callable[[KubeError], None] | None = None,
        timing: InformerTiming | None = None,
    ) -> None:
        resource = what.resource
        self.resource = resource
        self.store: dict[Key, T] = {}
        self.raw: dict[Key, bytes] = {}
        self.unreadable: dict[Key, Unreadable] = {}
        self.synced = asyncio.Event()
        self.relists = 0
        self.last_error: KubeError | None = None
        self._client = client
        self._what = what
        self._on_change = listener.on_change
        self._on_unreadable = listener.on_unreadable or partial(log_unreadable, resource)
        self._on_unreadable_gone = listener.on_unreadable_gone or _ignore
        self._on_list = listener.on_list
        self._on_error = on_error or partial(_log_error, resource)
        self._reader = Reader(what.type_, resource)
        self._has_raw = keep_raw
        self._keeps = keeps
        self._timing = timing or InformerTiming()
        self._version = ""
        self._history = History(resource.plural)
        # Consecutive failures; a watch that lasts, or an event with a new version, resets the count.
        self._failures = 0
        self._missing = 0

    async def run(self) -> None:
        """List and watch until cancelled.

        Exceptions of `on_change` are not caught, because they are errors of the caller. Raises
        ClusterRestored if the server's versions go back: the copy is of a history that was lost.

        Failures of the server are reported to `on_error`, once for each message, and followed by growing
        pauses; the copy stays as it was meanwhile. A kind that is not served counts as a list without objects
        if it is optional.
        """
        while True:
            try:
                pause = await self._follow()
            except KubeError as error:
                pause = self._pause_after(error)
            await asyncio.sleep(pause)

    async def _follow(self) -> float:
        """List if no version is known, then watch until the server ends the watch.

        Returns the seconds to wait before the next watch: 0 after a watch that lasted, and increasing if the
        server ends each watch immediately, even without an error.
        """
        if self._version:
            await self._check_history()
        else:
            await self._wait_served()
            await self._list()
        began = asyncio.get_running_loop().time()
        await self._watch()
        if asyncio.get_running_loop().time() - began >= SHORT_WATCH_SECONDS:
            # Its duration is the only evidence of health, since a server may close a watch at any time.
            self._failures = 0
            return 0.0
        self._failures += 1
        return self._backoff()

    # Listing

    async def _wait_served(self) -> None:
        """Raise NotFound if a kind that was missing is still not served.

        Many kinds may be missing for as long as the cluster lasts, and one request answers for all of them.
        """
        # The first time, the list is asked for again: a version may lack a single kind for a moment.
        if self._missing < 2:
            return
        is_served, max_age_seconds = True, self._timing.missing_retry_seconds / 2
        # Without the right to ask, the list itself shows it.
        with suppress(Forbidden, NotFound):
            is_served = await self._client.served.has(self.resource, max_age_seconds=max_age_seconds)
        if not is_served:
            raise NotFound(f"the server does not serve {self.resource.api_version}", status=404)

    async def _check_history(self) -> None:
        """Check that the server still has the version from which the next watch is to start.

        A server whose history is shorter accepts the watch all the same, and leaves out everything until its
        versions reach the lost ones. A list of one object is the cheapest read by quorum that has a version.
        """
        page = await self._client.fetch_page(self._what.path, {**self._what.params, "limit": "1"})
        # Not noted: the watch begins at an earlier version, and shows what has happened since.
        self._history.check(list_version(page))

    async def _list(self) -> None:
        """Read all objects, report the differences to the copy, and remember the version to watch from."""
        self.relists += 1
        seen: set[Key] = set()
        # The version stays unknown until the list is complete: an interrupted list must start again, but the
        # objects that it has returned so far are already processed.
        version = ""
        stream = pages(self._client.fetch_page, self._what.path, self._what.params, self._timing.page_size)
        async with aclosing(stream):
            async for page in stream:
                self._history.see(page.resource_version)
                if page.restarted:
                    seen.clear()
                await self._take_page(page, seen)
                version = page.resource_version
        # Deletions come last, when all pages are read: an object that is not on this page may be on the next.
        self._drop_all_but(seen)
        if self._on_list is not None:
            self._on_list(frozenset(seen), version)
        self._version = version
        self._missing = 0
        self._recovered()
        # Set after the callbacks, so that a task which waits for it can rely on all objects being reported.
        self.synced.set()

    async def _take_page(self, page: Page, seen: set[Key]) -> None:
        """Take the objects of one page, and note their keys in `seen`."""
        for index, raw in enumerate(page.items, start=1):
            seen.add(self._take(raw))
            if index % SLICE == 0:
                # A page of large objects is decoded in slices, so that other informers and the control loop
                # can run in between.
                await asyncio.sleep(0)

    def _drop_all_but(self, seen: set[Key]) -> None:
        """Report the deletion of every object that a complete list no longer has."""
        for key in [key for key in self.store if key not in seen]:
            self._delete(key, self.store[key], self.raw.get(key))
        for key in [key for key in self.unreadable if key not in seen]:
            self._drop_unreadable(key)

    # Watching

    async def _watch(self) -> None:
        """Follow the changes from the known version on, until the watch ends."""
        timing = self._timing
        params = {
            **self._what.params,
            # Bookmarks advance the version while no object of this kind changes. Without them, the
            # next watch would start at a version that has expired on the server (410), and everything
            # would be listed again.
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(round(timing.watch_seconds * random.uniform(1.0, 1.2))),
        }
        lines = self._client.watch(self._what.path, params, idle_seconds=timing.idle_seconds)
        async with aclosing(lines):
            async for line in lines:
                if line:
                    self._take_event(line)
                else:
                    # The empty line signals that headers have arrived. Only then is the server known to be
                    # healthy, because a watch may be silent for minutes.
                    self._recovered()

    def _take_event(self, line: bytes) -> None:
        """Take one line of a watch. Raises KubeError for an ERROR event or a malformed line."""
        try:
            event = _event_decoder.decode(line)
            if event.type == "BOOKMARK":
                self._advance(_bookmark_decoder.decode(event.object).metadata.resource_version)
                return
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # The content of the event is unknown, so the current state must be listed. The version is
            # dropped, because a watch from it would receive the same bytes again.
            self._version = ""
            raise malformed(f"watch event of {self.resource.plural}", error) from error
        if event.type == "ERROR":
            raise error_of_event(event.object)
        if event.type == "DELETED":
            self._take_deletion(event.object)
        # Other types belong to a newer API and can be ignored: they carry no object of this kind.
        elif event.type in ("ADDED", "MODIFIED"):
            self._take(event.object, from_watch=True)

    # Keeping the copy

    def _take(self, raw: msgspec.Raw, *, from_watch: bool = False) -> Key:
        """Store one existing object and return its key; report it if it differs from the known state."""
        value, own = self._reader.read(raw)
        if isinstance(value, Unreadable):
            # Its version advances the watch too: otherwise every reconnection would receive it again.
            self._report(value)
            if from_watch:
                self._advance(value.resource_version)
            return value.key
        key = value.metadata.namespace, value.metadata.name
        self.unreadable.pop(key, None)
        self._put(key, value, own)
        if from_watch:
            # The version of a list applies as a whole; an object in it usually has an older one.
            self._advance(value.metadata.resource_version)
        return key

    def _put(self, key: Key, value: T, own: bytes) -> None:
        """Take an object into the copy, and report it if its version is new."""
        previous = self.store.get(key)
        if previous is not None:
            # A restored server may have raised its own version (etcdutl --bump-revision), not its objects'.
            what, known = f"{self.resource.plural} {'/'.join(key)}", previous.metadata.resource_version
            check_order(what, known=known, shown=value.metadata.resource_version)
        if previous is not None and previous.metadata.uid != value.metadata.uid:
            # Deleted and created again in between: these are two objects, and the end of the
            # first is reported too.
            self._delete(key, previous, self.raw.get(key))
            previous = None
        # Already known: a list after a 410 returns all objects, also those that have not changed.
        if previous is not None and previous.metadata.resource_version == value.metadata.resource_version:
            return
        if self._keeps is not None:
            self.store[key] = self._keeps(value)
        else:
            self.store[key] = value
            if self._has_raw:
                self.raw[key] = own
        kind = ChangeType.MODIFIED if previous is not None else ChangeType.ADDED
        self._on_change(Change(kind, value, previous, own if self._has_raw else None))

    def _take_deletion(self, raw: msgspec.Raw) -> None:
        """Remove the object of a DELETED event, and report it if it was known."""
        value, own = self._reader.read(raw)
        if isinstance(value, Unreadable):
            key, version = value.key, value.resource_version
            last = self.store.get(key)
            # The object in the event cannot be decoded either, so the last readable bytes are used.
            own = self.raw.get(key, b"")
        else:
            key, version = (value.metadata.namespace, value.metadata.name), value.metadata.resource_version
            last = value
        # An object that was created and deleted while the watch was interrupted was never reported as ADDED,
        # so it is not reported as DELETED either.
        if last is not None and key in self.store:
            self._delete(key, last, own)
        self._drop_unreadable(key)
        self._advance(version)

    def _drop_unreadable(self, key: Key) -> None:
        """Report the deletion of an unreadable object, which `on_change` may never have reported."""
        if self.unreadable.pop(key, None) is not None:
            self._on_unreadable_gone(key)

    def _advance(self, version: str) -> None:
        """Record the version that the watch has reached; the next watch starts there."""
        if version and version != self._version:
            self._history.see(version)
            self._version = version
            self._failures = 0

    def _delete(self, key: Key, last: T, own: bytes | None) -> None:
        """Remove an object from the copy, and report its deletion."""
        previous = self.store.pop(key)
        self.raw.pop(key, None)
        self._on_change(Change(ChangeType.DELETED, last, previous, own if self._has_raw else None))

    # Failures

    def _report(self, unreadable: Unreadable) -> None:
        """Report an unreadable object once, and again only if its fault changes."""
        known = self.unreadable.get(unreadable.key)
        self.unreadable[unreadable.key] = unreadable
        if known is None or known.error != unreadable.error:
            self._on_unreadable(unreadable)

    def _pause_after(self, error: KubeError) -> float:
        """Record the failure and return the seconds to wait before the next attempt."""
        self._failures += 1
        if isinstance(error, NotFound) and self._what.optional:
            self._version = ""
            return self._pause_while_missing()
        # An unreachable server says nothing about the version, and a list would add load to a
        # server that is recovering.
        stuck = self._failures >= FAILURES_BEFORE_RELIST and not isinstance(error, Unreachable)
        if stuck or isinstance(error, (Gone, NotFound)):
            self._version = ""
        # 410 is the protocol's request to list again, and not a fault to report.
        if not isinstance(error, Gone):
            self._failed(error)
        return max(self._backoff(), error.retry_after_seconds or 0.0)

    def _backoff(self) -> float:
        """Return the pause after a failure, in seconds: doubled each time, with jitter."""
        # The exponent is limited too, so that it cannot overflow if a server is down for days.
        doubled = self._timing.first_pause_seconds * 2.0 ** min(self._failures - 1, 30)
        return _jitter(min(self._timing.longest_pause_seconds, doubled))

    def _pause_while_missing(self) -> float:
        # A server that is starting may not serve a custom kind yet and return 404 for a moment. The known
        # objects are dropped only if a second attempt, seconds later, still finds the kind missing.
        self._missing += 1
        if self._missing > 1 or not self.store:
            self._drop_all_but(set())
            self._recovered()
            self.synced.set()
        return _jitter(self._timing.missing_retry_seconds)

    def _failed(self, error: KubeError) -> None:
        """Report a failure, unless it is the same as the one before."""
        known, self.last_error = self.last_error, error
        if known is None or (type(known), known.message) != (type(error), error.message):
            self._on_error(error)

    def _recovered(self) -> None:
        """Note that the server answers again."""
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
    """Return a random part of `seconds`, from half to all of it, to spread the requests of many informers."""
    return seconds * random.uniform(0.5, 1.0)


def _ignore(_: Key) -> None:
    """Default callback, which does nothing."""


def log_unreadable(resource: Resource, unreadable: Unreadable) -> None:
    """Log an object that cannot be decoded.

    Used if no callback is given, since the object is otherwise ignored.
    """
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
