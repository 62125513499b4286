"""The store as a leader uses it: admission continues while Redis is lost, and missed writes are written back.

Safety does not depend on Redis: every write to the cluster is guarded by the lease and by the resourceVersion
that the decision was made on. Redis records for a successor what a dead leader was about to do. While Redis
is lost only that record is missing. An installation that always requires it sets `require_store`.

One instance serves one leadership, with those that continue it under a higher fence. It remembers each
reservation that Redis holds for that leadership, and uses its own memory while Redis is lost:

    state        commit             confirm, release   live              left for
    -----------  -----------------  -----------------  ----------------  ---------------------------------
    UP           Redis              Redis              Redis             LOST: no answer, or refused
                                                                         NEEDS_SEED: NoFence
    LOST         memory, unfenced¹  memory             memory¹           UP: a probe wrote everything back
                                                                         NEEDS_SEED: NoFence
    NEEDS_SEED   raises NoFence     memory             raises NoFence    UP: `seed_fence`
                                                                         LOST: no answer, or refused
    ¹ with `require_store`, and until `may_decide_alone`: raises StoreUnreachable

A Redis that returns empty may have failed over to a replica that never received the fence. Only the lease
then shows which process leads. In NEEDS_SEED nothing is therefore decided until the leader, having renewed
its lease after the state changed to it, calls `seed_fence`. Everything in memory is then written back.

A store may also have lost its last writes: it restarted (`appendfsync everysec`) or a replica replaced it.
Its life (`ServerLife`) is then another than the one for which a leader last vouched. A leader that was there
before writes back what it remembers and vouches for the new life. What a new leader makes of it is in
`queues.store.blindness`.

FenceTooLow always reaches the caller. A leader whose lease numbering started again raises its number above
`FenceTooLow.highest` and continues with the new fence; pending writes are not lost.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum

from queues.reservations.memory_reservations import InMemoryReservationStore
from queues.reservations.plan import PlanState, PlanTable, PlanWrite, Store, StoredPlan
from queues.reservations.reservations import (
    CorruptValue,
    FenceTooLow,
    LoggedDecision,
    Lost,
    NoFence,
    QuotaReservation,
    ReservationId,
    Reserved,
    ServerLife,
    StoreRefused,
    StoreUnreachable,
    check_commit,
    logged,
)
from queues.store.write_back import WriteBack

# The first and the longest wait between two probes of a lost store: a restarted Redis is noticed at once, and
# a dead one causes little load.
FIRST_PROBE_SECONDS = 0.1
LONGEST_PROBE_SECONDS = 5.0
# How often an idle store is checked: whether it answers, and whether it still knows the fence.
HEARTBEAT_SECONDS = 5.0


class StoreState(StrEnum):
    """The state of the store. The table is in the module's docstring."""

    UP = "Up"
    LOST = "Lost"
    NEEDS_SEED = "NeedsSeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """The store's state for metrics, conditions and logs.

    `reason` is the message of the latest error. `unwritten` counts Workloads whose reservation has yet to be
    written to Redis. `needs_recovery`: Redis was lost when this leadership began, so it has not read what its
    predecessor left there; call `live` once the store is UP. `is_recovered`: it has read that.
    """

    state: StoreState
    reason: str
    unwritten: int
    needs_recovery: bool
    is_recovered: bool

    @property
    def is_up(self) -> bool:
        """Whether decisions are being reserved in Redis: the gauge `berth_store_up`."""
        return self.state is StoreState.UP


class FailoverStore:
    """A `ReservationStore` on a store that may be lost, for one leadership. Plan calls are passed through.

    `run` must run beside it to notice loss and return. `on_change` is called after each change of state and
    after recovery, and must not raise. With `require_store`, admission stops while the store is lost.
    `may_decide_alone` is called before each decision without the store, and returns whether the next leader
    will know that there are such: until then none is made.
    """

    def __init__(
        self,
        store: Store,
        *,
        require_store: bool = False,
        on_change: Callable[[StoreStatus], None] = lambda _: None,
        may_decide_alone: Callable[[], bool] = lambda: True,
        first_probe_seconds: float = FIRST_PROBE_SECONDS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._store = store
        self._require_store = require_store
        self._on_change = on_change
        self._may_decide_alone = may_decide_alone
        self._first_probe_seconds = first_probe_seconds
        self._heartbeat_seconds = heartbeat_seconds
        #: What Redis holds, or should hold, for this leadership.
        self._memory = InMemoryReservationStore()
        # Redis checks fences. Memory accepts any fence until it has been presented one.
        self._memory.fence = 0
        self._write_back = WriteBack(store, self._memory)
        # A commit holds this throughout, and takes the lock of the write-back while it writes back.
        self._committing = asyncio.Lock()
        self._went_down = asyncio.Event()
        self._state = StoreState.UP
        self._reason = ""
        self._fence: int | None = None
        self._is_recovered = False

    def status(self) -> StoreStatus:
        """Return the present state as an immutable value."""
        return StoreStatus(
            state=self._state,
            reason=self._reason,
            unwritten=len(self._write_back),
            needs_recovery=self._fence is not None and not self._is_recovered,
            is_recovered=self._is_recovered,
        )

    async def run(self) -> None:
        """Monitor the store until cancelled: probe it while it is lost, otherwise check it periodically."""
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_seconds):
                    await self._went_down.wait()
            except TimeoutError:
                # Without a heartbeat, the loss of a Redis that died overnight would only be noticed by the
                # first Job of the morning.
                await self._check()
            else:
                await self._wait_back()

    async def commit(
        self,
        reservations: Sequence[QuotaReservation],
        *,
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision] = (),
    ) -> tuple[Reserved | Lost, ...]:
        """Reserve for a whole cycle, in Redis or, while it is lost, in memory.

        Raises FenceTooLow, NoFence (see NEEDS_SEED), and with `require_store` StoreUnreachable.
        """
        check_commit(reservations, fence=fence, request_id=request_id)
        # Commits run one at a time: `_reclaim` must not take another commit's reservations for leftovers.
        async with self._committing:
            self._fence = max(fence, self._fence or 0)
            # A known request is answered from memory in every state, because the caller has already acted
            # on its first answer.
            if self._memory.knows(request_id):
                return await self._memory.commit(reservations, fence=fence, request_id=request_id)
            if self._state is StoreState.UP:
                with self._noticing():
                    return await self._commit_in_store(reservations, fence, request_id, log)
                # Redis may have applied the call that timed out. It is to hold what memory holds, so every id
                # is written back. For an id that Redis does not hold this changes nothing.
                self._write_back.note(reservation.id for reservation in reservations)
            self._refuse_to_decide()
            if reservations and not self._may_decide_alone():
                raise StoreUnreachable(f"{self._reason}; nothing is admitted before the Lease says so")
            return await self._commit_in_memory(reservations, fence, request_id, log)

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations that the cluster shows; Redis follows when it can. Raises FenceTooLow."""
        await self.restore((), ids, fence=fence)

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations whose decision was withdrawn, in the same way."""
        await self.restore((), ids, fence=fence)

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Make `held` reserved and `gone` not reserved, in the same way."""
        self._fence = max(fence, self._fence or 0)
        # Memory first, because that cannot fail. Redis follows now or later.
        await self._memory.restore(held, gone, fence=fence)
        self._write_back.note((*(reservation.id for reservation in held), *gone))
        if self._state is StoreState.UP:
            # Neither error concerns the caller: the change is in memory and will be written back.
            with suppress(NoFence), self._noticing():
                await self._write_back.write(fence)

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Return all reservations: first what the predecessor left, later also those of this leadership.

        While Redis is lost the result comes from memory, and `needs_recovery` stays true until a call reaches
        Redis. Raises as `commit` does.
        """
        self._fence = max(fence, self._fence or 0)
        if self._state is StoreState.UP:
            with self._noticing():
                # A Redis that lost its last second has lost what only memory still knows.
                if self._is_recovered:
                    self._write_back.note_all()
                # Before anything is written: if the server restarts meanwhile, nothing vouches for it.
                life = await self._store.life()
                # Written back before reading; otherwise a reservation deleted in memory would be read again.
                await self._write_back.write(fence)
                found = await self._store.live(fence=fence)
                await self._memory.restore(found, (), fence=fence)
                self._is_recovered = True
                await self._vouch(life, fence)
                # `needs_recovery` is part of the status and has just become false.
                self._on_change(self.status())
                return found
        self._refuse_to_decide()
        return await self._memory.live(fence=fence)

    async def seed_fence(self, fence: int) -> None:
        """Give an emptied store its fence and then everything in memory. Raises FenceTooLow.

        The caller must have renewed its lease since the state became NEEDS_SEED. If the store is lost or
        emptied again meanwhile, the state becomes LOST or NEEDS_SEED; that is not an error.
        """
        self._fence = max(fence, self._fence or 0)
        with suppress(NoFence), self._noticing():
            await self._store.seed_fence(fence)
            # The store was empty, so it lacks everything that memory holds.
            self._write_back.note_all()
            await self._write_back.write(fence)
            self._come_up()

    async def highest_fence(self) -> int | None:
        """Return the highest fence that Redis knows; None where it knows none."""
        return await self._store.highest_fence()

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Return the last `limit` log entries, newest first: from Redis, or those since it was lost."""
        if self._state is StoreState.UP:
            return await self._store.decisions(limit=limit)
        # The log is lost with Redis. This process knows only the decisions that it has made since.
        return self._write_back.decisions(limit=limit)

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool | None:
        """Write the plan as `PlanStore.write_plan` does; None while Redis is lost.

        The write is not kept for later: the caller has the plan, and compares versions when Redis is back.
        """
        self._fence = max(fence, self._fence or 0)
        if self._state is StoreState.UP:
            with self._noticing():
                return await self._store.write_plan(write, fence=fence)
        return None

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan | None:
        """Return the content of these tables in Redis, None while it is lost."""
        if self._state is StoreState.UP:
            with self._noticing():
                return await self._store.read_plan(tables)
        return None

    async def plan_state(self) -> PlanState | None:
        """Return version and sizes of the stored plan, None while Redis is lost."""
        if self._state is StoreState.UP:
            with self._noticing():
                return await self._store.plan_state()
        return None

    async def ping(self) -> None:
        """Return when Redis answers."""
        await self._store.ping()

    async def close(self) -> None:
        """Close the underlying store. Reservations not yet written back are lost."""
        await self._store.close()

    async def _commit_in_store(
        self,
        reservations: Sequence[QuotaReservation],
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision],
    ) -> tuple[Reserved | Lost, ...]:
        # Before the commit: a Workload released earlier may be reserved again in this very cycle, and would
        # get Lost because of its own old reservation.
        await self._write_back.write(fence)
        answers = await self._store.commit(reservations, fence=fence, request_id=request_id, log=log)
        answers = await self._reclaim(reservations, answers, log)
        # After the answer: memory must not hold what is not certain.
        self._memory.adopt(reservations, answers, fence=fence, request_id=request_id)
        return answers

    async def _commit_in_memory(
        self,
        reservations: Sequence[QuotaReservation],
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision],
    ) -> tuple[Reserved | Lost, ...]:
        answers = await self._memory.commit(reservations, fence=fence, request_id=request_id)
        self._write_back.note(reservation.id for reservation in reservations)
        self._write_back.log(logged(log, reservations, answers))
        return answers

    async def _reclaim(
        self,
        reservations: Sequence[QuotaReservation],
        answers: tuple[Reserved | Lost, ...],
        log: Sequence[LoggedDecision],
    ) -> tuple[Reserved | Lost, ...]:
        """Reserve again what was Lost although no request holds it, and return the corrected answers.

        A call that timed out may take effect late, when Redis responds again. Its reservation
        belongs to this leadership, which does not know of it. It cannot belong to another, whose
        fence would have been refused.
        """
        known = self._memory.reservations
        stuck = {
            r.id: dataclasses.replace(r, request_id=f"{r.request_id}.again")
            for r, answer in zip(reservations, answers, strict=True)
            # Before recovery the holder may be the predecessor's reservation, which `live` has yet to return.
            if isinstance(answer, Lost) and self._is_recovered and r.id not in known
        }
        if not stuck:
            return answers
        fence, request_id = next((r.fence, r.request_id) for r in stuck.values())
        # Two calls are safe: no other process may write under this fence, and commits of
        # this one run one at a time.
        await self._store.release(tuple(stuck), fence=fence)
        entries = [entry for entry in log if (entry.key, entry.uid) in stuck]
        again = await self._store.commit(
            tuple(stuck.values()), fence=fence, request_id=request_id, log=entries
        )
        answers_again = dict(zip(stuck, again, strict=True))
        return tuple(answers_again.get(r.id, a) for r, a in zip(reservations, answers, strict=True))

    async def _check(self) -> None:
        """Check that an UP store answers and knows a fence, and correct what it holds."""
        if self._state is StoreState.UP:
            with suppress(NoFence), self._noticing():
                # An emptied Redis answers pings as before. Only the missing fence shows it.
                if await self._store.highest_fence() is None and self._fence is not None:
                    raise NoFence
                with suppress(FenceTooLow):
                    await self._agree()

    async def _agree(self) -> None:
        """Make Redis hold what memory holds.

        A commit that timed out may take effect after everything was written back. `_reclaim` corrects that
        when the same Workload is reserved again. Without this method, the reservation of a Workload that
        never is would stay until the next leader handles it.
        """
        # No commit may be in flight: its reservations are not in memory yet.
        async with self._committing:
            if self._fence is None or not self._is_recovered:
                return
            life = await self._store.life()
            found = {one.id for one in await self._store.live(fence=self._fence)}
            # The symmetric difference: what only Redis has is to be deleted, what only memory
            # has to be added.
            self._write_back.note(found ^ self._memory.reservations.keys())
            await self._write_back.write(self._fence)
            await self._vouch(life, self._fence)

    async def _vouch(self, life: ServerLife, fence: int) -> None:
        """Vouch for the life in which everything has just been written back, unless a leader has."""
        if not life.is_complete:
            await self._store.vouch(life.present, fence=fence)

    async def _wait_back(self) -> None:
        wait_seconds = self._first_probe_seconds
        while self._state is StoreState.LOST:
            await asyncio.sleep(wait_seconds)
            # Doubled up to five seconds: a Redis that is starting is not called continually, and one that is
            # back is noticed soon.
            wait_seconds = min(2 * wait_seconds, LONGEST_PROBE_SECONDS)
            await self._probe()

    async def _probe(self) -> None:
        with suppress(NoFence), self._noticing():
            await self._store.ping()
            # FenceTooLow is left to the caller of the next call: the store is back, the
            # leadership may not be.
            with suppress(FenceTooLow):
                if self._fence is not None:
                    # `always`: a Redis that answers pings but accepts no writes (a full disk,
                    # a replica) is still lost.
                    await self._write_back.write(self._fence, always=True)
            self._come_up()

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Update the state from errors of the calls within: suppress those of a lost store, raise others."""
        try:
            yield
        except NoFence as error:
            self._need_seed(error)
            raise
        # CorruptValue too: a key that holds a foreign value cannot be used until that value is deleted.
        except (StoreUnreachable, StoreRefused, CorruptValue) as error:
            self._fall_to(StoreState.LOST, error)

    def _refuse_to_decide(self) -> None:
        if self._state is StoreState.NEEDS_SEED:
            raise NoFence
        # The reason is part of the message, because it tells an operator what is wrong with Redis.
        if self._require_store:
            raise StoreUnreachable(f"{self._reason}; nothing is admitted meanwhile, as --require-store asks")

    def _need_seed(self, error: NoFence) -> None:
        # Everything that was written before is gone.
        self._write_back.note_all()
        self._fall_to(StoreState.NEEDS_SEED, error)

    def _fall_to(self, state: StoreState, error: Exception) -> None:
        self._reason = str(error)
        if self._state is state:
            return
        self._state = state
        # A store that waits for its seed answers, so it is not probed.
        if state is StoreState.LOST:
            self._went_down.set()
        else:
            self._went_down.clear()
        self._on_change(self.status())

    def _come_up(self) -> None:
        self._state, self._reason = StoreState.UP, ""
        self._went_down.clear()
        self._on_change(self.status())
