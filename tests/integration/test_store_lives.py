"""The lives of a real Redis: what counts as the server that holds all that was acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from queues.store.blindness import is_blind
from queues.store.failover_store import FailoverStore
from queues.store.keys import Keys
from queues.store.redis_store import RedisReservationStore
from queues.store.seal import Seal
from tests.integration.test_store_replicas import wait_served
from tests.integration.waiting import PATIENCE_SECONDS
from tests.queues.reservation_builders import make_id, make_reservation
from tests.redisserver import RedisServer

pytestmark = pytest.mark.redis

KEYS = Keys("default")


@pytest.fixture
def store(redis_server: RedisServer) -> RedisReservationStore:
    """Give a store on a Redis of its own, with signed values."""
    made = RedisReservationStore.from_url(redis_server.url, call_seconds=10.0)
    made.seal = Seal(["0" * 64], cluster="c")
    return made


@pytest.fixture
def admin(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """Give a client of the operator's."""
    with redis.Redis.from_url(redis_server.url) as client:
        yield client


async def lead(store: RedisReservationStore, fence: int) -> FailoverStore:
    """Return the store of a leader that has read what its predecessor left."""
    leading = FailoverStore(store, heartbeat_seconds=0.05)
    await leading.live(fence=fence)
    return leading


async def test_a_successor_of_a_leader_on_the_same_life_is_not_blind(store: RedisReservationStore) -> None:
    await store.seed_fence(5)
    assert await is_blind(store, fence=5)
    await lead(store, 5)

    assert not await is_blind(store, fence=6)
    await store.close()


async def test_a_restart_begins_another_life(store: RedisReservationStore, redis_server: RedisServer) -> None:
    await store.seed_fence(5)
    await lead(store, 5)

    redis_server.stop()
    redis_server.start()
    # A store that does not answer yet leaves a leader blind as well.
    await wait_served(store)

    assert await is_blind(store, fence=6)
    await store.close()


async def test_a_replica_that_is_promoted_begins_another_life(
    store: RedisReservationStore, admin: redis.Redis
) -> None:
    await store.seed_fence(5)
    await lead(store, 5)

    admin.replicaof("127.0.0.1", "1")
    admin.replicaof("NO", "ONE")

    assert await is_blind(store, fence=6)
    await store.close()


async def test_a_life_that_another_program_wrote_is_none(
    store: RedisReservationStore, admin: redis.Redis
) -> None:
    await store.seed_fence(5)
    admin.set(KEYS.life, await store.present_life())

    assert (await store.life()).complete is None
    await store.close()


async def test_a_leader_writes_back_what_a_restarted_redis_lost_and_vouches_for_it(
    store: RedisReservationStore, admin: redis.Redis, redis_server: RedisServer
) -> None:
    await store.seed_fence(5)
    leading = await lead(store, 5)
    await leading.commit([make_reservation()], fence=5, request_id="r1")
    admin.delete(KEYS.reservations)
    redis_server.stop()
    redis_server.start()

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        watching = group.create_task(leading.run())
        while await is_blind(store, fence=6):
            await asyncio.sleep(0.01)
        watching.cancel()

    assert [one.id for one in await store.live(fence=5)] == [make_id()]
    await store.close()
