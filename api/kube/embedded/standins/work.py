"""A work queue for keys.

One worker at a time processes a key, and again if it was added meanwhile or is due.

This is the usual structure of a controller: an event only names the object to reconcile. All delayed keys are
in one heap instead of one task per object.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable

from api.kube.errors import Conflict, KubeError, NotFound
from api.kube.listing import Key

log = logging.getLogger("berth.standins")

# Pauses after consecutive failures of one key are doubled, from the first to the longest of these.
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0


class WorkQueue:
    """Runs `work(key)` for every key that is added.

    `work` returns the seconds after which the key is processed again, or None. It is
    repeated after a KubeError.
    """

    def __init__(
        self, name: str, work: Callable[[Key], Awaitable[float | None]], *, workers: int = 16
    ) -> None:
        self._name = name
        self._work = work
        self._workers = workers
        self._ready: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: set[Key] = set()
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._later: list[tuple[float, Key]] = []
        self._due: dict[Key, float] = {}
        self._earlier = asyncio.Event()

    def add(self, key: Key) -> None:
        """Process `key` as soon as a worker is free."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Process `key` after `seconds`, or earlier if that was requested before."""
        when = asyncio.get_running_loop().time() + seconds
        if self._due.get(key, when + 1) <= when:
            return
        self._due[key] = when
        heapq.heappush(self._later, (when, key))
        if self._later[0] == (when, key):
            self._earlier.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._release_due(), name=f"{self._name} timers")
            for number in range(self._workers):
                group.create_task(self._serve(), name=f"{self._name} worker {number}")

    async def _release_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._later and self._later[0][0] <= loop.time():
                when, key = heapq.heappop(self._later)
                # An entry is obsolete if an earlier one for the same key was added after it.
                if self._due.get(key) == when:
                    del self._due[key]
                    self.add(key)
            self._earlier.clear()
            try:
                async with asyncio.timeout_at(self._later[0][0] if self._later else None):
                    await self._earlier.wait()
            except TimeoutError:
                continue

    async def _serve(self) -> None:
        while True:
            key = await self._ready.get()
            self._waiting.discard(key)
            self._busy.add(key)
            try:
                await self._attempt(key)
            finally:
                self._busy.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)

    async def _attempt(self, key: Key) -> None:
        try:
            after = await self._work(key)
        except KubeError as error:
            failures = self._failures.get(key, 0) + 1
            self._failures[key] = failures
            # Conflict and NotFound are resolved by pending watch events; any other error is logged.
            if not isinstance(error, Conflict | NotFound):
                log.warning("queue=%s key=%s/%s error=%s", self._name, *key, error)
            self.add_after(key, min(_FIRST_PAUSE_SECONDS * 2 ** (failures - 1), _LONGEST_PAUSE_SECONDS))
            return
        self._failures.pop(key, None)
        if after is not None:
            self.add_after(key, after)
