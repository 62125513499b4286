"""Redis with replicas: Sentinel, a cluster, and writes that replicas must have.

Each time a real primary fails and a replica takes its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest

from queues.reservations.reservations import Lost, Reserved, StoreRefused, StoreUnreachable
from queues.store.blindness import is_blind
from queues.store.failover_store import FailoverStore, StoreState, StoreStatus
from queues.store.keys import Keys
from queues.store.redis_store import RedisReservationStore
from queues.store.replication import Replication
from queues.store.seal import Seal
from tests import parts
from tests.integration.waiting import PATIENCE_SECONDS
from tests.queues.reservation_builders import make_id, make_reservation
from tests.redisgroups import Group, cluster_group, sentinel_group
from tests.redisserver import RedisServer, find_bundled

pytestmark = pytest.mark.redis

KEYS = Keys("default")
ONE_REPLICA = Replication(replicas=1)


def a_sentinel(folder: Path) -> AbstractContextManager[Group]:
    """Run a primary with one replica."""
    return sentinel_group(folder, replicas=1)


def a_cluster(folder: Path) -> AbstractContextManager[Group]:
    """Run a cluster."""
    return cluster_group(folder, key=KEYS.fence)


@pytest.fixture
def two_replicas(tmp_path: Path) -> Iterator[Group]:
    """Give a primary with two replicas and a Sentinel."""
    parts.need("redis")
    with sentinel_group(tmp_path, replicas=2) as group:
        yield group


@asynccontextmanager
async def connected(url: str, replication: Replication | None = None) -> AsyncIterator[RedisReservationStore]:
    """Give the store at a URL, with signed values."""
    store = RedisReservationStore.from_url(url, call_seconds=2.0)
    store.seal = Seal(["0" * 64], cluster="c")
    store.replication = replication or Replication()
    try:
        yield store
    finally:
        await store.close()


class Leader:
    """The store of a leader with fence 5, watching Redis until the end of the block."""

    def __init__(self, store: RedisReservationStore) -> None:
        self._changed = asyncio.Event()
        self.store = FailoverStore(store, heartbeat_seconds=0.05, on_change=self._note)

    def _note(self, _: StoreStatus) -> None:
        self._changed.set()

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[FailoverStore]:
        """Read what is there and watch."""
        await self.store.live(fence=5)
        watching = asyncio.create_task(self.store.run())
        try:
            yield self.store
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def wait(self, state: StoreState) -> None:
        """Return when the store is in this state."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while self.store.status().state is not state:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(self.store.status()) from None


async def wait_served(store: RedisReservationStore) -> None:
    """Return when the store answers: a Sentinel names the new primary some moments after its promotion."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(StoreUnreachable):
                return await store.ping()
            await asyncio.sleep(0.01)


async def wait_vouched(store: RedisReservationStore) -> None:
    """Return when a leader has vouched for the server that serves now."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await is_blind(store, fence=6):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("start", [a_sentinel, a_cluster])
async def test_the_leader_goes_on_with_the_promoted_replica_and_gives_no_quota_twice(
    start: Callable[[Path], AbstractContextManager[Group]], tmp_path: Path
) -> None:
    parts.need("redis")
    with start(tmp_path) as group:
        async with connected(group.url, ONE_REPLICA) as store:
            # A replica without the fence would be seeded, which is another case.
            await store.seed_fence(5)
        async with connected(group.url) as store, connected(group.url) as next_leaders:
            leader = Leader(store)
            async with leader.leading() as leading:
                await leading.commit([make_reservation()], fence=5, request_id="r1")
                group.primary.kill()
                await asyncio.to_thread(group.wait_promoted)
                # Decided while no server served, or already with the new one.
                await leading.commit([make_reservation("b", request_id="r2")], fence=5, request_id="r2")
                again = await leading.commit([make_reservation(request_id="r3")], fence=5, request_id="r3")
                assert isinstance(again[0], Lost)
                await leader.wait(StoreState.UP)
                await wait_vouched(next_leaders)

            found = await next_leaders.live(fence=6)

        assert {one.id for one in found} == {make_id("a"), make_id("b")}


@pytest.mark.parametrize("start", [a_sentinel, a_cluster])
async def test_a_leader_that_finds_a_promoted_replica_waits(
    start: Callable[[Path], AbstractContextManager[Group]], tmp_path: Path
) -> None:
    parts.need("redis")
    with start(tmp_path) as group:
        async with connected(group.url) as store:
            await store.seed_fence(5)
            async with Leader(store).leading():
                assert not await is_blind(store, fence=6)
        group.primary.kill()
        await asyncio.to_thread(group.wait_promoted)

        async with connected(group.url) as store:
            await wait_served(store)
            assert await is_blind(store, fence=6)


