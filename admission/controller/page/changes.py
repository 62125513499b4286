"""The stream that tells open pages of changes: they then ask again for what they show, with their own
rights.

An event says that something has changed and not what, so it reveals nothing. Its id counts the changes of
this process. A browser that lost the stream sends the last id that it has seen, and is told at once if
there is another one: after a restart, or from another replica, every id is another one. One that has just
loaded a page names the id of that page (`changes?seen=5f0c-117`), so that nothing between the two is
missed.

    id: 5f0c-118
    event: changed
    data: 118
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import uuid4

from api.http.server import HttpError, Request, Stream

# A page is told of the changes of so many seconds at once: it asks the engine each time.
PACE_SECONDS = 0.5
# How long to wait for answers that show the last change.
BEHIND_SECONDS = 0.2
# A browser that lost the stream waits for as long before it connects again; by default three seconds.
RETRY_MILLISECONDS = 1000
# Proxies close connections on which nothing is sent for a minute.
QUIET_SECONDS = 20.0
# A quarter of what a server has: each open page holds a connection.
MOST_STREAMS = 64
# So that one user's pages leave room for those of others.
MOST_STREAMS_PER_USER = 8


class Changes:
    """Counts changes, and tells them to streams.

    `behind` returns how many of the last changes a page would not show yet: they are told once it does.
    """

    def __init__(self, behind: Callable[[], int] = lambda: 0) -> None:
        self._behind = behind
        self._process = uuid4().hex[:8]
        self._count = 0
        # With their users, None on a port that is open to all of this machine.
        self._streams = dict[asyncio.Event, str | None]()

    def note(self, *_: object) -> None:
        """Note a change; an observer of `Observers`. Cheap, since Workloads change all the time."""
        self._count += 1
        for event in self._streams:
            event.set()

    def stream(self, request: Request, user: str | None) -> Stream:
        """Return the stream of changes from the last one that the browser has seen. Raises HttpError.

        `user` None: users are not told apart.
        """
        if user is not None and list(self._streams.values()).count(user) >= MOST_STREAMS_PER_USER:
            raise HttpError(
                429,
                f"{user} has {MOST_STREAMS_PER_USER} pages open; this one does not refresh itself",
                headers={"Retry-After": "30"},
            )
        if len(self._streams) >= MOST_STREAMS:
            raise HttpError(
                503,
                f"{MOST_STREAMS} pages are open; this one does not refresh itself",
                headers={"Retry-After": "30"},
            )
        seen = request.headers.get("last-event-id") or request.query.get("seen", "")
        return Stream(chunks=self._told(seen, user))

    @property
    def id(self) -> str:
        """The id of the last change that a page shows."""
        return f"{self._process}-{self._shown}"

    @property
    def _shown(self) -> int:
        return self._count - self._behind()

    async def _told(self, seen: str, user: str | None) -> AsyncIterator[bytes]:
        changed = asyncio.Event()
        self._streams[changed] = user
        try:
            # So that the browser knows that the stream is open, and what to send if it loses it.
            yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
            while True:
                changed.clear()
                if seen != self.id:
                    seen = self.id
                    yield f"id: {seen}\nevent: changed\ndata: {self._shown}\n\n".encode()
                    await asyncio.sleep(PACE_SECONDS)
                if self._behind():
                    await asyncio.sleep(BEHIND_SECONDS)
                    continue
                try:
                    async with asyncio.timeout(QUIET_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    yield b":\n\n"
        finally:
            del self._streams[changed]
