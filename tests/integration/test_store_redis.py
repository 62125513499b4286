"""The store on a real Redis: leaders that overlap, replies that get lost, and faults of a server."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import redis

from queues.reservations.reservations import (
    CorruptValue,
    FenceTooLow,
    Lost,
    NoFence,
    Reserved,
    StoreRefused,
    StoreUnreachable,
)
from queues.store.failover_store import FailoverStore, StoreState, StoreStatus
from queues.store.keys import Keys, to_field
from queues.store.redis_store import RedisReservationStore
from tests.integration.waiting import PATIENCE_SECONDS
from tests.queues.reservation_builders import make_id, make_reservation
from tests.redisserver import RedisServer

KEYS = Keys("default")


@asynccontextmanager
async def connected(url: str, *, call_seconds: float = 10.0) -> AsyncIterator[RedisReservationStore]:
    """Give a store; by default it waits long, so that a busy machine does not look like a lost Redis."""
    store = RedisReservationStore.from_url(url, call_seconds=call_seconds)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisReservationStore]:
    """Give a store that was shown fence 5."""
    async with connected(redis_server.url) as store:
        await store.seed_fence(5)
        yield store


@pytest.fixture
def admin(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """Give a client of the operator's, to break things with."""
    with redis.Redis.from_url(redis_server.url) as client:
        yield client


