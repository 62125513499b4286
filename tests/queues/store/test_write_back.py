"""What a store that was lost lacks is written once it is back, also where changes arrive meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from queues.reservations.memory_reservations import InMemoryReservationStore
from queues.reservations.plan import Store
from queues.reservations.reservations import LoggedDecision, ReservationId
from queues.store.write_back import LOG_BACKLOG, WriteBack

A, B, C = (cast("ReservationId", name) for name in "abc")


def entry(number: int) -> LoggedDecision:
    return cast("LoggedDecision", f"entry {number}")


@dataclass
class RecordingStore:
    """Writes down each call; `fails` and `meanwhile` happen within the next one."""

    restored: list[tuple[list[Any], list[Any], int]] = field(default_factory=list)
    logged: list[tuple[Any, ...]] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    fails: str = ""
    meanwhile: Any = None
    at_a_time: int = 0
    most_at_a_time: int = 0

    async def restore(self, held: Iterable[Any], gone: Iterable[Any], *, fence: int) -> None:
        self.restored.append((list(held), list(gone), fence))
        await self._go("restore")

    async def commit(self, changes: object, *, fence: int, request_id: str, log: tuple[Any, ...]) -> None:
        assert (changes, fence) == ((), 7)
        self.logged.append(log)
        self.request_ids.append(request_id)
        await self._go("commit")

    async def _go(self, call: str) -> None:
        self.at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self.at_a_time)
        # Long enough for another call to begin.
        for _ in range(5):
            await asyncio.sleep(0)
        self.at_a_time -= 1
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        if self.fails == call:
            raise ConnectionError


def make_write_back(*held: ReservationId) -> tuple[WriteBack, RecordingStore, dict[Any, str]]:
    store, reservations = RecordingStore(), {id_: f"the reservation of {id_}" for id_ in held}
    memory = cast("InMemoryReservationStore", SimpleNamespace(reservations=reservations))
    return WriteBack(cast("Store", store), memory), store, cast("dict[Any, str]", reservations)


def test_the_present_reservations_are_restored_and_those_that_ended_are_removed() -> None:
    write_back, store, _ = make_write_back(B, A)
    write_back.note([C, B])
    write_back.note([B])
    assert len(write_back) == 2
    write_back.note_all()
    assert len(write_back) == 3

    asyncio.run(write_back.write(7))

    assert store.restored == [(["the reservation of a", "the reservation of b"], [C], 7)]
    assert len(write_back) == 0


@pytest.mark.parametrize(("always", "want_calls"), [(False, 0), (True, 1)])
def test_where_nothing_is_lacking_the_store_is_called_only_as_a_probe(always: bool, want_calls: int) -> None:
    write_back, store, _ = make_write_back(A)

    asyncio.run(write_back.write(7, always=always))

    assert store.restored == [([], [], 7)] * want_calls
    assert store.logged == []


def test_what_changes_during_the_call_is_written_in_a_next_one() -> None:
    write_back, store, reservations = make_write_back(A)
    write_back.note([A])

    def end() -> None:
        del reservations[A]
        write_back.note([A])

    store.meanwhile = end
    asyncio.run(write_back.write(7))

    assert store.restored == [(["the reservation of a"], [], 7), ([], [A], 7)]


def test_after_an_error_the_next_attempt_writes_all_of_it() -> None:
    write_back, store, _ = make_write_back(A, B)
    write_back.note([A])
    write_back.log([entry(1)])
    store.fails, store.meanwhile = "restore", lambda: write_back.note([B])

    with pytest.raises(ConnectionError):
        asyncio.run(write_back.write(7))
    assert (len(write_back), write_back.decisions(limit=9)) == (2, (entry(1),))
    store.fails = ""
    asyncio.run(write_back.write(7))

    assert store.restored[1:] == [(["the reservation of a", "the reservation of b"], [], 7)]
    assert store.logged == [(entry(1),)]


def test_log_entries_are_kept_in_order_until_they_are_written_each_time_under_a_new_id() -> None:
    write_back, store, _ = make_write_back(A)
    write_back.note([A])
    write_back.log([entry(1), entry(2)])
    store.fails = "commit"

    def decide() -> None:
        store.meanwhile = lambda: write_back.log([entry(3)])

    store.meanwhile = decide
    with pytest.raises(ConnectionError):
        asyncio.run(write_back.write(7))
    assert write_back.decisions(limit=9) == (entry(3), entry(2), entry(1))
    assert write_back.decisions(limit=2) == (entry(3), entry(2))
    store.fails = ""
    asyncio.run(write_back.write(7, always=True))

    assert store.logged == [(entry(1), entry(2)), (entry(1), entry(2), entry(3))]
    assert len(set(store.request_ids)) == 2
    assert all(id_.startswith("log-") for id_ in store.request_ids)
    assert write_back.decisions(limit=9) == ()


def test_of_more_entries_than_are_kept_the_oldest_are_dropped() -> None:
    write_back, _, _ = make_write_back()

    write_back.log(entry(number) for number in range(LOG_BACKLOG + 2))

    kept = write_back.decisions(limit=LOG_BACKLOG + 2)
    assert (len(kept), kept[0], kept[-1]) == (LOG_BACKLOG, entry(LOG_BACKLOG + 1), entry(2))


def test_a_second_write_waits_for_the_first() -> None:
    write_back, store, _ = make_write_back(A, B)
    write_back.note([A])

    async def both() -> None:
        first = asyncio.create_task(write_back.write(7))
        await asyncio.sleep(0)
        write_back.note([B])
        await asyncio.gather(write_back.write(7), first)

    asyncio.run(both())

    assert [len(held) for held, _, _ in store.restored] == [1, 1]
    assert store.most_at_a_time == 1
