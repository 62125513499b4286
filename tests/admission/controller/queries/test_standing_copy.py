"""The copy that stays: one copy for many questions, how old its answers are, and what is left of it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from admission.controller.queries import standing_copy
from admission.controller.queries.copies import CopyFailedError, fork
from admission.controller.queries.standing_copy import MOST_AGE_SECONDS, StandingCopy
from tests.admission.controller.fakes import FakeClock


class Gate:
    """What other processes wait at until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        """Let all through."""
        self._file.close()

    def wait(self) -> None:
        """Wait until it is open. For the copies: they have none of the files of their parent."""
        with self.path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)


class Scene:
    """A state that is a list of numbers, and a copy of it."""

    def __init__(self) -> None:
        self.state = [1]
        self.clock = FakeClock()
        self.generation = 0
        self.is_large = True
        self.gate: Gate | None = None
        self.copy = StandingCopy(
            lambda: self.state,
            self._prepare,
            self.clock,
            generation=lambda: self.generation,
            is_large=lambda: self.is_large,
        )

    def change(self, number: int) -> None:
        self.state.append(number)
        self.generation += 1

    def _prepare(self, state: list[int]) -> None:
        if self.gate is not None:
            self.gate.wait()
        state.sort()

    async def successor(self, former: int) -> int:
        """Return the process that answers after this one."""
        while (found := await self.copy.ask(process)) == former:
            await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Return a scene that leaves no file open when it is closed."""
    before = os.listdir("/proc/self/fd")
    scene = Scene()
    yield scene
    scene.copy.close()
    assert os.listdir("/proc/self/fd") == before


@pytest.fixture
def gate(scene: Scene, tmp_path: Path) -> Iterator[Gate]:
    """Give a gate at which copies wait while they get ready."""
    scene.gate = Gate(tmp_path / "gate")
    yield scene.gate
    scene.gate.open()


@contextmanager
def later_gate(scene: Scene, tmp_path: Path) -> Iterator[None]:
    """Let copies that are made from now on wait at another gate."""
    scene.gate, former = Gate(tmp_path / "later"), scene.gate
    yield
    scene.gate.open()
    scene.gate = former


@pytest.fixture
async def forks(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[int]:
    """Give the processes of all copies, as they are made, with next ones made at once."""
    monkeypatch.setattr(standing_copy, "RENEWAL_SECONDS", 0.01)
    found = asyncio.Queue[int]()

    def noted(*args: Any, **options: Any) -> int:
        pid = fork(*args, **options)
        found.put_nowait(pid)
        return pid

    monkeypatch.setattr(standing_copy, "fork", noted)
    return found


def numbers(state: list[int]) -> list[int]:
    return list(state)


def process(_: list[int]) -> int:
    return os.getpid()


def fail(text: str, _: list[int]) -> NoReturn:
    raise ValueError(text)


def die(_: list[int]) -> NoReturn:
    os._exit(1)


def is_there(pid: int) -> bool:
    """Return whether there is such a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


def slow(note: Path, gate: Path, state: list[int]) -> list[int]:
    """Note that it was asked, and answer when the gate is open."""
    note.write_text("asked")
    with gate.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    return list(state)


async def begin(scene: Scene, tmp_path: Path) -> tuple[asyncio.Task[list[int]], Gate]:
    """Ask what is answered when the gate is opened, and return when the copy is busy with it."""
    note, gate = tmp_path / "note", Gate(tmp_path / "question")
    asking = asyncio.create_task(scene.copy.ask(partial(slow, note, gate.path)))
    while not note.exists():
        await asyncio.sleep(0.01)
    return asking, gate


async def test_one_copy_answers_many_questions(scene: Scene) -> None:
    found = {await scene.copy.ask(process) for _ in range(3)}

    assert len(found) == 1
    assert os.getpid() not in found


async def test_where_little_is_known_each_answer_is_of_this_moment(scene: Scene) -> None:
    scene.is_large = False
    await scene.copy.ask(numbers)
    scene.change(2)

    assert await scene.copy.ask(numbers) == [1, 2]
    assert scene.copy.as_of() == scene.generation


async def test_an_answer_may_be_as_old_as_its_copy_which_says_so(scene: Scene) -> None:
    await scene.copy.ask(numbers)
    scene.change(2)
    seen = scene.copy.as_of()

    found = await scene.copy.ask(numbers)

    assert (found, seen) == ([1], 0)


async def test_a_copy_that_is_old_is_not_asked(scene: Scene) -> None:
    await scene.copy.ask(numbers)
    scene.change(2)
    scene.clock.at += MOST_AGE_SECONDS + 0.1

    seen, found = scene.copy.as_of(), await scene.copy.ask(numbers)

    assert (found, seen) == ([1, 2], 1)


