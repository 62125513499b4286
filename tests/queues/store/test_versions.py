"""A store that replicas of two versions use: what the other one has written in its own form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import fakeredis
import msgspec

from queues.reservations.plan import PlanTable, StoredPlan
from queues.reservations.reservations import CorruptValue, QuotaReservation
from queues.store import encoding
from queues.store.faults import StoreLocation
from queues.store.keys import Keys, to_field
from queues.store.plan_rows import RowFault, read_rows, to_row
from queues.store.redis_store import RedisReservationStore
from tests.queues.reservation_builders import make_id, make_reservation

KEYS = Keys("default")


def live_beside(**others: bytes) -> tuple[list[str], list[CorruptValue], int]:
    """Return the Workloads of the live reservations, what was reported, and how many remain in Redis.

    Redis holds a reservation of this version for the Workload `a`, and `others` by Workload.
    """

    async def run() -> tuple[tuple[QuotaReservation, ...], int]:
        await execute("HSET", KEYS.reservations, *parts)
        await store.seed_fence(5)
        found = await store.live(fence=5)
        remain: int = await execute("HLEN", KEYS.reservations)
        return found, remain

    client, reported = fakeredis.FakeAsyncRedis(), list[CorruptValue]()
    execute: Callable[..., Awaitable[Any]] = client.execute_command
    place = StoreLocation(address="this process")
    store = RedisReservationStore(client, place=place, on_corrupt=reported.append)
    values = {"a": encoding.encode(make_reservation("a")), **others}
    parts = [part for name, value in values.items() for part in (to_field(make_id(name)), value)]
    found, remain = asyncio.run(run())
    return [one.key.name for one in found], reported, remain


def test_what_a_newer_version_has_stored_is_named_and_ignored() -> None:
    newer = b"2" + encoding.encode(make_reservation("b"))[1:]

    found, reported, remain = live_beside(b=newer)

    assert (found, remain) == (["a"], 1)
    assert [one.expected for one in reported] == ["a quota reservation in format 1"]
    assert to_field(make_id("b")) in reported[0].key


def test_fields_that_a_newer_version_has_added_are_skipped() -> None:
    reservation = make_reservation("b")
    head = encoding.encode(reservation).partition(b"\n")[0]
    body = msgspec.msgpack.encode({**msgspec.to_builtins(reservation, builtin_types=(bytes,)), "added": [1]})

    found, reported, _ = live_beside(b=head + b"\n" + body)

    assert (sorted(found), reported) == (["a", "b"], [])


def test_rows_of_another_schema_are_named_and_the_others_count() -> None:
    row = to_row(5.0)
    rows = {"team/a/u": row, "team/b/u": b"2" + row[1:], "team/c/u": b"0" + row[1:]}

    plan, bad = read_rows(StoredPlan(rows={PlanTable.OUTRUN: rows}))

    assert len(plan.outrun) == 1
    assert [(one.field, one.fault) for one in bad] == [
        ("team/b/u", RowFault.OTHER_SCHEMA),
        ("team/c/u", RowFault.OTHER_SCHEMA),
    ]
    assert [one.message.rpartition(", ")[2] for one in bad] == ["found schema 2", "found schema 0"]
