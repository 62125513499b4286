"""The signing key of a real Redis is replaced, as docs/running.md says, while a reservation stays open."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queues.reservations.plan import PlanTable, PlanVersion, PlanWrite
from queues.reservations.reservations import CorruptValue
from queues.store.failover_store import FailoverStore
from queues.store.redis_store import RedisReservationStore
from queues.store.seal import Seal
from tests.queues.reservation_builders import make_id, make_reservation
from tests.redisserver import RedisServer

pytestmark = pytest.mark.redis

OLD, NEW = "0" * 64, "1" * 64


class Keyed:
    """The store of one leader after another, each with the keys of its time. `ignored`: what they dropped."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.ignored: list[CorruptValue] = []

    def store(self, keys: Sequence[str]) -> RedisReservationStore:
        """Return the store for these keys."""
        made = RedisReservationStore.from_url(self._url, call_seconds=10.0, on_corrupt=self.ignored.append)
        made.seal = Seal(keys, cluster="c")
        return made


async def test_a_signing_key_is_replaced_without_losing_a_reservation(redis_server: RedisServer) -> None:
    keyed = Keyed(redis_server.url)
    first = keyed.store([OLD])
    await first.seed_fence(5)
    await first.commit([make_reservation()], fence=5, request_id="r1")
    await first.close()

    for fence, keys in enumerate([[OLD, NEW], [NEW, OLD], [NEW]], start=6):
        leading = FailoverStore(keyed.store(keys))
        found = await leading.live(fence=fence)

        assert [one.id for one in found] == [make_id()], keys
        assert await leading.highest_fence() == fence
        await leading.close()
    assert keyed.ignored == []


async def test_a_row_that_only_the_former_key_signed_is_ignored(redis_server: RedisServer) -> None:
    keyed = Keyed(redis_server.url)
    first = keyed.store([OLD])
    await first.seed_fence(5)
    await first.commit([make_reservation()], fence=5, request_id="r1")
    rows = {PlanTable.RUNS: {"a/b/c": b"row"}}
    await first.write_plan(PlanWrite(version=PlanVersion(5, 1), after=None, rows=rows), fence=5)
    await first.close()
    second = keyed.store([NEW, OLD])
    assert (await second.read_plan([PlanTable.RUNS])).rows == rows
    await second.seed_fence(6)
    await second.close()

    third = keyed.store([NEW])

    assert await third.live(fence=7) == ()
    assert [one.is_unsigned for one in keyed.ignored] == [True]
    assert (await third.read_plan([PlanTable.RUNS])).rows != rows
    await third.close()
