"""Copies of the process: nothing of them is left, whether they answer, fail or are given up."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from admission.controller.queries import copies
from admission.controller.queries.copies import Copies, CopyFailedError, ask_in_copy

_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def as_init() -> Iterator[None]:
    """Make this process what it is in a container: the parent of processes whose own parent has ended."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


def nested(note: Path) -> Callable[[], None]:
    """Return a question that asks in a copy of its own, which notes its process id and goes on for ever."""

    def inner() -> None:
        note.write_text(str(os.getpid()))
        time.sleep(60)

    return lambda: ask_in_copy(inner)


async def noted(note: Path) -> int:
    while not (text := _text(note)):
        await asyncio.sleep(0.01)
    return int(text)


def _text(note: Path) -> str:
    return note.read_text() if note.exists() else ""


def is_there(pid: int) -> bool:
    """Return whether there is such a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("as_init")
async def test_a_copy_that_is_given_up_takes_its_own_copies_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    asking = asyncio.create_task(Copies().ask(nested(note)))
    inner = await noted(note)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert not is_there(inner)


@pytest.mark.usefixtures("as_init")
async def test_a_copy_that_takes_too_long_takes_its_own_copies_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "MOST_SECONDS", 1)
    note, inner = tmp_path / "pid", nested(tmp_path / "pid")

    def question() -> None:
        # Only the outer copy is to end by its own signal.
        monkeypatch.setattr(copies, "MOST_SECONDS", 60)
        inner()

    with pytest.raises(CopyFailedError):
        await Copies().ask(question)

    assert not is_there(await noted(note))


async def test_the_failure_of_a_copy_of_a_copy_has_its_sentence() -> None:
    with pytest.raises(CopyFailedError, match="not found within"):
        await Copies().ask(lambda: ask_in_copy(lambda: os._exit(1)))


async def test_a_failed_fork_leaves_no_open_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory() -> NoReturn:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "fork", no_memory)
    before = os.listdir("/proc/self/fd")

    with pytest.raises(CopyFailedError, match="Cannot allocate memory"):
        await Copies().ask(lambda: None)

    assert os.listdir("/proc/self/fd") == before
