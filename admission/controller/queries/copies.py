"""Computes in copies of this process: the operating system's fork, as Redis saves its data.

The copy has all state as of one instant. It shares memory with its parent until one of them writes, takes a
processor of its own, and whatever it changes is lost with it. So a question may try a Workload on the engine
itself, and the event loop pays for the fork alone.

    parent ── fork ──▶ copy: closes all files but the pipe, asks, writes the answer, ends
    parent ◀─ pipe ──  answer

A copy runs no code but the question, takes no lock, and ends by a signal of its own if that takes too long,
whatever has become of its parent. Other threads of the parent do not exist in it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import warnings
from collections.abc import Callable
from typing import NoReturn, TypeVar, cast

T = TypeVar("T")
# How long a question may take. Longer than any that a caller waits for.
MOST_SECONDS = 30
# How many copies there are at once: each may take a processor, and the leader needs one.
MOST_COPIES = 2
_CHUNK_BYTES = 1 << 20


class CopyFailedError(Exception):
    """A copy ended without an answer: it took too long, or the operating system ended it."""

    def __init__(self) -> None:
        super().__init__(
            f"the answer was not found within {MOST_SECONDS} s; ask for less, or try again later"
        )


class Copies:
    """Asks questions in copies, a few at a time; the others wait for their turn."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MOST_COPIES)

    async def ask(self, question: Callable[[], T]) -> T:
        """Return what the question returns in a copy, or raise what it raises there. Raises CopyFailedError.

        The result, or the exception, has to be picklable.
        """
        async with self._turns:
            pid, pipe = _fork(question)
            try:
                raw = await _read(pipe)
            except BaseException:
                os.kill(pid, signal.SIGKILL)
                raise
            finally:
                os.close(pipe)
                # The pipe ends when the copy's memory is gone already, so this does not wait.
                os.waitpid(pid, 0)  # noqa: ASYNC222
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


def _fork(question: Callable[[], object]) -> tuple[int, int]:
    """Start a copy. Return its process id and the pipe from which its answer is read."""
    from_copy, to_parent = os.pipe()
    with warnings.catch_warnings():
        # Python warns of locks that other threads hold. The copy takes none: it runs the pure core alone.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        _answer(question, to_parent)
    os.close(to_parent)
    return pid, from_copy


def _answer(question: Callable[[], object], pipe: int) -> NoReturn:
    """Run the question in the copy, and end it without any clean-up: all objects are the parent's."""
    try:
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
