"""The model Redis: the store's scripts on a dict (`scripts`), and what a real one does when it fails.

It keeps every command that changed something, with its time, as an append-only file does. A restart that
loses the last milliseconds, and a stale replica that is promoted, replay the commands before that time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

import redis
from redis.asyncio import Redis

from queues.store import lua
from tests.faults.loop import ShuffledLoop
from tests.faults.phases import Phase, phase_of_script
from tests.faults.scripts import Data, run_script

_SCRIPTS = {script.digest: script for script in vars(lua).values() if isinstance(script, lua.Script)}
_SCRIPTS_BY_NAME = {script.name: script for script in _SCRIPTS.values()}
_WRITING = frozenset(
    {
        lua.COMMIT.name,
        lua.REMOVE.name,
        lua.RESTORE.name,
        lua.SEED.name,
        lua.PLAN_WRITE.name,
        lua.VOUCH.name,
    }
)
# They present the fence, which may write it.
_FENCED = _WRITING | {lua.LIVE.name}
# What a server without memory refuses: a deletion takes none.
_GROWING = _WRITING - {lua.REMOVE.name}

Command = tuple[Any, ...]


class ModelRedis:
    """One server. `lost_before` and `lost_after`: how many of the next calls get no answer, or no effect."""

    def __init__(
        self, loop: ShuffledLoop, chance: random.Random, *, on_call: Callable[[str, str, Phase | None], None]
    ) -> None:
        self.down_until = self.hung_until = self.full_until = self.read_only_until = 0.0
        self.lost_before = self.lost_after = 0
        self.silent: set[str] = set()
        self._loop = loop
        self._chance = chance
        self._on_call = on_call
        self._data: Data = {}
        self._journal: list[tuple[float, str, Command]] = []
        # The digests of the scripts that it knows.
        self._loaded: set[str] = set()
        # Calls that were sent before a restart never arrive.
        self._starts = 0

    def heal(self) -> None:
        """End all trouble."""
        self.down_until = self.hung_until = self.full_until = self.read_only_until = 0.0
        self.lost_before = self.lost_after = 0
        self.silent.clear()

    def restart(self, *, loses_seconds: float, takes_seconds: float) -> None:
        """Come back after a while, without what was written in the last seconds."""
        kept_until = self._loop.time() - loses_seconds
        self._journal = [entry for entry in self._journal if entry[0] <= kept_until]
        self._data = {}
        for _, name, command in self._journal:
            run_script(self._data, name, command[2:])
        self._loaded.clear()
        self._starts += 1
        self.down_until = self._loop.time() + takes_seconds

    def reservations(self) -> list[str]:
        """Return the Workloads that have a reservation."""
        found = (fields for key, fields in self._data.items() if key.endswith(b":reservations"))
        return sorted(str(field, "utf-8") for fields in found for field in fields)

    def client_of(self, process: str) -> Redis:
        """Return the client of one process, as the store expects it."""
        return cast("Redis", _Client(self, process))

    async def call(self, process: str, command: Command) -> Any:
        """Carry out one call of a process."""
        script = _SCRIPTS.get(command[1]) if command[0] == "EVALSHA" else _by_source(command)
        name = script.name if script is not None else ""
        self._on_call(process, name, phase_of_script(name, _arguments(command)) if name else None)
        answered: asyncio.Future[Any] = self._loop.create_future()
        if process not in self.silent:
            self._loop.later(self._way(), self._arrive, command, name, self._starts, answered)
        return await answered

    def _way(self) -> float:
        return self._chance.uniform(0.0001, 0.0008)

    def _arrive(self, command: Command, name: str, starts: int, answered: asyncio.Future[Any]) -> None:
        now = self._loop.time()
        if now < self.down_until or starts != self._starts:
            self._answer(answered, redis.exceptions.ConnectionError("Connection refused"))
        elif now < self.hung_until:
            # It reads what has come once it goes on, though no client waits for the answer any more.
            self._loop.later(
                self.hung_until - now + self._way(), self._arrive, command, name, starts, answered
            )
        elif self.lost_before:
            self.lost_before -= 1
        else:
            is_lost = self.lost_after > 0 and name in _WRITING
            answer = self._execute(command, name)
            if is_lost:
                self.lost_after -= 1
            else:
                self._answer(answered, answer)

    def _execute(self, command: Command, name: str) -> Any:
        now = self._loop.time()
        if now < self.read_only_until and name in _FENCED:
            return redis.exceptions.ReadOnlyError("You can't write against a read only replica.")
        if now < self.full_until and name in _GROWING:
            return redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
        if command[0] == "INFO":
            # A restart and a fail-over begin another life; fakeredis knows no such sections.
            return {"run_id": f"run-{self._starts}", "master_replid": f"replication-{self._starts}"}
        if command[0] == "PING":
            return True
        script = _SCRIPTS_BY_NAME[name]
        if command[0] == "EVALSHA" and script.digest not in self._loaded:
            return redis.exceptions.NoScriptError("No matching script. Please use EVAL.")
        self._loaded.add(script.digest)
        if name in _FENCED:
            self._journal.append((now, name, command))
        return run_script(self._data, name, command[2:])

    def _answer(self, answered: asyncio.Future[Any], answer: Any) -> None:
        self._loop.later(self._way(), _set, answered, answer)


class _Client:
    """What the store uses of a client."""

    def __init__(self, model: ModelRedis, process: str) -> None:
        self._model = model
        self._process = process

    async def execute_command(self, *command: Any) -> Any:
        """Carry out one call."""
        return await self._model.call(self._process, command)

    def client(self) -> _Client:
        """Return a client with one connection."""
        return self

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Do nothing: there are no connections."""


def _by_source(command: Command) -> lua.Script | None:
    if command[0] != "EVAL":
        return None
    return next(script for script in _SCRIPTS.values() if script.source == command[1])


def _arguments(command: Command) -> Command:
    """Return what follows the keys of a call of a script."""
    return command[3 + command[2] :]


def _set(answered: asyncio.Future[Any], answer: Any) -> None:
    if answered.done():
        return
    if isinstance(answer, Exception):
        answered.set_exception(answer)
    else:
        answered.set_result(answer)
