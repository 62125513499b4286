"""A leader goes on while Redis is lost, and Redis learns afterwards what it missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from queues.reservations.reservations import (
    CorruptValue,
    FenceTooLow,
    Lost,
    NoFence,
    ReservationError,
    Reserved,
    StoreRefused,
    StoreUnreachable,
)
from queues.store.failover_store import FailoverStore, StoreState, StoreStatus
from tests.integration.waiting import PATIENCE_SECONDS
from tests.queues.reservation_builders import make_entry, make_id, make_reservation
from tests.queues.store.faults import FaultyStore

SILENCE = StoreUnreachable("Redis at redis://test does not answer (nothing within 125 ms): start it there")
FULL = StoreRefused("Redis at redis://test has used up its memory: raise its maxmemory")


class Leader:
    """A leadership with fence 5 on a store that may fail, with the states that were reported to it."""

    def __init__(self, beneath: FaultyStore, *, require_store: bool = False) -> None:
        self.beneath = beneath
        self.states: list[StoreState] = []
        self._changes: asyncio.Queue[StoreStatus] = asyncio.Queue()
        self.store = FailoverStore(
            beneath,
            require_store=require_store,
            on_change=self._note,
            first_probe_seconds=0.001,
            heartbeat_seconds=0.01,
        )

    def _note(self, status: StoreStatus) -> None:
        self.states.append(status.state)
        self._changes.put_nowait(status)

    async def wait_state(self, want: StoreState) -> StoreStatus:
        """Return the first status of this state that has not been looked at."""
        while (status := await self._changes.get()).state is not want:
            pass
        return status

    async def wait_back(self) -> StoreStatus:
        """Return the status when the store has been lost and is back."""
        await self.wait_state(StoreState.LOST)
        return await self.wait_state(StoreState.UP)

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Let the store's watch run meanwhile."""
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self.store.run(), name="store")
            yield
            watch.cancel()

    async def commit(self, *names: str, request_id: str = "r1", fence: int = 5) -> list[type]:
        """Reserve for a cycle with a log entry for each; return the kinds of its answers."""
        cycle = [make_reservation(name, request_id=request_id, fence=fence) for name in names]
        log = [make_entry(name, message=request_id) for name in names]
        answers = await self.store.commit(cycle, fence=fence, request_id=request_id, log=log)
        return [type(answer) for answer in answers]

    def held(self) -> dict[str, str]:
        """Return what Redis holds: request ids by Workload's name."""
        return {key.name: r.request_id for (key, _), r in self.beneath.model.reservations.items()}


@pytest.fixture
async def beneath() -> FaultyStore:
    """Give a store that was shown fence 5."""
    store = FaultyStore()
    await store.model.seed_fence(5)
    return store


@pytest.fixture
async def leader(beneath: FaultyStore) -> AsyncIterator[Leader]:
    """Give a leader that has recovered what its predecessor left: nothing."""
    leader = Leader(beneath)
    await leader.store.live(fence=5)
    async with leader.watching():
        yield leader


async def test_while_redis_serves_it_decides(leader: Leader) -> None:
    assert await leader.commit("a", "b") == [Reserved, Reserved]
    assert await leader.commit("a", request_id="r2") == [Lost]

    await leader.store.confirm([make_id("a")], fence=5)

    assert leader.held() == {"b": "r1"}
    assert leader.store.status().is_up


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(SILENCE, id="Redis does not answer"),
        pytest.param(FULL, id="Redis refuses to write"),
        pytest.param(CorruptValue("berth:{x}:fence", expected="a string"), id="a key of ours is taken"),
    ],
)
async def test_when_redis_is_lost_admission_goes_on_in_memory(
    leader: Leader, fault: ReservationError
) -> None:
    leader.beneath.fault = fault

    assert await leader.commit("a") == [Reserved]
    assert await leader.commit("a", request_id="r2") == [Lost]

    status = leader.store.status()
    assert (status.state, status.reason) == (StoreState.LOST, str(fault))
    assert leader.held() == {}


