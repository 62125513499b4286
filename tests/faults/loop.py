"""One event loop for several processes in virtual time: seeded order, and processes that freeze or die.

Every callback belongs to the process in whose context it was scheduled (`PROCESS`), "" for the world around
them: servers, users, networks. Callbacks of a frozen process are kept back until it is let go, those of a
killed one are dropped, so its code stops between two steps and no `finally` runs, as after SIGKILL.

The callbacks that are ready together run in an order drawn from the seed. asyncio runs them in the order in
which they became ready, which hides what depends on that order.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import heapq
import itertools
import random
from collections.abc import Coroutine
from typing import Any, cast

from tests.admission.controller.virtualtime import MAX_TURNS, VirtualLoop

PROCESS: contextvars.ContextVar[str] = contextvars.ContextVar("process", default="")

# How long one turn of the loop takes.
_TURN_SECONDS = 1e-6


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address, so that equal runs are equal."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class ShuffledLoop(VirtualLoop):
    """The loop. `chance` None: the order of asyncio."""

    # Of asyncio's loop, which has no types for them.
    _ready: Any
    _scheduled: list[Any]
    _clock_resolution: float
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, chance: random.Random | None) -> None:
        super().__init__()
        self._chance = chance
        self._kept: dict[str, list[Any]] = {}
        self._killed: set[str] = set()
        self._dead: list[Any] = []
        #: The context of the world around the processes.
        self.world = contextvars.Context()
        # Of this loop's tasks: equal runs number them equally, whatever ran before in this process.
        self._numbers = itertools.count()
        self.set_task_factory(self._make_task)

    def freeze(self, process: str) -> None:
        """Let a process do nothing until `thaw`."""
        self._kept.setdefault(process, [])

    def thaw(self, process: str) -> None:
        """Let a frozen process go on; does nothing to others."""
        self._ready.extend(self._kept.pop(process, ()))

    def is_frozen(self, process: str) -> bool:
        """Return whether a process is frozen."""
        return process in self._kept

    def kill(self, process: str) -> None:
        """Let a process do nothing any more."""
        self._killed.add(process)
        self._dead += self._kept.pop(process, ())

    def later(self, seconds: float, call: Any, *arguments: Any) -> None:
        """Make a call of the world's in some seconds, whichever process asks for it."""
        self.call_later(seconds, call, *arguments, context=self.world)

    def abandon(self) -> None:
        """Close with everything that still waits, without another step of it."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio.wait_for does
        self._ready.clear()
        self._scheduled.clear()
        self.close()

    def drop_tasks(self) -> None:
        """End what was abandoned, as the collector would some time later, in the middle of another test."""
        for task in asyncio.all_tasks(self):
            # Whatever it complains of then, an ended loop or its own end within a group, says nothing.
            with contextlib.suppress(BaseException):
                cast(Coroutine[Any, Any, Any], task.get_coro()).close()

    def _run_once(self) -> None:
        """Run what is due now, in an order drawn from the seed, or let the time pass until something is.

        In place of asyncio's, which asks a selector for files that no process of these has.
        """
        self.turns += 1
        assert self.turns < MAX_TURNS, "something is looked at over and over while nothing happens"
        # Code takes time too: what is due "in no time" is due after some turns, as on a real machine.
        self.passed += _TURN_SECONDS
        chosen = self._choose()
        while not chosen and self._scheduled:
            self.passed = max(self.passed, self._scheduled[0].when())
            chosen = self._choose()
        assert chosen or self._stopping, "nothing will ever happen again: every task waits for another"
        for handle in chosen:
            # One that ran before it may have cancelled it.
            if not handle._cancelled:
                handle._run()

    def _choose(self) -> list[Any]:
        """Return what is ready and may run, in order, and forget it."""
        due = self.passed + self._clock_resolution
        while self._scheduled and self._scheduled[0].when() < due:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._timer_cancelled_count -= handle._cancelled
            self._ready.append(handle)
        if not self._ready:
            return []
        ready, self._ready = self._ready, collections.deque()
        chosen = [handle for handle in ready if self._may_run(handle)]
        if self._chance is not None and len(chosen) > 1:
            self._chance.shuffle(chosen)
        return chosen

    def _may_run(self, handle: Any) -> bool:
        if handle._cancelled:
            return False
        process = handle._context.get(PROCESS, "")
        if process in self._killed:
            # Kept: a task that nothing refers to any more is closed, and runs its `finally` after all.
            self._dead.append(handle)
            return False
        if process in self._kept:
            self._kept[process].append(handle)
            return False
        return True

    def _make_task(self, _: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> _Task:
        return _Task(coroutine, next(self._numbers), loop=self, **options)