class LossyProxy:
    """Forwards bytes to a server and back, except the replies it is to lose: then it hangs up."""

    def __init__(self, url: str) -> None:
        self._port = urlsplit(url).port
        self.replies_to_lose = 0
        self.lost = 0
        self.connections = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Give the URL of the proxy."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._forward(reader, there_writer), self._return(there_reader, writer))
        there_writer.close()
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while said := await reader.read(65536):
            writer.write(said)
        writer.write_eof()

    async def _return(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answer := await reader.read(65536):
            # Answers to EVALSHA are arrays; those of the handshake are not, and always arrive.
            if self.replies_to_lose and answer.startswith(b"*"):
                self.replies_to_lose -= 1
                self.lost += 1
                break
            writer.write(answer)
        writer.close()


async def test_a_commit_whose_reply_was_lost_is_booked_once(
    redis_server: RedisServer, store: RedisReservationStore, admin: redis.Redis
) -> None:
    proxy = LossyProxy(redis_server.url)
    async with proxy.listening() as url, connected(url) as through_proxy:
        await through_proxy.live(fence=5)  # the script is known, the connection open
        await through_proxy.commit([], fence=5, request_id="r0")
        proxy.replies_to_lose = 1

        answers = await through_proxy.commit([make_reservation()], fence=5, request_id="r1")

    assert proxy.lost == 1
    assert answers == (Reserved(request_id="r1", is_duplicate=True),)
    assert await store.live(fence=5) == (make_reservation(),)


async def test_a_commit_is_sent_twice_and_no_more(
    redis_server: RedisServer, store: RedisReservationStore
) -> None:
    proxy = LossyProxy(redis_server.url)
    async with proxy.listening() as url, connected(url) as through_proxy:
        await through_proxy.commit([], fence=5, request_id="r0")
        proxy.replies_to_lose = 9

        with pytest.raises(StoreUnreachable):
            await through_proxy.commit([make_reservation()], fence=5, request_id="r1")

    assert proxy.lost == 2
    assert await store.live(fence=5) == (make_reservation(),)


async def test_the_later_of_two_leaders_shuts_out_the_earlier(
    redis_server: RedisServer, store: RedisReservationStore
) -> None:
    async with connected(redis_server.url) as later:
        await store.commit([make_reservation("a")], fence=5, request_id="r1")
        assert await later.live(fence=6) == (make_reservation("a"),)

        with pytest.raises(FenceTooLow) as refusal:
            await store.commit([make_reservation("b", request_id="r2")], fence=5, request_id="r2")
        with pytest.raises(FenceTooLow):
            await store.release([make_id("a")], fence=5)

        assert (refusal.value.fence, refusal.value.highest) == (5, 6)
        assert await later.live(fence=6) == (make_reservation("a"),)


async def test_of_200_commits_at_once_each_workload_is_reserved_once(store: RedisReservationStore) -> None:
    async def commit(number: int) -> list[str]:
        names = [f"w{number % 20}", f"w{(number + 1) % 20}"]
        cycle = [make_reservation(name, request_id=f"r{number}") for name in names]
        answers = await store.commit(cycle, fence=5, request_id=f"r{number}")
        return [name for name, got in zip(names, answers, strict=True) if isinstance(got, Reserved)]

    reserved = await asyncio.gather(*(commit(number) for number in range(200)))

    assert sorted(name for names in reserved for name in names) == sorted(f"w{n}" for n in range(20))
    assert len(await store.live(fence=5)) == 20


async def test_a_cycle_of_1000_workloads_is_one_call(store: RedisReservationStore) -> None:
    cycle = [make_reservation(f"w{n}", write=b"x" * 8192) for n in range(1000)]

    answers = await store.commit(cycle, fence=5, request_id="r1")

    assert set(answers) == {Reserved(request_id="r1")}
    assert len(await store.live(fence=5)) == 1000


async def test_two_shards_do_not_see_each_other(
    redis_server: RedisServer, store: RedisReservationStore
) -> None:
    other = RedisReservationStore.from_url(redis_server.url, shard="other", call_seconds=10.0)
    assert await other.highest_fence() is None
    await other.seed_fence(1)
    await other.commit([make_reservation(fence=1)], fence=1, request_id="r1")
    await other.close()

    assert await store.live(fence=5) == ()


async def test_a_frozen_redis_is_unreachable_after_two_calls_and_then_serves_again(
    redis_server: RedisServer, store: RedisReservationStore
) -> None:
    proxy, time = LossyProxy(redis_server.url), asyncio.get_running_loop().time
    async with proxy.listening() as url, connected(url, call_seconds=0.125) as impatient:
        redis_server.pause()
        began = time()
        with pytest.raises(StoreUnreachable, match="nothing within 125 ms"):
            await impatient.commit([make_reservation()], fence=5, request_id="r1")
        took = time() - began
        redis_server.resume()
        # Each call opened a connection, which a busy machine may accept late.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while proxy.connections < 2:
                await asyncio.sleep(0.01)

    assert took >= 0.25
    assert proxy.connections == 2
    again = await store.commit([make_reservation()], fence=5, request_id="r1")
    assert [type(answer) for answer in again] == [Reserved]


async def test_what_was_committed_survives_a_restart(
    redis_server: RedisServer, store: RedisReservationStore
) -> None:
    await store.commit([make_reservation()], fence=5, request_id="r1")
    redis_server.stop()
    with pytest.raises(StoreUnreachable, match="start it there"):
        await store.live(fence=5)
    redis_server.start()

    assert await store.live(fence=5) == (make_reservation(),)
    answers = await store.commit([make_reservation()], fence=5, request_id="r1")
    assert answers == (Reserved(request_id="r1", is_duplicate=True),)


async def test_an_emptied_redis_has_no_fence(redis_server: RedisServer, store: RedisReservationStore) -> None:
    redis_server.flush()

    with pytest.raises(NoFence):
        await store.commit([make_reservation()], fence=5, request_id="r1")
    assert await store.highest_fence() is None


async def test_requests_expire(store: RedisReservationStore, admin: redis.Redis) -> None:
    await store.commit([make_reservation()], fence=5, request_id="r1")

    assert 0 < int(admin.ttl(KEYS.request("r1"))) <= 600


async def test_a_read_only_replica_refuses(store: RedisReservationStore, admin: redis.Redis) -> None:
    admin.replicaof("127.0.0.1", "1")

    with pytest.raises(StoreRefused, match="is a read-only replica: give the URL of its primary"):
        await store.commit([make_reservation()], fence=5, request_id="r1")


async def test_a_redis_out_of_memory_refuses_and_changes_nothing(
    store: RedisReservationStore, admin: redis.Redis
) -> None:
    await store.commit([make_reservation("a")], fence=5, request_id="r1")
    admin.config_set("maxmemory", "1mb")
    admin.config_set("maxmemory-policy", "noeviction")

    with pytest.raises(StoreRefused, match="has used up its memory: raise its maxmemory"):
        await store.commit([make_reservation("b", request_id="r2")], fence=5, request_id="r2")

    # Giving back is still possible, and is what helps.
    await store.confirm([make_id("a")], fence=5)
    admin.config_set("maxmemory", "0")
    assert await store.live(fence=5) == ()


@pytest.mark.skipif(sys.platform != "linux", reason="optional: prlimit is Linux's")
async def test_a_full_disk_refuses(
    redis_server: RedisServer, store: RedisReservationStore, admin: redis.Redis
) -> None:
    resource.prlimit(redis_server.child.pid, resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    async def commit_on_and_on() -> None:
        for number in range(1000):
            cycle = [make_reservation(f"w{number}", request_id=f"r{number}", write=b"x" * 8192)]
            await store.commit(cycle, fence=5, request_id=f"r{number}")

    with pytest.raises(StoreRefused, match=r"cannot save its data \(Errors writing to the AOF file"):
        await commit_on_and_on()


@pytest.mark.parametrize(
    ("key", "command", "want"),
    [
        pytest.param(KEYS.fence, ("HSET", "a", "b"), "a string", id="a hash in place of the fence"),
        pytest.param(
            KEYS.fence, ("SET", "five"), "a whole number up to 2147483646", id="a word in place of the fence"
        ),
        pytest.param(KEYS.reservations, ("SET", "x"), "a hash", id="a string in place of the reservations"),
        pytest.param(KEYS.request("r1"), ("SADD", "x"), "a string", id="a set in place of the request"),
        pytest.param(KEYS.log, ("SET", "x"), "a stream", id="a string in place of the log"),
    ],
)
async def test_what_is_not_ours_is_named(
    store: RedisReservationStore, admin: redis.Redis, key: str, command: tuple[str, ...], want: str
) -> None:
    before = admin.dbsize()
    admin.delete(key)
    admin.execute_command(command[0], key, *command[1:])  # type: ignore[no-untyped-call]  # the library has no types for it

    with pytest.raises(CorruptValue) as refusal:
        await store.commit([make_reservation()], fence=5, request_id="r1")

    assert (refusal.value.key, refusal.value.expected) == (key, want)
    assert admin.dbsize() <= before + 1


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"garbage", id="garbage"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"2 5 r1\n\x80", id="a format of the future"),
        pytest.param(b"1 5 r1\n\x81\xa3key\x01", id="a map of other fields"),
        pytest.param(b"1 5 r1\n\xc1", id="no MessagePack"),
    ],
)
async def test_a_reservation_that_cannot_be_read_is_reported_and_dropped(
    redis_server: RedisServer, admin: redis.Redis, value: bytes
) -> None:
    reported: list[CorruptValue] = []
    store = RedisReservationStore.from_url(redis_server.url, call_seconds=10.0, on_corrupt=reported.append)
    await store.seed_fence(5)
    await store.commit([make_reservation("good")], fence=5, request_id="r1")
    admin.hset(KEYS.reservations, "team/bad/uid-bad", value)

    assert await store.live(fence=5) == (make_reservation("good"),)
    assert await store.live(fence=5) == (make_reservation("good"),)

    assert [error.key for error in reported] == [f"{KEYS.reservations}[team/bad/uid-bad]"]
    await store.close()