async def test_what_was_decided_without_redis_is_written_back(leader: Leader) -> None:
    await leader.commit("a", "b")
    leader.beneath.fault = SILENCE
    await leader.commit("c", request_id="r2")
    await leader.store.confirm([make_id("a")], fence=5)

    leader.beneath.fault = None
    status = await leader.wait_back()

    assert leader.held() == {"b": "r1", "c": "r2"}
    assert status.unwritten == 0
    assert [entry.key.name for entry in await leader.store.decisions(limit=9)] == ["c", "b", "a"]


async def test_what_is_decided_while_the_log_is_written_back_is_in_it_too(leader: Leader) -> None:
    leader.beneath.fault = SILENCE
    await leader.commit("a")
    tried = leader.beneath.commits

    leader.beneath.fault = None
    while leader.beneath.commits == tried:  # until the log of "a" is on its way
        await asyncio.sleep(0)
    assert leader.store.status().state is StoreState.LOST
    await leader.commit("b", request_id="r2")
    await leader.wait_back()
    await leader.commit("c", request_id="r3")

    assert [entry.key.name for entry in await leader.store.decisions(limit=9)] == ["c", "b", "a"]


async def test_a_commit_whose_reply_was_lost_is_booked_once(leader: Leader) -> None:
    leader.beneath.fault, leader.beneath.takes_effect = SILENCE, True
    await leader.commit("a")
    await leader.store.release([make_id("a")], fence=5)

    leader.beneath.fault, leader.beneath.takes_effect = None, False
    await leader.wait_back()

    assert leader.held() == {}


async def test_what_redis_did_late_is_reclaimed(leader: Leader) -> None:
    # A frozen Redis wakes up and carries out what was given up on, after all was written back.
    await leader.beneath.model.commit([make_reservation("a")], fence=5, request_id="r1")

    assert await leader.commit("a", "b", request_id="r2") == [Reserved, Reserved]

    assert leader.held() == {"a": "r2.again", "b": "r2"}


async def test_what_redis_did_late_is_taken_away_when_it_is_not_asked_for_again(leader: Leader) -> None:
    await leader.commit("held")
    late = make_reservation("late", request_id="r2")
    await leader.beneath.model.commit([late], fence=5, request_id="r2")
    assert leader.held() == {"held": "r1", "late": "r2"}

    async with asyncio.timeout(PATIENCE_SECONDS):
        while "late" in leader.held():
            await asyncio.sleep(0.001)

    assert leader.held() == {"held": "r1"}


async def test_what_a_predecessor_left_is_not_reclaimed(beneath: FaultyStore) -> None:
    await beneath.model.commit([make_reservation("a", fence=5)], fence=5, request_id="r1")
    leader = Leader(beneath)
    found = await leader.store.live(fence=6)

    assert [r.key.name for r in found] == ["a"]
    assert await leader.commit("a", request_id="r2", fence=6) == [Lost]


async def test_a_leader_that_began_without_redis_still_has_to_recover(beneath: FaultyStore) -> None:
    await beneath.model.commit([make_reservation("a", fence=5)], fence=5, request_id="r1")
    beneath.fault = SILENCE
    leader = Leader(beneath)
    assert await leader.store.live(fence=6) == ()
    assert leader.store.status().needs_recovery

    async with leader.watching():
        beneath.fault = None
        await leader.wait_back()

    assert await leader.commit("a", request_id="r2", fence=6) == [Lost]
    assert [r.key.name for r in await leader.store.live(fence=6)] == ["a"]
    assert not leader.store.status().needs_recovery


async def test_with_require_store_nothing_is_admitted_without_it(beneath: FaultyStore) -> None:
    leader = Leader(beneath, require_store=True)
    await leader.store.live(fence=5)
    await leader.commit("a")
    beneath.fault, beneath.takes_effect = SILENCE, True

    with pytest.raises(StoreUnreachable, match="as --require-store asks"):
        await leader.commit("b", request_id="r2")
    await leader.store.confirm([make_id("a")], fence=5)

    assert leader.store.status().unwritten == 2  # a is to go, and b, which may have been booked


async def test_with_require_store_a_call_given_up_on_leaves_nothing(beneath: FaultyStore) -> None:
    leader = Leader(beneath, require_store=True)
    await leader.store.live(fence=5)
    beneath.fault, beneath.takes_effect = SILENCE, True
    with pytest.raises(StoreUnreachable):
        await leader.commit("b")
    beneath.fault, beneath.takes_effect = None, False

    async with leader.watching():
        await leader.wait_back()

    assert leader.held() == {}


