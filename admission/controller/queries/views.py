"""The views that clients watch: shared by those that ask for the same, and dropped without a client."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from admission.controller.queries.watching import View

# Caps the memory of all views.
MOST_VIEWS = 64
# For how long a client that has lost its connection can go on where it was.
KEPT_SECONDS = 60.0


class Views:
    """Keeps each view while it has clients, and for a minute after."""

    def __init__(self) -> None:
        self._views: dict[bytes, View] = {}
        self._clients: Counter[View] = Counter()
        self._timers: dict[bytes, asyncio.TimerHandle] = {}

    def view(self, key: bytes, new: Callable[[], View]) -> View:
        """Return the view that is kept under the key, or a new one."""
        view = self._views.pop(key, None) or new()
        self._views[key] = view
        self._forget_later(key)
        # The one that was asked for least recently: clients that still watch it keep it.
        if len(self._views) > MOST_VIEWS:
            self._forget(next(iter(self._views)))
        return view

    @contextmanager
    def watched(self, key: bytes, view: View) -> Iterator[None]:
        """Count a client of the view while it watches."""
        self._clients[view] += 1
        try:
            yield
        finally:
            self._clients[view] -= 1
            if not self._clients[view]:
                del self._clients[view]
                if self._views.get(key) is view:
                    self._forget_later(key)

    def _forget_later(self, key: bytes) -> None:
        if key in self._timers:
            self._timers[key].cancel()
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(KEPT_SECONDS, self._forget_unwatched, key)

    def _forget_unwatched(self, key: bytes) -> None:
        if self._views[key] not in self._clients:
            self._forget(key)

    def _forget(self, key: bytes) -> None:
        del self._views[key]
        self._timers.pop(key).cancel()
