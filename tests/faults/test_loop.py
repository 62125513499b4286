"""The loop of several processes: who may run, and in which order."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Iterator

import pytest

from tests.faults.loop import PROCESS, ShuffledLoop


@pytest.fixture
def loop() -> Iterator[ShuffledLoop]:
    made = ShuffledLoop(random.Random(1))
    yield made
    made.abandon()


def start(loop: ShuffledLoop, process: str, heard: list[tuple[str, float]]) -> None:
    """Start a process that says once in a second that it lives."""

    async def speak() -> None:
        while True:
            heard.append((process, round(loop.time())))
            await asyncio.sleep(1.0)

    context = contextvars.copy_context()
    context.run(PROCESS.set, process)
    context.run(loop.create_task, speak())


def test_a_frozen_process_does_nothing_and_then_goes_on(loop: ShuffledLoop) -> None:
    heard: list[tuple[str, float]] = []
    start(loop, "a", heard)
    start(loop, "b", heard)
    loop.run_for(0.5)

    loop.freeze("a")
    loop.run_for(3.0)
    loop.thaw("a")
    loop.run_for(0.1)

    assert sorted(heard) == [("a", 0), ("a", 4), ("b", 0), ("b", 1), ("b", 2), ("b", 3)]


def test_a_killed_process_runs_no_cleanup(loop: ShuffledLoop) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1.0)
        finally:
            ended.append("cleaned up")

    context = contextvars.copy_context()
    context.run(PROCESS.set, "a")
    context.run(loop.create_task, work())
    loop.run_for(0.5)

    loop.kill("a")
    loop.run_for(5.0)

    assert ended == []


def test_what_is_ready_together_runs_in_an_order_drawn_from_the_seed() -> None:
    def order(seed: int) -> list[int]:
        loop, called = ShuffledLoop(random.Random(seed)), list[int]()
        for number in range(10):
            loop.call_later(1.0, called.append, number)
        loop.run_for(2.0)
        loop.close()
        return called

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == list(range(10))