@pytest.mark.parametrize(
    ("credentials", "want"),
    [
        pytest.param("", "Authentication required", id="none"),
        pytest.param(":wrong@", "invalid username-password pair", id="a wrong password"),
        pytest.param("unknown:right@", "invalid username-password pair", id="an unknown user"),
    ],
)
async def test_wrong_credentials_are_named_and_not_shown(
    redis_server: RedisServer, admin: redis.Redis, credentials: str, want: str
) -> None:
    admin.config_set("requirepass", "right")
    async with connected(redis_server.url.replace("//", f"//{credentials}")) as store:
        with pytest.raises(StoreRefused, match=want) as refusal:
            await store.ping()

    assert "correct user and password in its URL" in str(refusal.value)
    assert "wrong@" not in str(refusal.value)


async def test_the_right_credentials_serve(redis_server: RedisServer, admin: redis.Redis) -> None:
    admin.acl_setuser(
        "berth",
        enabled=True,
        passwords=["+right"],
        keys=["berth:*"],
        categories=["+@read", "+@write", "+@scripting"],
        commands=["+ping"],
    )
    async with connected(redis_server.url.replace("//", "//berth:right@")) as store:
        await store.ping()
        await store.seed_fence(5)
        await store.commit([make_reservation()], fence=5, request_id="r1")

        assert await store.live(fence=5) == (make_reservation(),)


async def test_a_user_without_rights_gets_the_missing_right_by_name(
    redis_server: RedisServer, admin: redis.Redis
) -> None:
    admin.acl_setuser("berth", enabled=True, passwords=["+right"], keys=["other:*"], categories=["+@all"])
    async with connected(redis_server.url.replace("//", "//berth:right@")) as store:
        with pytest.raises(StoreRefused, match=r"grant it `~berth:\*"):
            await store.live(fence=5)


