"""Watches: a page of a list that stays up to date, as server-sent events that a client can resume.

Clients that ask for the same page with the same sight share one `View`. It keeps the items and a bounded
log of what has changed, and each client has a place in that log and no buffer: one that reads slowly
skips what the log has dropped, and gets the whole page again.

    event: added | modified | deleted    data: the item; a deleted one as it was last
    event: reset                         data: {}; all items follow, and nothing before counts
    id: the place in the log, for Last-Event-ID

A view is computed again at most once a second, and only if something has changed, or some seconds have
passed: positions and expected starts change with time alone.

Source: WHATWG, HTML, server-sent events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec

from admission.answers.items import Page
from admission.controller.runtime.clock import Clock

LOOK_SECONDS = 1.0
# After how many seconds a page is computed again though no object has changed.
LATEST_SECONDS = 10.0
# Less than proxies give an idle connection.
HEARTBEAT_SECONDS = 15.0
# Cap the memory of a view: a client that is further behind gets the whole page.
MOST_LOGGED = 5_000
MOST_LOGGED_BYTES = 4 << 20
HEARTBEAT = b": still here\n\n"
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Change:
    place: int
    event: str
    data: bytes


class View:
    """A page that clients watch. `read` returns it as it is now, `identity` tells its items apart."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Page[Any]]],
        identity: Callable[[Any], Key],
        clock: Clock,
        *,
        generation: Callable[[], int],
    ) -> None:
        self._read = read
        self._identity = identity
        self._clock = clock
        self._generation = generation
        # Places of another process, or of a view that was dropped, are not known here.
        self._epoch = uuid4().hex[:8]
        self._place = 0
        self._items: dict[Key, bytes] = {}
        self._log = deque[_Change]()
        self._logged_bytes = 0
        self._read_at: tuple[float, int] | None = None
        self._turn = asyncio.Lock()

    async def events(self, last_event_id: str = "") -> AsyncIterator[bytes]:
        """Yield events for ever: what has changed since that one if it is known, else all items first."""
        await self._refresh()
        place = self._known_place(last_event_id)
        sent_at = self._clock.monotonic()
        while True:
            chunk = b"".join(
                self._whole() if place is None or self._has_dropped(place) else self._since(place)
            )
            place = self._place
            now = self._clock.monotonic()
            if chunk or now - sent_at >= HEARTBEAT_SECONDS:
                yield chunk or HEARTBEAT
                sent_at = now
            await asyncio.sleep(LOOK_SECONDS)
            await self._refresh()

    async def _refresh(self) -> None:
        async with self._turn:
            generation, now = self._generation(), self._clock.monotonic()
            if self._read_at is not None:
                age, is_changed = now - self._read_at[0], generation != self._read_at[1]
                if age < LOOK_SECONDS or not (is_changed or age >= LATEST_SECONDS):
                    return
            found = await self._read()
            self._read_at = now, generation
            self._take({self._identity(one): msgspec.json.encode(one) for one in found.items})

    def _take(self, items: dict[Key, bytes]) -> None:
        former, self._items = self._items, items
        for key in former.keys() - items.keys():
            self._note("deleted", former[key])
        for key, data in items.items():
            if key not in former:
                self._note("added", data)
            elif former[key] != data:
                self._note("modified", data)

    def _note(self, event: str, data: bytes) -> None:
        self._place += 1
        self._log.append(_Change(self._place, event, data))
        self._logged_bytes += len(data)
        # The last one stays whatever its size: it says what has been dropped.
        while len(self._log) > 1 and (len(self._log) > MOST_LOGGED or self._logged_bytes > MOST_LOGGED_BYTES):
            self._logged_bytes -= len(self._log.popleft().data)

    def _known_place(self, last_event_id: str) -> int | None:
        epoch, _, place = last_event_id.partition("-")
        is_known = epoch == self._epoch and place.isascii() and place.isdecimal() and len(place) < 16
        return int(place) if is_known and int(place) <= self._place else None

    def _has_dropped(self, place: int) -> bool:
        return bool(self._log) and self._log[0].place > place + 1

    def _whole(self) -> Iterator[bytes]:
        yield self._event(self._place, "reset", b"{}")
        for data in self._items.values():
            yield self._event(self._place, "added", data)

    def _since(self, place: int) -> Iterator[bytes]:
        return (self._event(one.place, one.event, one.data) for one in self._log if one.place > place)

    def _event(self, place: int, event: str, data: bytes) -> bytes:
        return b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (self._epoch.encode(), place, event.encode(), data)
