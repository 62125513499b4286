"""How long an answer is awaited by a process that gets no processor."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from queues.reservations.reservations import StoreUnreachable
from queues.store.answer_time import answer_within
from queues.store.faults import StoreLocation
from queues.store.redis_scripts import CALL_SECONDS
from queues.store.redis_store import RedisReservationStore
from tests.admission.controller.virtualtime import virtual_loop

PLACE = StoreLocation(address="redis://elsewhere")


class SlowRedis:
    """Answers each command, with the fence 7, after a while."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = 0

    async def execute_command(self, *_: Any) -> list[bytes]:
        """Answer one."""
        self.calls += 1
        await asyncio.sleep(self.seconds)
        return [b"OK", b"7"]


@pytest.mark.parametrize(
    ("turn_seconds", "redis_seconds", "want_calls"),
    [
        pytest.param(0.0, 0.1, 1, id="in time"),
        pytest.param(0.0, 0.2, None, id="too late, by a process that runs"),
        pytest.param(60.0, 0.1, 1, id="in time, while the process waits a minute for a processor"),
        pytest.param(60.0, 100_000.0, None, id="never, while the process waits a minute for a processor"),
    ],
)
def test_a_redis_counts_as_lost_by_the_time_in_which_its_answer_could_be_taken(
    turn_seconds: float, redis_seconds: float, want_calls: int | None
) -> None:
    server = SlowRedis(redis_seconds)
    store = RedisReservationStore(cast(Redis, server), place=PLACE)

    with virtual_loop() as loop:
        loop.turn_seconds = turn_seconds
        if want_calls is not None:
            assert loop.run_until_complete(store.highest_fence()) == 7
            assert server.calls == want_calls
        else:
            with pytest.raises(StoreUnreachable, match="nothing within 125 ms"):
                loop.run_until_complete(store.highest_fence())


def test_a_process_that_runs_waits_as_long_as_it_says() -> None:
    async def wait() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with answer_within(CALL_SECONDS):
                await asyncio.Event().wait()
        return loop.time() - began

    with virtual_loop() as loop:
        assert loop.run_until_complete(wait()) == pytest.approx(CALL_SECONDS)