async def test_an_emptied_redis_waits_for_its_leader(leader: Leader) -> None:
    await leader.commit("a")
    leader.beneath.model.flush()

    with pytest.raises(NoFence):
        await leader.commit("b", request_id="r2")
    assert leader.store.status().state is StoreState.NEEDS_SEED

    await leader.store.seed_fence(5)

    assert leader.store.status().is_up
    assert leader.held() == {"a": "r1"}
    assert await leader.commit("b", request_id="r3") == [Reserved]


async def test_an_emptied_redis_is_noticed_when_nothing_happens(leader: Leader) -> None:
    leader.beneath.model.flush()

    await leader.wait_state(StoreState.NEEDS_SEED)


async def test_a_lost_redis_is_noticed_when_nothing_happens(leader: Leader) -> None:
    leader.beneath.fault = SILENCE

    assert (await leader.wait_state(StoreState.LOST)).reason == str(SILENCE)


async def test_a_redis_that_comes_back_empty_waits_for_its_leader(leader: Leader) -> None:
    leader.beneath.fault = SILENCE
    await leader.commit("a")
    leader.beneath.model.flush()
    leader.beneath.fault = None

    await leader.wait_state(StoreState.NEEDS_SEED)
    await leader.store.seed_fence(5)

    assert leader.held() == {"a": "r1"}


async def test_a_redis_lost_while_it_is_seeded_is_lost(leader: Leader) -> None:
    leader.beneath.model.flush()
    await leader.wait_state(StoreState.NEEDS_SEED)
    leader.beneath.fault = SILENCE

    await leader.store.seed_fence(5)

    assert leader.store.status().state is StoreState.LOST


async def test_a_redis_that_answers_but_refuses_to_write_is_not_back(leader: Leader) -> None:
    leader.beneath.fault, leader.beneath.pings = FULL, True
    await leader.store.live(fence=5)

    async with asyncio.timeout(PATIENCE_SECONDS):
        while leader.beneath.pinged < 3:
            await asyncio.sleep(0.001)

    assert leader.states == [StoreState.UP, StoreState.LOST]


async def test_a_leader_with_a_new_lease_raises_its_fence_and_loses_nothing(
    beneath: FaultyStore,
) -> None:
    # It began while Redis was lost, so it could not know that fence 5 had been used.
    beneath.fault = SILENCE
    leader = Leader(beneath)
    await leader.store.live(fence=1)
    await leader.commit("a", fence=1)
    async with leader.watching():
        beneath.fault = None
        await leader.wait_back()

    with pytest.raises(FenceTooLow) as refusal:
        await leader.commit("b", request_id="r2", fence=1)
    assert refusal.value.highest == 5

    assert await leader.commit("b", request_id="r3", fence=6) == [Reserved]
    assert leader.held() == {"a": "r1", "b": "r3"}


async def test_a_leadership_that_continues_under_a_higher_fence_restores_what_redis_has_lost(
    leader: Leader,
) -> None:
    """A Redis that is killed may come back without its last second, and still know the fence."""
    await leader.commit("a", "b")
    leader.beneath.model.reservations.pop(make_id("a"))

    found = await leader.store.live(fence=6)

    assert [one.key.name for one in found] == ["a", "b"]
    assert leader.held() == {"a": "r1", "b": "r1"}


async def test_a_deposed_leader_gets_an_error(leader: Leader) -> None:
    await leader.beneath.model.live(fence=6)

    with pytest.raises(FenceTooLow):
        await leader.commit("a")
    with pytest.raises(FenceTooLow):
        await leader.store.confirm([make_id("a")], fence=5)


async def test_a_request_is_answered_once_whatever_becomes_of_redis(leader: Leader) -> None:
    await leader.commit("a")
    leader.beneath.fault = SILENCE

    assert await leader.commit("a") == [Reserved]
    assert leader.beneath.commits == 1


async def test_commits_at_once_never_reserve_twice(leader: Leader) -> None:
    answers = await asyncio.gather(*(leader.commit("a", request_id=f"r{n}") for n in range(20)))

    assert sorted(kind.__name__ for (kind,) in answers) == ["Lost"] * 19 + ["Reserved"]
