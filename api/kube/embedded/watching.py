"""Watches: the changes after a version, as a stream that lasts until its timeout.

A watcher has a position in the log of its collection and reads from there; nothing is queued for it. An
object that leaves the selection of a watcher is reported as deleted, one that enters it as added.

Source: k8s.io/apiserver, pkg/storage/cacher and pkg/endpoints/handlers/watch.go.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from api.kube.embedded.apply.errors import ApiError, expired
from api.kube.embedded.apply.schema import JsonObject
from api.kube.embedded.kinds.kinds import Kind
from api.kube.embedded.kinds.selectors import Predicate
from api.kube.embedded.listing import ObjectLister, matcher, shape
from api.kube.embedded.requests import Target, is_true, whole_number
from api.kube.embedded.store import ChangeType, ObjectStore, StoreChange, Stored, encode

# Duration of a watch without timeoutSeconds; the real server chooses between 30 and 60 minutes.
_DEFAULT_SECONDS = 1800
# Interval at which an idle watch gets the current version, so that its client can continue from there.
_BOOKMARK_SECONDS = 5.0
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """The options of one watch."""

    kind: Kind
    namespace: str | None
    match: Predicate | None
    turn: Callable[[JsonObject], JsonObject] | None
    bookmarks: bool
    ends_at: float


class Watcher:
    """Serves watches until the server closes."""

    def __init__(self, store: ObjectStore, lister: ObjectLister) -> None:
        self._store = store
        self._lister = lister
        self._is_closing = False

    def close(self) -> None:
        """End every watch."""
        self._is_closing = True
        for collection in self._store.collections():
            collection.wake()

    async def serve(
        self, request: web.BaseRequest, target: Target, query: Mapping[str, str]
    ) -> web.StreamResponse:
        """Stream the changes that the query selects. Raises ApiError (400, 422) before the stream starts."""
        watch = _watch_of(request, target, query)
        is_initial = is_true(query.get("sendInitialEvents"))
        if is_initial and query.get("resourceVersionMatch") != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            message = f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: {why}'
            raise ApiError(422, "Invalid", message)
        since = whole_number("resourceVersion", query.get("resourceVersion") or 0)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        # A client that disconnects ends its watch.
        with contextlib.suppress(ConnectionError):
            await self._stream(response, watch, target, query, since, is_initial=is_initial)
        return response

    async def _stream(
        self,
        response: web.StreamResponse,
        watch: _Watch,
        target: Target,
        query: Mapping[str, str],
        since: int,
        *,
        is_initial: bool,
    ) -> None:
        collection = watch.kind.collection
        # Without a version, or if requested, a watch starts with all existing objects.
        if since == 0 or is_initial:
            position = collection.position
            first = [_line(watch, ChangeType.ADDED, each) for each in self._lister.select(target, query)]
            if is_initial:
                # This mark shows that the list is complete; client-go waits for it before
                # it counts as synced.
                first.append(self._bookmark(watch, is_initial_end=True))
            await response.write(b"".join(first))
        elif not collection.oldest_version <= since <= self._store.version:
            # A version in the future comes from an earlier server process, so the client must list again.
            await response.write(_gone(f"too old resource version: {since} ({collection.oldest_version})"))
            return
        else:
            position = collection.position_of(since)
        await self._follow(response, watch, position)

    async def _follow(self, response: web.StreamResponse, watch: _Watch, position: int) -> None:
        collection = watch.kind.collection
        loop = asyncio.get_running_loop()
        next_bookmark = loop.time() + _BOOKMARK_SECONDS
        while not self._is_closing and (now := loop.time()) < watch.ends_at:
            # Taken before the check, so that a change between the check and the wait sets this very event.
            changed = collection.changed
            changes = collection.changes_since(position)
            if changes is None:
                await response.write(_gone("too old resource version"))
                return
            if changes:
                position += len(changes)
                lines = [line for change in changes if (line := _change_line(watch, change))]
                if lines:
                    await response.write(b"".join(lines))
                continue
            if not collection.is_served:
                return
            if watch.bookmarks and now >= next_bookmark:
                await response.write(self._bookmark(watch))
                next_bookmark = now + _BOOKMARK_SECONDS
            try:
                async with asyncio.timeout(max(min(watch.ends_at, next_bookmark) - now, 0.001)):
                    await changed.wait()
            except TimeoutError:
                # Without bookmarks, this time only limits the wait, so it is advanced.
                next_bookmark = next_bookmark if watch.bookmarks else loop.time() + _BOOKMARK_SECONDS

    def _bookmark(self, watch: _Watch, *, is_initial_end: bool = False) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(self._store.version)}
        if is_initial_end:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        kind = watch.kind
        mark = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":' + encode(mark) + b"}\n"


def _watch_of(request: web.BaseRequest, target: Target, query: Mapping[str, str]) -> _Watch:
    seconds = whole_number("timeoutSeconds", query.get("timeoutSeconds") or _DEFAULT_SECONDS)
    return _Watch(
        kind=target.kind,
        namespace=target.namespace,
        match=matcher(target, query),
        turn=shape(target.kind, request.headers.get("Accept", ""), query),
        bookmarks=is_true(query.get("allowWatchBookmarks")),
        ends_at=asyncio.get_running_loop().time() + seconds,
    )


def _change_line(watch: _Watch, change: StoreChange) -> bytes | None:
    """Return the line that reports a change to this watcher, or None if it does not concern the watcher."""
    kind = watch.kind
    # The cheapest check first, because it runs for every change and every watcher.
    if watch.namespace is not None and change.namespace != watch.namespace:
        return None
    stored = change.stored if kind.from_stored is None else _viewed(kind, change)
    if watch.match is None:
        return _line(watch, change.type, stored)
    is_in = watch.match(stored.item)
    # Decoded from its bytes only for watchers with a selection.
    was_in = change.previous is not None and watch.match(kind.view(change.previous).item)
    match change.type:
        case ChangeType.MODIFIED if is_in and not was_in:
            return _line(watch, ChangeType.ADDED, stored)
        case ChangeType.MODIFIED if was_in and not is_in:
            return _line(watch, ChangeType.DELETED, stored)
        case ChangeType.DELETED if was_in or is_in:
            return _line(watch, ChangeType.DELETED, stored)
        case type_ if is_in:
            return _line(watch, type_, stored)
    return None


def _viewed(kind: Kind, change: StoreChange) -> Stored:
    """Return the changed object in another version than the stored one.

    It is converted once for all watchers.
    """
    key = kind.api_version
    if key not in change.views:
        change.views[key] = kind.view(change.stored)
    return change.views[key]


def _line(watch: _Watch, type_: ChangeType, stored: Stored) -> bytes:
    raw = stored.raw if watch.turn is None else encode(watch.turn(stored.item))
    return b'{"type":"' + type_.encode() + b'","object":' + raw + b"}\n"


def _gone(message: str) -> bytes:
    return b'{"type":"ERROR","object":' + encode(expired(message).status()) + b"}\n"
