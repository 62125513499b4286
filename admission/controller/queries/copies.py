"""Computes in copies of this process: the operating system's fork, as Redis saves its data.

The copy has all state as of one instant. It shares memory with its parent until one of them writes, takes a
processor of its own, and whatever it changes is lost with it. So a question may try a Workload on the engine
itself, and the event loop pays for the fork alone.

    parent ── fork ──▶ copy: closes all files but the pipe, asks, writes the answer, ends
    parent ◀─ pipe ──  answer

A copy runs no code but the question, takes no lock, and ends by a signal of its own if that takes too long,
whatever has become of its parent. Other threads of the parent do not exist in it. A copy that the event loop
asks leads a process group. The copies that it makes itself belong to that group, and end with it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import NoReturn, TypeVar, cast

T = TypeVar("T")
# How long a question may take. Longer than any that a caller waits for.
MOST_SECONDS = 30
_CHUNK_BYTES = 1 << 20


class CopyFailedError(Exception):
    """There is no answer: the copy took too long, the operating system ended it, or there was none."""

    # With its message as an argument, so that it can be read from the pipe of a copy whose own copy failed.
    def __init__(
        self,
        message: str = f"the answer was not found within {MOST_SECONDS} s; ask for less, or try again later",
    ) -> None:
        super().__init__(message)


class Copies:
    """Asks questions in copies, one at a time; the others wait for their turn. Each may take a processor."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def ask(self, question: Callable[[], T]) -> T:
        """Return what the question returns in a copy, or raise what it raises there. Raises CopyFailedError.

        The result, or the exception, has to be picklable.
        """
        async with self._turn:
            pid, pipe = _fork_for(question, is_leader=True)
            try:
                raw = await _read(pipe)
            finally:
                os.close(pipe)
                end(pid)
        return result_of(raw)


def ask_in_copy(question: Callable[[], T]) -> T:
    """Return the same where there is no event loop: in a command, or in a copy itself."""
    pid, pipe = _fork_for(question)
    try:
        with os.fdopen(pipe, "rb") as file:
            raw = file.read()
    finally:
        os.waitpid(pid, 0)
    return result_of(raw)


def result_of(raw: bytes) -> T:  # type: ignore[type-var]
    """Return, or raise, what a copy has written. Raises CopyFailedError where that is nothing."""
    if not raw:
        raise CopyFailedError
    # Written by our own code into a pipe that no other process has.
    is_answer, found = pickle.loads(raw)
    if not is_answer:
        raise found
    return cast(T, found)


async def _read(pipe: int) -> bytes:
    """Return all that comes through the pipe."""
    loop, found, done = asyncio.get_running_loop(), bytearray(), asyncio.Event()
    os.set_blocking(pipe, False)

    def take() -> None:
        chunk = os.read(pipe, _CHUNK_BYTES)
        found.extend(chunk)
        if not chunk:
            done.set()

    loop.add_reader(pipe, take)
    try:
        await done.wait()
    finally:
        loop.remove_reader(pipe)
    return bytes(found)


def end(leader: int) -> None:
    """End a copy and all copies that it has made, and leave no zombie of them.

    The copy is done, or it is killed here. The copies of a killed copy become children of the init process.
    Where that is this one, as in a container, they are reaped here too. This waits for as long as the
    operating system takes to free the memory of what is killed.
    """
    # Not reaped yet, so no other process can have the number.
    os.killpg(leader, signal.SIGKILL)
    os.waitpid(leader, 0)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-leader, 0)


def fork(run: Callable[[], None], *, keep: Collection[int], is_leader: bool = False) -> int:
    """Start a copy that runs this and ends. Return its process id. Raises CopyFailedError.

    `keep` are the only files that it still has open. `is_leader`: it leads a process group of its own, and is
    to be ended by `end`.
    """
    try:
        with warnings.catch_warnings():
            # Python warns of locks that other threads hold. The copy takes none: it runs the pure core alone.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError as error:
        raise CopyFailedError(f"no copy of the process can be made to answer: {error.strerror}") from error
    if not pid:
        _run(run, keep, is_leader=is_leader)
    if is_leader:
        # Both do it, because either may run first. The copy may have ended already.
        with suppress(ProcessLookupError):
            os.setpgid(pid, pid)
    return pid


def answer_of(question: Callable[[], object]) -> bytes:
    """Return what the question returns or raises, as `result_of` reads it. To be called in a copy."""
    try:
        found: tuple[bool, object] = (True, question())
    # Whatever the question raises is raised in the parent.
    except Exception as error:
        found = (False, error)
    return pickle.dumps(found)


def write_all(pipe: int, raw: bytes) -> None:
    """Write all of it into a pipe that blocks."""
    left = memoryview(raw)
    while left:
        left = left[os.write(pipe, left) :]


def expire_after(seconds: int) -> None:
    """Have the operating system end this copy when so many seconds have passed; the last call counts."""
    signal.alarm(seconds)


def _fork_for(question: Callable[[], object], *, is_leader: bool = False) -> tuple[int, int]:
    """Start a copy for one question. Return its process id and the pipe from which its answer is read."""
    from_copy, to_parent = os.pipe()
    try:
        pid = fork(lambda: write_all(to_parent, answer_of(question)), keep={to_parent}, is_leader=is_leader)
    except CopyFailedError:
        os.close(from_copy)
        raise
    finally:
        os.close(to_parent)
    return pid, from_copy


def _run(run: Callable[[], None], keep: Collection[int], *, is_leader: bool) -> NoReturn:
    """Run this in the copy, and end it without any clean-up: all objects are the parent's."""
    try:
        if is_leader:
            os.setpgid(0, 0)
        _let_go(keep)
        run()
    finally:
        os._exit(0)


def _let_go(keep: Collection[int]) -> None:
    """Let go of all that is the parent's: its signals, sockets and files."""
    signal.set_wakeup_fd(-1)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    expire_after(MOST_SECONDS)
    # An open socket would keep a port or a connection of a parent that has ended.
    begin = 3
    for pipe in sorted(keep):
        os.closerange(begin, pipe)
        begin = pipe + 1
    os.closerange(begin, os.sysconf("SC_OPEN_MAX"))
    # A collection would touch, and so copy, all memory.
    gc.disable()
