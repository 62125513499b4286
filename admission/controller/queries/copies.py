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
from collections.abc import Callable
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
            pid, pipe = _fork(question, is_leader=True)
            try:
                raw = await _read(pipe)
            finally:
                os.close(pipe)
                _end(pid)
        return _result(raw)


def ask_in_copy(question: Callable[[], T]) -> T:
    """Return the same where there is no event loop: in a command, or in a copy itself."""
    pid, pipe = _fork(question)
    try:
        with os.fdopen(pipe, "rb") as file:
            raw = file.read()
    finally:
        os.waitpid(pid, 0)
    return _result(raw)


def _result(raw: bytes) -> T:  # type: ignore[type-var]
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


def _end(leader: int) -> None:
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


def _fork(question: Callable[[], object], *, is_leader: bool = False) -> tuple[int, int]:
    """Start a copy. Return its process id and the pipe from which its answer is read.

    `is_leader`: it leads a process group of its own. Raises CopyFailedError.
    """
    from_copy, to_parent = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns of locks that other threads hold. The copy takes none: it runs the pure core alone.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError as error:
        os.close(from_copy)
        os.close(to_parent)
        raise CopyFailedError(f"no copy of the process can be made to answer: {error.strerror}") from error
    if not pid:
        _answer(question, to_parent, is_leader=is_leader)
    os.close(to_parent)
    if is_leader:
        # Both do it, because either may run first. The copy may have ended already.
        with suppress(ProcessLookupError):
            os.setpgid(pid, pid)
    return pid, from_copy


def _answer(question: Callable[[], object], pipe: int, *, is_leader: bool) -> NoReturn:
    """Run the question in the copy, and end it without any clean-up: all objects are the parent's."""
    try:
        if is_leader:
            os.setpgid(0, 0)
        _let_go(pipe)
        try:
            found: tuple[bool, object] = (True, question())
        # Whatever the question raises is raised in the parent.
        except Exception as error:
            found = (False, error)
        _write(pipe, pickle.dumps(found))
    finally:
        os._exit(0)


def _let_go(pipe: int) -> None:
    """Let go of all that is the parent's: its signals, sockets and files."""
    signal.set_wakeup_fd(-1)
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(MOST_SECONDS)
    # An open socket would keep a port or a connection of a parent that has ended.
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    # A collection would touch, and so copy, all memory.
    gc.disable()


def _write(pipe: int, raw: bytes) -> None:
    left = memoryview(raw)
    while left:
        left = left[os.write(pipe, left) :]
