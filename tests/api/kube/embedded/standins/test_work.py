"""The work queue of the simulated controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from api.kube.embedded.standins.work import WorkQueue
from api.kube.errors import Conflict, ServerError
from api.kube.listing import Key

A, B = ("n", "a"), ("n", "b")
PATIENCE_SECONDS = 20.0


@asynccontextmanager
async def running(
    work: Callable[[Key], Awaitable[float | None]], workers: int = 4
) -> AsyncIterator[WorkQueue]:
    """Give a running queue."""
    queue = WorkQueue("test", work, workers=workers)
    task = asyncio.create_task(queue.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Looks:
    """Records the processed keys; the test decides when the processing of a key ends."""

    def __init__(self) -> None:
        self.seen: list[Key] = []
        self.busy: list[Key] = []
        self.most_at_once: dict[Key, int] = {}
        self.may_end = asyncio.Event()
        self.changed = asyncio.Event()

    async def look(self, key: Key) -> None:
        self.seen.append(key)
        self.busy.append(key)
        self.most_at_once[key] = max(self.most_at_once.get(key, 0), self.busy.count(key))
        self.changed.set()
        await self.may_end.wait()
        self.busy.remove(key)
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.changed.clear()
            await self.changed.wait()


async def test_a_key_that_waits_is_looked_at_once() -> None:
    looks = Looks()
    looks.may_end.set()
    async with running(looks.look) as queue:
        for _ in range(5):
            queue.add(A)
        queue.add(B)
        await looks.until(lambda: B in looks.seen and not looks.busy)

    assert sorted(looks.seen) == [A, B]


async def test_a_key_is_never_worked_on_twice_at_once_and_again_if_it_changed_meanwhile() -> None:
    looks = Looks()
    async with running(looks.look) as queue:
        queue.add(A)
        await looks.until(lambda: looks.busy == [A])
        queue.add(A)
        queue.add(A)
        looks.may_end.set()
        await looks.until(lambda: len(looks.seen) == 2 and not looks.busy)

    assert looks.seen == [A, A]
    assert looks.most_at_once == {A: 1}


async def test_different_keys_are_worked_on_together() -> None:
    looks = Looks()
    async with running(looks.look) as queue:
        queue.add(A)
        queue.add(B)
        await looks.until(lambda: sorted(looks.busy) == [A, B])


async def test_a_key_is_looked_at_again_when_its_time_comes() -> None:
    looks: list[Key] = []
    done = asyncio.Event()

    async def look(key: Key) -> float | None:
        looks.append(key)
        if len(looks) == 3:
            done.set()
            return None
        return 0.001

    async with running(look) as queue:
        queue.add(A)
        await done.wait()

    assert looks == [A, A, A]


async def test_the_earlier_of_two_times_counts() -> None:
    done = asyncio.Event()

    async def look(key: Key) -> None:
        done.set()

    async with running(look) as queue:
        queue.add_after(A, 1000.0)
        queue.add_after(A, 0.001)
        queue.add_after(A, 1000.0)
        await done.wait()


async def test_what_fails_is_tried_again() -> None:
    errors = [Conflict("lost the race"), ServerError("busy")]
    done = asyncio.Event()

    async def look(key: Key) -> None:
        if errors:
            raise errors.pop(0)
        done.set()

    async with running(look) as queue:
        queue.add(A)
        await done.wait()