async def test_what_a_replica_has_acknowledged_is_there_after_the_primary_is_killed(
    two_replicas: Group,
) -> None:
    async with connected(two_replicas.url, ONE_REPLICA) as store:
        await store.seed_fence(5)
        for number in range(20):
            name, request = f"w{number}", f"r{number}"
            answers = await store.commit(
                [make_reservation(name, request_id=request)], fence=5, request_id=request
            )
            assert answers == (Reserved(request_id=request),)
        two_replicas.primary.kill()
        await asyncio.to_thread(two_replicas.wait_promoted)

    async with connected(two_replicas.url) as store:
        await wait_served(store)
        found = await store.live(fence=6)
    assert {one.id for one in found} == {make_id(f"w{number}") for number in range(20)}


async def test_a_store_whose_replica_is_silent_counts_as_lost_until_it_answers(tmp_path: Path) -> None:
    parts.need("redis")
    with sentinel_group(tmp_path, replicas=1) as group:
        async with connected(group.url, ONE_REPLICA) as store:
            await store.seed_fence(5)
            leader = Leader(store)
            async with leader.leading() as leading:
                group.replicas[0].pause()

                answers = await leading.commit([make_reservation()], fence=5, request_id="r1")

                assert answers == (Reserved(request_id="r1"),)
                assert "0 of 1 replicas have the last write" in leading.status().reason
                assert leading.status().state is StoreState.LOST
                group.replicas[0].resume()
                await leader.wait(StoreState.UP)
                assert not await is_blind(store, fence=6)


async def test_a_repeated_commit_waits_for_replicas_as_the_first_one_did(tmp_path: Path) -> None:
    parts.need("redis")
    # Before 7.2, WAIT is about the last write of all connections.
    with sentinel_group(tmp_path, replicas=1, program=find_bundled()) as group:
        async with connected(group.url) as store:
            await store.seed_fence(5)
            await store.commit([make_reservation()], fence=5, request_id="r1")
        group.replicas[0].pause()

        async with connected(group.url, ONE_REPLICA) as store:
            with pytest.raises(Exception, match="0 of 1 replicas have the last write"):
                await store.commit([make_reservation()], fence=5, request_id="r1")
        group.replicas[0].resume()


async def test_a_former_primary_without_replicas_leaves_a_new_leader_blind(tmp_path: Path) -> None:
    parts.need("redis")
    with sentinel_group(tmp_path, replicas=1) as group:
        async with connected(group.primary.url, ONE_REPLICA) as store:
            await store.seed_fence(5)
            async with Leader(store).leading():
                assert not await is_blind(store, fence=6)
        # The other side of a network that is cut: it was promoted, and the primary knows nothing of it.
        with group.replicas[0].client() as replica:
            replica.replicaof("NO", "ONE")
        async with connected(group.replicas[0].url) as other:
            await other.commit([make_reservation()], fence=5, request_id="r1")

        async with connected(group.primary.url, ONE_REPLICA) as store:
            assert await is_blind(store, fence=6)


async def test_a_moved_slot_is_followed(tmp_path: Path) -> None:
    parts.need("redis")
    with cluster_group(tmp_path, key=KEYS.fence) as group:
        async with connected(group.url) as store:
            await store.seed_fence(5)
            with group.replicas[0].client() as replica:
                replica.execute_command("CLUSTER FAILOVER")
            # A node that has not heard of it yet would still name the former primary.
            await asyncio.to_thread(group.wait_moved, KEYS.fence)

            answers = await store.commit([make_reservation()], fence=5, request_id="r1")

            assert answers == (Reserved(request_id="r1"),)
            assert await is_blind(store, fence=6)


@pytest.mark.parametrize(("appendonly", "is_kept"), [("yes", True), ("no", False)])
async def test_writes_that_must_be_on_disk_are(tmp_path: Path, appendonly: str, is_kept: bool) -> None:
    parts.need("redis")
    settings = {"appendonly": appendonly, "appendfsync": "always"}
    # Valkey, and Redis from 7.2 on, know WAITAOF.
    with RedisServer(tmp_path, settings, program=find_bundled()) as redis:
        async with connected(redis.url, Replication(on_disk=True)) as store:
            if is_kept:
                await store.seed_fence(5)
                answers = await store.commit([make_reservation()], fence=5, request_id="r1")
                assert answers == (Reserved(request_id="r1"),)
            else:
                with pytest.raises(StoreRefused, match="appendonly"):
                    await store.ping()
