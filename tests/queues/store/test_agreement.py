"""One command sequence, three stores: the model, fakeredis and a real Redis agree at every step."""

from __future__ import annotations

import fakeredis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from redis.asyncio import Redis

from queues.reservations import CorruptValue
from queues.store.faults import Place
from queues.store.redis_store import RedisReservationStore
from tests.queues.store.agreement import RedisSubject, StoreMachine
from tests.redisserver import RedisServer

SEQUENCES = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def ignore(_: CorruptValue) -> None:
    """Hear of a dropped value: the machine garbles many."""


def make_store(client: Redis) -> RedisReservationStore:
    # A busy machine may hold up a call; that it then is repeated is tested where replies get lost.
    return RedisReservationStore(client, place=Place(address="test"), call_seconds=10.0, on_corrupt=ignore)


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
