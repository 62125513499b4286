"""What every store promises: the answers of a commit, what the fence keeps out, what the log keeps.

Each test runs on the model and, through the Lua scripts, on fakeredis; `tests/queues/store/test_agreement.py`
compares the two, and a real Redis, on random sequences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import fakeredis
import pytest

from queues.reservations.memory_reservations import REMEMBERED_REQUESTS, InMemoryReservationStore
from queues.reservations.reservations import (
    FenceTooLow,
    Lost,
    LostReason,
    NoFence,
    QuotaReservation,
    ReservationStore,
    Reserved,
)
from queues.store.faults import StoreLocation
from queues.store.redis_store import RedisReservationStore
from tests.queues.reservation_builders import make_entry, make_id, make_reservation
from tests.queues.store.agreement import MemorySubject, RedisSubject, Subject


async def make_memory() -> Subject:
    return MemorySubject()


async def make_fakeredis() -> Subject:
    client = fakeredis.FakeAsyncRedis()
    return RedisSubject(
        RedisReservationStore(client, place=StoreLocation(address="test"), call_seconds=10.0), client
    )


@pytest.fixture(params=[make_memory, make_fakeredis], ids=["memory", "fakeredis"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    """Give a store that was shown fence 5, and the accidents that may happen to it."""
    subject: Subject = await request.param()
    await subject.store.seed_fence(5)
    yield subject
    await subject.store.close()


@pytest.fixture
def store(subject: Subject) -> ReservationStore:
    """Give the store alone."""
    return subject.store


async def test_a_commit_reserves_what_is_free_and_says_lost_for_the_rest(
    store: ReservationStore,
) -> None:
    await store.commit([make_reservation("a")], fence=5, request_id="r1")

    answers = await store.commit(
        [make_reservation("a", request_id="r2"), make_reservation("b", request_id="r2")],
        fence=5,
        request_id="r2",
    )

    assert answers == (
        Lost(
            reason=LostReason.ALREADY_RESERVED,
            message="team/a is already reserved by request r1 under fence 5",
        ),
        Reserved(request_id="r2"),
    )


async def test_a_repeated_request_is_answered_as_before_even_when_its_reservation_is_gone(
    store: ReservationStore,
) -> None:
    await store.commit([make_reservation()], fence=5, request_id="r1")
    await store.confirm([make_id()], fence=5)

    answers = await store.commit([make_reservation()], fence=5, request_id="r1")

    assert answers == (Reserved(request_id="r1", is_duplicate=True),)
    assert await store.live(fence=5) == ()


async def test_a_request_that_was_forgotten_still_owns_its_reservation(subject: Subject) -> None:
    store = subject.store
    await store.commit([make_reservation()], fence=5, request_id="r1")
    await subject.forget_requests()

    answers = await store.commit([make_reservation()], fence=5, request_id="r1")

    assert answers == (Reserved(request_id="r1", is_duplicate=True),)


async def test_a_workload_created_again_under_the_same_name_is_another_one(
    store: ReservationStore,
) -> None:
    await store.commit([make_reservation()], fence=5, request_id="r1")
    second = dataclasses.replace(make_reservation(request_id="r2"), uid="uid-second")

    assert await store.commit([second], fence=5, request_id="r2") == (Reserved(request_id="r2"),)


@pytest.mark.parametrize(
    ("fence", "want"),
    [
        pytest.param(4, 5, id="a lower fence is refused"),
        pytest.param(5, 5, id="the same fence may go on"),
        pytest.param(6, 6, id="a higher fence is remembered"),
    ],
)
async def test_every_call_shows_its_fence(store: ReservationStore, fence: int, want: int) -> None:
    if fence < 5:
        with pytest.raises(FenceTooLow, match="another leader came later"):
            await store.live(fence=fence)
    else:
        await store.live(fence=fence)

    assert await store.highest_fence() == want


async def test_an_emptied_store_commits_nothing_until_it_is_seeded(subject: Subject) -> None:
    store = subject.store
    await subject.flush()

    with pytest.raises(NoFence):
        await store.commit([make_reservation()], fence=5, request_id="r1")

    assert await store.highest_fence() is None


async def test_seeding_does_not_lower_a_fence(store: ReservationStore) -> None:
    with pytest.raises(FenceTooLow):
        await store.seed_fence(4)

    assert await store.highest_fence() == 5


async def test_restore_overrules_what_was_reserved_before(store: ReservationStore) -> None:
    await store.commit([make_reservation("a"), make_reservation("b")], fence=5, request_id="r1")

    await store.restore([make_reservation("b", request_id="r2")], [make_id("a")], fence=5)

    assert await store.live(fence=5) == (make_reservation("b", request_id="r2"),)


async def test_live_reservations_come_oldest_first(store: ReservationStore) -> None:
    young, old = make_reservation("a", reserved_at=200.0), make_reservation("b", reserved_at=100.0)
    await store.commit([young, old], fence=5, request_id="r1")

    assert await store.live(fence=5) == (old, young)


async def test_the_log_leaves_out_what_was_lost(store: ReservationStore) -> None:
    await store.commit([make_reservation("a")], fence=5, request_id="r1", log=[make_entry("a")])

    lost = make_reservation("a", request_id="r2")
    evicted = make_entry("c", what="Evict")
    await store.commit([lost], fence=5, request_id="r2", log=[make_entry("a"), evicted])

    assert await store.decisions(limit=10) == (evicted, make_entry("a"))


@pytest.mark.parametrize(
    ("reservations", "request_id", "want"),
    [
        pytest.param(
            [make_reservation(request_id="r2")],
            "r1",
            "carries request r2",
            id="another request's reservation",
        ),
        pytest.param([make_reservation(fence=4)], "r1", "fence 4", id="another leader's reservation"),
        pytest.param([make_reservation()] * 2, "r1", "reserves a Workload twice", id="one Workload twice"),
        pytest.param([], "two words", "is not one word", id="a request id of two words"),
    ],
)
async def test_a_commit_that_no_cycle_can_mean_is_a_programming_error(
    store: ReservationStore, reservations: list[QuotaReservation], request_id: str, want: str
) -> None:
    with pytest.raises(ValueError, match=want):
        await store.commit(reservations, fence=5, request_id=request_id)

    assert await store.live(fence=5) == ()


async def test_a_request_id_may_not_come_back_for_other_reservations(
    store: ReservationStore,
) -> None:
    await store.commit([make_reservation()], fence=5, request_id="r1")

    with pytest.raises(ValueError, match="was for 1 reservations and comes back with 0"):
        await store.commit([], fence=5, request_id="r1")


async def test_the_model_forgets_the_oldest_request_first() -> None:
    model = InMemoryReservationStore()
    await model.seed_fence(5)
    for number in range(REMEMBERED_REQUESTS + 1):
        await model.commit([], fence=5, request_id=f"r{number}")

    await model.commit([make_reservation(request_id="r0")], fence=5, request_id="r0")

    assert len(await model.live(fence=5)) == 1
