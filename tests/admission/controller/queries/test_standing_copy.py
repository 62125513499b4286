"""The copy that stays: one copy for many questions, how old its answers are, and what is left of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from admission.controller.queries import standing_copy
from admission.controller.queries.copies import CopyFailedError
from admission.controller.queries.standing_copy import MOST_AGE_SECONDS, StandingCopy
from tests.admission.controller.fakes import FakeClock


class Scene:
    """A state that is a list of numbers, and a copy of it."""

    def __init__(self) -> None:
        self.state = [1]
        self.clock = FakeClock()
        self.generation = 0
        self.is_large = True
        self.copy = StandingCopy(
            lambda: self.state,
            list.sort,
            self.clock,
            generation=lambda: self.generation,
            is_large=lambda: self.is_large,
        )

    def change(self, number: int) -> None:
        self.state.append(number)
        self.generation += 1


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Return a scene that leaves no file open when it is closed."""
    before = os.listdir("/proc/self/fd")
    scene = Scene()
    yield scene
    scene.copy.close()
    assert os.listdir("/proc/self/fd") == before


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


def slow(note: Path, _: list[int]) -> str:
    note.write_text("asked")
    time.sleep(0.2)
    return "slow"


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


async def test_the_copy_ends_when_no_question_comes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_copy, "RENEWAL_SECONDS", 0.01)
    monkeypatch.setattr(standing_copy, "_REAP_SECONDS", 0.01)
    pid = await scene.copy.ask(process)
    scene.clock.at += standing_copy.KEPT_SECONDS + 1

    while is_there(pid):
        await asyncio.sleep(0.01)

    assert scene.copy.as_of() == scene.generation


async def test_what_a_question_raises_is_raised_and_the_copy_goes_on(scene: Scene) -> None:
    pid = await scene.copy.ask(process)
    with pytest.raises(ValueError, match="no such order"):
        await scene.copy.ask(partial(fail, "no such order"))

    assert await scene.copy.ask(process) == pid


async def test_a_copy_that_dies_costs_one_question(scene: Scene) -> None:
    with pytest.raises(CopyFailedError):
        await scene.copy.ask(die)

    assert await scene.copy.ask(numbers) == [1]


async def test_a_question_that_is_given_up_is_not_answered_to_the_next_one(
    scene: Scene, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    asking = asyncio.create_task(scene.copy.ask(partial(slow, note)))
    while not note.exists():
        await asyncio.sleep(0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert await scene.copy.ask(numbers) == [1]


async def test_a_closed_copy_leaves_no_process(scene: Scene) -> None:
    pid = await scene.copy.ask(process)

    scene.copy.close()

    assert not is_there(pid)
