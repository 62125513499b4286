"""One sequence of commands for every store: after each step the store under test and the model agree.

`StoreMachine` draws commits, repeats of earlier ones, confirmations, write-backs, writes of the plan (in
order, late and out of turn), leaders coming and going, and the accidents that happen to a Redis: emptied,
its scripts or old requests forgotten, a value garbled, a key taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from redis.asyncio import Redis

from queues.reservations.memory_reservations import InMemoryReservationStore
from queues.reservations.plan import PlanTable, PlanVersion, PlanWrite, Store
from queues.reservations.reservations import (
    FenceTooLow,
    QuotaReservation,
    ReservationError,
    ReservationId,
)
from queues.store.keys import Keys, to_field
from queues.store.redis_store import RedisReservationStore
from tests.queues.reservation_builders import make_entry, make_id, make_reservation

NAMES = ("a", "b", "c", "d")
# A call's fence as its distance from the highest one seen: most callers lead, some did, some are about to.
STEPS = st.sampled_from([0, 0, 0, 0, 0, 0, 0, -1, 1])
SUBSETS = st.lists(st.sampled_from(NAMES), unique=True)
CYCLES = st.sampled_from([["a"], ["b"], ["a", "b"], ["b", "c", "d"], []])
# What a write of the plan builds upon: as a rule the version that is there.
UPON = st.sampled_from(["present", "present", "present", "nothing", "another"])
TABLES = st.sampled_from(list(PlanTable))
ROWS = st.dictionaries(
    TABLES,
    st.dictionaries(st.sampled_from(NAMES), st.none() | st.binary(max_size=20), max_size=3),
    max_size=3,
)
WRITES = st.binary(max_size=40) | st.sampled_from([b"", b"\n", b"1 2 r\n", b"\x00\xff", b"9" * 20_000])


class Subject(Protocol):
    """A store under test and the accidents that may happen to it."""

    @property
    def store(self) -> Store:
        """The store."""

    async def flush(self) -> None:
        """Lose everything."""

    async def forget_requests(self) -> None:
        """Forget which requests were made."""

    async def forget_scripts(self) -> None:
        """Forget the scripts, as a restart does."""

    async def garble(self, id_: ReservationId) -> None:
        """Put something unreadable in the place of a reservation."""

    async def usurp(self, table: PlanTable) -> None:
        """Put something that is no table under a table's key."""


class MemorySubject:
    """The model itself."""

    def __init__(self) -> None:
        self.store = InMemoryReservationStore()

    async def flush(self) -> None:
        """Lose everything."""
        self.store.flush()

    async def forget_requests(self) -> None:
        """Forget all requests."""
        self.store._answers.clear()

    async def forget_scripts(self) -> None:
        """Do nothing: it has none."""

    async def garble(self, id_: ReservationId) -> None:
        """Lose the value: the model has no bytes to garble."""
        self.store.reservations.pop(id_, None)

    async def usurp(self, table: PlanTable) -> None:
        """Lose the table, and know that its key is taken."""
        self.store.tables[table].clear()
        self.store.foreign.add(table)


class RedisSubject:
    """The store on a Redis of any make."""

    def __init__(self, store: RedisReservationStore, client: Redis) -> None:
        self.store = store
        self._client = client
        self._keys = Keys("default")

    async def flush(self) -> None:
        """Delete all keys."""
        await self._client.flushdb()

    async def forget_requests(self) -> None:
        """Let all request keys expire."""
        async for key in self._client.scan_iter(self._keys.request("*")):
            await self._client.delete(key)

    async def forget_scripts(self) -> None:
        """Drop the script cache."""
        await self._client.script_flush()

    async def garble(self, id_: ReservationId) -> None:
        """Write an unreadable value."""
        await self._client.hset(self._keys.reservations, to_field(id_), "garbage")

    async def usurp(self, table: PlanTable) -> None:
        """Write a string over the table's key."""
        await self._client.set(self._keys.table(table), "garbage")