async def test_the_next_copy_takes_over_when_it_is_ready(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_copy, "RENEWAL_SECONDS", 0.01)
    first = await scene.copy.ask(process)
    scene.change(0)
    while scene.copy.as_of() < scene.generation:
        await asyncio.sleep(0.01)

    found, second = await scene.copy.ask(numbers), await scene.copy.ask(process)

    assert second != first
    assert found == [0, 1], "it has prepared itself"


async def test_a_next_copy_that_takes_long_to_get_ready_is_waited_for(
    scene: Scene, gate: Gate, forks: asyncio.Queue[int], tmp_path: Path
) -> None:
    first = await scene.copy.ask(process)
    made = [await forks.get(), await forks.get()]
    scene.clock.at += 5 * MOST_AGE_SECONDS

    meanwhile = await scene.copy.ask(process)
    with later_gate(scene, tmp_path):
        gate.open()
        after = await scene.successor(first)

    assert [meanwhile, after] == made


async def test_a_next_copy_that_is_older_than_the_present_one_does_not_take_over(
    scene: Scene, gate: Gate, forks: asyncio.Queue[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_copy, "_REAP_SECONDS", 0.01)
    await scene.copy.ask(process)
    _, older = await forks.get(), await forks.get()
    with pytest.raises(CopyFailedError):
        await scene.copy.ask(die)
    await scene.copy.ask(process)

    with later_gate(scene, tmp_path):
        gate.open()
        while is_there(older):
            assert await scene.copy.ask(process) != older
            await asyncio.sleep(0.01)


async def test_an_answer_that_waits_for_another_one_shows_what_was_promised(
    scene: Scene, forks: asyncio.Queue[int], tmp_path: Path
) -> None:
    first, question = await begin(scene, tmp_path)
    for _ in range(2):
        await forks.get()
    scene.change(2)
    scene.clock.at += MOST_AGE_SECONDS + 0.1

    seen = scene.copy.as_of()
    second = asyncio.create_task(scene.copy.ask(numbers))
    question.open()

    assert await first == [1]
    assert len(await second) > seen


async def test_where_little_is_known_any_more_no_copy_of_before_is_asked(
    scene: Scene, gate: Gate, forks: asyncio.Queue[int]
) -> None:
    await scene.copy.ask(numbers)
    for _ in range(2):
        await forks.get()
    scene.change(2)
    scene.is_large = False

    seen, found = scene.copy.as_of(), await scene.copy.ask(numbers)

    assert found == [1, 2]
    assert len(found) > seen


@pytest.mark.parametrize(
    ("passed_seconds", "is_large"),
    [
        pytest.param(standing_copy.KEPT_SECONDS + 1, True, id="no question comes"),
        pytest.param(0.0, False, id="little is known any more"),
    ],
)
async def test_the_copy_ends_when_it_is_not_wanted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, passed_seconds: float, is_large: bool
) -> None:
    monkeypatch.setattr(standing_copy, "RENEWAL_SECONDS", 0.01)
    monkeypatch.setattr(standing_copy, "_REAP_SECONDS", 0.01)
    pid = await scene.copy.ask(process)
    scene.clock.at += passed_seconds
    scene.is_large = is_large

    while is_there(pid):
        await asyncio.sleep(0.01)
    scene.change(2)

    assert scene.copy.as_of() == scene.generation, "there is no other one"


async def test_what_a_question_raises_is_raised_and_the_copy_goes_on(scene: Scene) -> None:
    pid = await scene.copy.ask(process)
    with pytest.raises(ValueError, match="no such order"):
        await scene.copy.ask(partial(fail, "no such order"))

    assert await scene.copy.ask(process) == pid


async def test_a_copy_that_dies_costs_one_question(scene: Scene) -> None:
    with pytest.raises(CopyFailedError):
        await scene.copy.ask(die)

    assert await scene.copy.ask(numbers) == [1]


async def test_a_question_that_is_given_up_costs_the_others_nothing(scene: Scene, tmp_path: Path) -> None:
    pid = await scene.copy.ask(process)
    asking, question = await begin(scene, tmp_path)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    question.open()

    assert await scene.copy.ask(process) == pid


async def test_a_question_may_be_given_up_when_all_ends(scene: Scene, tmp_path: Path) -> None:
    asking, question = await begin(scene, tmp_path)

    scene.copy.close()
    question.open()

    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_closed_copy_leaves_no_process(scene: Scene) -> None:
    pid = await scene.copy.ask(process)

    scene.copy.close()

    assert not is_there(pid)
