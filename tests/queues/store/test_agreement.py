"""One command sequence, three stores: the model, fakeredis and a real Redis agree at every step."""

from __future__ import annotations

import fakeredis
import pytest
from hypothesis.stateful import run_state_machine_as_test
from redis.asyncio import Redis

from queues.reservations.reservations import CorruptValue
from queues.store.faults import StoreLocation
from queues.store.redis_scripts import Execute
from queues.store.redis_store import RedisReservationStore
from queues.store.seal import Seal
from tests.examples import trying
from tests.queues.store.agreement import RedisSubject, StoreMachine
from tests.redisserver import RedisServer

# A law like others, though hypothesis does not see it: `make laws` takes it by this mark.
pytestmark = pytest.mark.hypothesis

SEQUENCES = trying(30, steps=40, is_hard_to_draw=True)


def ignore(_: CorruptValue) -> None:
    """Ignore a dropped value: the machine garbles many."""


class OneLife(RedisReservationStore):
    """The store on a Redis that never restarts; fakeredis knows no INFO."""

    async def present_life(self, _: Execute | None = None, /) -> str:
        """Return what the model says too."""
        return "1"


def make_store(client: Redis) -> RedisReservationStore:
    # A busy machine may hold up a call; that it then is repeated is tested where replies get lost.
    store = OneLife(client, place=StoreLocation(address="test"), call_seconds=10.0, on_corrupt=ignore)
    store.seal = Seal(["0" * 32], cluster="test")
    return store


def test_fakeredis_agrees_with_the_model() -> None:
    class Machine(StoreMachine):
        async def make_subject(self) -> RedisSubject:
            client = fakeredis.FakeAsyncRedis()
            return RedisSubject(make_store(client), client)

    run_state_machine_as_test(Machine, settings=SEQUENCES)


def test_redis_agrees_with_the_model(redis_server: RedisServer) -> None:
    class Machine(StoreMachine):
        async def make_subject(self) -> RedisSubject:
            client = Redis.from_url(redis_server.url)
            return RedisSubject(make_store(client), client)

    run_state_machine_as_test(Machine, settings=SEQUENCES)