class StoreMachine(RuleBasedStateMachine):
    """Drives the model and one other store through the same commands."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self.accidents = MemorySubject()
        self.model = self.accidents.store
        self.subject = self._await(self.make_subject())
        self._made: list[tuple[tuple[QuotaReservation, ...], int, str]] = []
        self._written: list[tuple[PlanWrite, int]] = []

    async def make_subject(self) -> Subject:
        """Return the store to compare with the model."""
        raise NotImplementedError

    def teardown(self) -> None:
        """Close the store and the loop that it lived on."""
        self._await(self.subject.store.close())
        self._runner.close()

    @initialize()
    def begin(self) -> None:
        """Start from an empty store that was shown fence 5."""
        self._await(self.subject.flush())
        self._both(lambda store: store.seed_fence(5))

    @rule(names=CYCLES, step=STEPS, write=WRITES, at=st.integers(1, 3))
    def commit(self, names: list[str], step: int, write: bytes, at: int) -> None:
        """Reserve for a cycle."""
        request_id, fence = f"r{len(self._made)}", self._fence(step)
        cycle = tuple(
            make_reservation(name, request_id=request_id, fence=fence, write=write, reserved_at=float(at))
            for name in names
        )
        self._made.append((cycle, fence, request_id))
        self._commit(*self._made[-1])

    @precondition(lambda self: self._made)
    @rule(back=st.integers(1, 3), is_forgotten=st.booleans())
    def repeat(self, back: int, is_forgotten: bool) -> None:
        """Send one of the last commits again; perhaps so late that all requests are forgotten."""
        if is_forgotten:
            self._befall(lambda subject: subject.forget_requests())
        self._commit(*self._made[-back:][0])

    @rule(names=SUBSETS, step=STEPS)
    def confirm(self, names: list[str], step: int) -> None:
        """Say that the cluster shows them."""
        fence = self._fence(step)
        self._both(lambda store: store.confirm([make_id(name) for name in names], fence=fence))

    @rule(names=SUBSETS, step=STEPS)
    def release(self, names: list[str], step: int) -> None:
        """Withdraw decisions."""
        fence = self._fence(step)
        self._both(lambda store: store.release([make_id(name) for name in names], fence=fence))

    @rule(held=SUBSETS, gone=SUBSETS, step=STEPS)
    def restore(self, held: list[str], gone: list[str], step: int) -> None:
        """Write back what was decided without the store."""
        fence = self._fence(step)
        values = [make_reservation(name, request_id="restored", fence=fence) for name in held]
        ids = [make_id(name) for name in gone if name not in held]
        self._both(lambda store: store.restore(values, ids, fence=fence))

    @rule(step=STEPS)
    def take_over(self, step: int) -> None:
        """Read what is live, as a new leader does."""
        fence = self._fence(step)
        self._both(lambda store: store.live(fence=fence))

    @rule(step=STEPS)
    def seed(self, step: int) -> None:
        """Seed the fence."""
        fence = self._fence(step)
        self._both(lambda store: store.seed_fence(fence))

    @rule(life=st.sampled_from(["1", "2"]), step=STEPS)
    def vouch(self, life: str, step: int) -> None:
        """Vouch for the present life or another."""
        fence = self._fence(step)
        self._both(lambda store: store.vouch(life, fence=fence))

    @rule(rows=ROWS, upon=UPON, step=STEPS)
    def write_plan(self, rows: dict[PlanTable, dict[str, bytes | None]], upon: str, step: int) -> None:
        """Change rows of the plan, upon the version that is there, another one, or none (a fresh plan)."""
        fence = self._fence(step)
        after = {"present": self.model.version, "nothing": None, "another": PlanVersion(fence, 9999)}[upon]
        version = PlanVersion(fence, len(self._written) + 1)
        self._written.append((PlanWrite(version=version, after=after, rows=rows), fence))
        self._write_plan(*self._written[-1])

    @precondition(lambda self: self._written)
    @rule(back=st.integers(1, 3))
    def repeat_plan(self, back: int) -> None:
        """One of the last writes of the plan arrives again, or late."""
        self._write_plan(*self._written[-back:][0])

    @rule(table=TABLES)
    def usurp(self, table: PlanTable) -> None:
        """Another program takes a table's key."""
        self._befall(lambda subject: subject.usurp(table))

    @rule()
    def flush(self) -> None:
        """Lose everything."""
        self._befall(lambda subject: subject.flush())

    @rule()
    def forget_scripts(self) -> None:
        """Forget the scripts: nothing may change."""
        self._befall(lambda subject: subject.forget_scripts())

    @rule(name=st.sampled_from(NAMES))
    def garble(self, name: str) -> None:
        """Garble a value: whatever was there counts as not there."""
        self._befall(lambda subject: subject.garble(make_id(name)))

    @invariant()
    def agree(self) -> None:
        """Compare all that can be read, and let the model check itself."""
        self.model.validate()
        self._both(lambda store: store.highest_fence())
        self._both(lambda store: store.life())
        self._both(lambda store: store.live(fence=self.model.fence or 1))
        self._both(lambda store: store.decisions(limit=1000))
        self._both(lambda store: store.plan_state())
        self._both(lambda store: store.read_plan(list(PlanTable)))

    def _fence(self, step: int) -> int:
        return (self.model.fence or 5) + step

    def _commit(self, cycle: tuple[QuotaReservation, ...], fence: int, request_id: str) -> None:
        log = [make_entry(r.key.name, message=request_id, fence=fence) for r in cycle]
        log.append(make_entry("other", what="Evict", message=request_id, fence=fence))
        self._both(lambda store: store.commit(cycle, fence=fence, request_id=request_id, log=log))

    def _write_plan(self, write: PlanWrite, fence: int) -> None:
        self._both(lambda store: store.write_plan(write, fence=fence))

    def _both(self, call: Callable[[Store], Awaitable[Any]]) -> None:
        want = self._await(_outcome(call(self.model)))
        assert self._await(_outcome(call(self.subject.store))) == want

    def _befall(self, accident: Callable[[Subject], Awaitable[None]]) -> None:
        self._await(accident(self.accidents))
        self._await(accident(self.subject))

    def _await(self, awaitable: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await awaitable

        return self._runner.run(wait())


async def _outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except FenceTooLow as error:
        return type(error), error.fence, error.highest
    except ReservationError as error:
        return type(error), str(error)