async def test_a_database_that_does_not_exist(redis_server: RedisServer) -> None:
    async with connected(redis_server.url.replace("/0", "/99")) as store:
        with pytest.raises(StoreRefused, match="DB index is out of range"):
            await store.ping()


async def test_tls_is_not_spoken_by_a_plain_redis(redis_server: RedisServer) -> None:
    async with connected(redis_server.url.replace("redis://", "rediss://")) as store:
        with pytest.raises(StoreUnreachable, match="if it speaks no TLS, begin its URL with redis://"):
            await store.ping()


@asynccontextmanager
async def leading(url: str) -> AsyncIterator[tuple[FailoverStore, asyncio.Queue[StoreStatus]]]:
    """Give the store of a leader with fence 5, watched over, and the queue of what it noticed."""
    noticed: asyncio.Queue[StoreStatus] = asyncio.Queue()
    async with connected(url, call_seconds=0.5) as beneath, asyncio.TaskGroup() as tasks:
        await beneath.seed_fence(5)
        guarded = FailoverStore(beneath, on_change=noticed.put_nowait, first_probe_seconds=0.01)
        watch = tasks.create_task(guarded.run(), name="store")
        await guarded.live(fence=5)
        yield guarded, noticed
        watch.cancel()


async def wait_state(noticed: asyncio.Queue[StoreStatus], want: StoreState) -> StoreStatus:
    """Return the first status of this state."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (status := await noticed.get()).state is not want:
            pass
    return status


async def test_what_a_frozen_redis_did_late_changes_no_decision(redis_server: RedisServer) -> None:
    async with leading(redis_server.url) as (guarded, noticed):
        redis_server.pause()
        first = await guarded.commit([make_reservation("a")], fence=5, request_id="r1")
        await guarded.release([make_id("a")], fence=5)
        redis_server.resume()
        await wait_state(noticed, StoreState.LOST)
        await wait_state(noticed, StoreState.UP)
        second = await guarded.commit([make_reservation("a", request_id="r2")], fence=5, request_id="r2")

        assert [type(answer) for answer in (*first, *second)] == [Reserved, Reserved]
        third = await guarded.commit([make_reservation("a", request_id="r3")], fence=5, request_id="r3")
        assert [type(answer) for answer in third] == [Lost]


async def test_a_redis_killed_and_started_again_learns_what_it_missed(redis_server: RedisServer) -> None:
    async with leading(redis_server.url) as (guarded, noticed):
        await guarded.commit([make_reservation("a")], fence=5, request_id="r1")
        redis_server.kill()
        await guarded.commit([make_reservation("b", request_id="r2")], fence=5, request_id="r2")
        await guarded.confirm([make_id("a")], fence=5)
        status = await wait_state(noticed, StoreState.LOST)
        assert "does not answer" in status.reason
        redis_server.start()
        await wait_state(noticed, StoreState.UP)

        async with connected(redis_server.url) as successor:
            assert [r.key.name for r in await successor.live(fence=6)] == ["b"]


async def test_a_flushed_redis_is_seeded_and_rebuilt(redis_server: RedisServer) -> None:
    async with leading(redis_server.url) as (guarded, noticed):
        await guarded.commit([make_reservation("a")], fence=5, request_id="r1")
        redis_server.flush()
        with pytest.raises(NoFence):
            await guarded.commit([make_reservation("b", request_id="r2")], fence=5, request_id="r2")
        await wait_state(noticed, StoreState.NEEDS_SEED)

        await guarded.seed_fence(5)

        async with connected(redis_server.url) as successor:
            assert [r.key.name for r in await successor.live(fence=6)] == ["a"]


@pytest.mark.parametrize("fence", [b"7", b"9" * 5_000], ids=["a fence", "more digits than Python converts"])
async def test_a_forged_holder_of_a_reservation_is_an_answer_like_any_other(
    store: RedisReservationStore, admin: redis.Redis, fence: bytes
) -> None:
    wanted = make_reservation(request_id="ours")
    admin.hset(KEYS.reservations, to_field(wanted.id), b"1 %s forged\njunk" % fence)

    (answer,) = await store.commit([wanted], fence=5, request_id="ours")

    assert isinstance(answer, Lost)
    assert "already reserved by request forged" in answer.message
