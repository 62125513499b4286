"""Reads of much state: in slices, and one slice at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from admission.controller.runtime.large_reads import LargeReads
from tests.admission.controller.fakes import FakeClock

# One and a half of them fill a slice of 10 ms.
VALUE_SECONDS = 0.006


@pytest.mark.parametrize("readers", [1, 50])
async def test_no_more_than_a_slice_runs_before_other_tasks_do(readers: int) -> None:
    clock, computed = FakeClock(), list[int]()
    reads = LargeReads(clock)

    def values() -> Iterator[int]:
        for value in range(4):
            clock.at += VALUE_SECONDS
            computed.append(value)
            yield value

    tasks = [asyncio.create_task(reads.collect(values())) for _ in range(readers)]
    most = 0
    while not all(task.done() for task in tasks):
        before = len(computed)
        await asyncio.sleep(0)
        most = max(most, len(computed) - before)

    assert most == 2
    assert [task.result() for task in tasks] == [[0, 1, 2, 3]] * readers


async def test_a_short_read_is_not_kept_waiting_by_a_long_one() -> None:
    clock = FakeClock()
    reads = LargeReads(clock)

    def values(count: int) -> Iterator[int]:
        for value in range(count):
            clock.at += VALUE_SECONDS
            yield value

    long = asyncio.create_task(reads.collect(values(1000)))
    await asyncio.sleep(0)
    short = await reads.collect(values(4))

    assert short == [0, 1, 2, 3]
    assert not long.done()
    await long
