"""The store as a leader uses it: admission goes on while Redis is lost, and what it missed is written back.

Redis is not needed for safety: every write to the cluster is guarded by the lease and by the version that
the decision saw. It is needed to tell a successor what a dead leader was about to do. So a lost Redis costs
that knowledge for a while, and nothing else; an installation that wants it always asks for `require_store`.

One of these serves one leadership. It remembers each reservation that Redis holds for it, and decides on its
own memory when Redis is gone:

    state        commit             confirm, release   live              left for
    -----------  -----------------  -----------------  ----------------  ---------------------------------
    UP           Redis              Redis              Redis             LOST: no answer, or refused
                                                                         NEEDS_SEED: NoFence
    LOST         memory, unfenced¹  memory             memory¹           UP: a probe wrote back what waited
                                                                         NEEDS_SEED: NoFence
    NEEDS_SEED   raises NoFence     memory             raises NoFence    UP: `seed_fence`
                                                                         LOST: no answer, or refused
    ¹ with `require_store`: raises StoreUnreachable

A Redis that comes back empty may be one that failed over to a replica which never knew the fence. Who leads
can then only be learned from the lease: so in NEEDS_SEED nothing is decided until the leader, having renewed
its lease after `needs_seed` became true, calls `seed_fence`. All that memory holds is then written back.

FenceTooLow always reaches the caller. A leader whose own lease number started anew raises it above
`FenceTooLow.highest` and goes on with the new fence; nothing that waits to be written back is lost by that.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

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
    StoreRefused,
    StoreUnreachable,
    check_commit,
    logged,
)

# The first and the longest wait between two probes of a lost store: a restarted Redis is noticed at once, a
# dead one costs next to nothing.
FIRST_PROBE_SECONDS = 0.1
LONGEST_PROBE_SECONDS = 5.0
# How often a store that nobody talks to is asked whether it is still there, and still knows the fence.
HEARTBEAT_SECONDS = 5.0
# Decisions made without the store that are kept for its log; older ones are dropped, the log is expendable.
LOG_BACKLOG = 2_000


class StoreState(StrEnum):
    """Where the store stands; the table is at the head of the module."""

    UP = "Up"
    LOST = "Lost"
    NEEDS_SEED = "NeedsSeed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """The store's state as metrics, conditions and logs show it.

    `lost_since` in Unix seconds, None while UP; `reason` is the sentence of the latest error. `unwritten`
    counts Workloads whose reservation Redis has yet to be told of. `needs_recovery`: this leadership has not
    read what its predecessor left in Redis, because Redis was lost when it began; call `live` once it is UP.
    """

    state: StoreState
    lost_since: float | None
    reason: str
    unwritten: int
    needs_recovery: bool

    @property
    def is_up(self) -> bool:
        """Whether decisions are being reserved in Redis: the gauge `berth_store_up`."""
        return self.state is StoreState.UP


class FailoverStore:
    """A `ReservationStore` on a store that may be lost, for one leadership; the plan only passes through.

    `run` must run beside it: it notices loss and return. `on_change` is called after each change of state,
    and after recovery; it must not raise. `require_store` stops admitting instead of going on without the
    store. `clock` gives Unix seconds.
    """

    def __init__(
        self,
        store: Store,
        *,
        require_store: bool = False,
        on_change: Callable[[StoreStatus], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
        first_probe_seconds: float = FIRST_PROBE_SECONDS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._store = store
        self._require_store = require_store
        self._on_change = on_change
        self._clock = clock
        self._first_probe_seconds = first_probe_seconds
        self._heartbeat_seconds = heartbeat_seconds
        #: What Redis holds, or should hold, for this leadership.
        self._memory = InMemoryReservationStore()
        # Fences are judged by Redis; memory accepts any until it has been shown one.
        self._memory.fence = 0
        #: Ids whose reservation in Redis may differ from that in memory.
        # By id and not as a list of calls: what a Workload's reservation is now is all that
        # Redis needs to hear.
        self._unwritten: set[ReservationId] = set()
        self._backlog: deque[LoggedDecision] = deque(maxlen=LOG_BACKLOG)
        # Two locks: a commit holds the first throughout and takes the second for what it writes back.
        self._committing = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._went_down = asyncio.Event()
        self._state = StoreState.UP
        self._lost_since: float | None = None
        self._reason = ""
        self._fence: int | None = None
        self._is_recovered = False

    @property
    def needs_seed(self) -> bool:
        """Whether the store lost its fence: renew the lease after now, then call `seed_fence`."""
        return self._state is StoreState.NEEDS_SEED

    def status(self) -> StoreStatus:
        """Return the state, frozen."""
        return StoreStatus(
            state=self._state,
            lost_since=self._lost_since,
            reason=self._reason,
            unwritten=len(self._unwritten),
            needs_recovery=self._fence is not None and not self._is_recovered,
        )

    async def run(self) -> None:
        """Watch over the store until cancelled: probe it while it is lost, else ask for it now and then."""
        while True:
            try:
                async with asyncio.timeout(self._heartbeat_seconds):
                    await self._went_down.wait()
            except TimeoutError:
                # Silence of nobody's making: without a heartbeat a Redis that died at night is
                # noticed by the first Job of the morning.
                await self._ask()
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

        Raises FenceTooLow, NoFence (see `needs_seed`), and with `require_store` StoreUnreachable.
        """
        check_commit(reservations, fence=fence, request_id=request_id)
        # One at a time, as cycles come anyway: `_reclaim` may not take one commit's answers for leftovers.
        async with self._committing:
            self._fence = max(fence, self._fence or 0)
            # Answered from memory whatever the state: the first answer was given, and others
            # have acted on it.
            if self._memory.knows(request_id):
                return await self._memory.commit(reservations, fence=fence, request_id=request_id)
            if self._state is StoreState.UP:
                with self._noticing():
                    return await self._commit_in_store(reservations, fence, request_id, log)
                # Redis may have taken the call that was given up on. It shall hold what memory holds.
                # Also those that it did not take: to say that they are not there costs nothing.
                self._unwritten.update(reservation.id for reservation in reservations)
            self._refuse_to_decide()
            return await self._commit_in_memory(reservations, fence, request_id, log)

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations that the cluster shows; Redis hears of it when it can. Raises FenceTooLow."""
        await self.restore((), ids, fence=fence)

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations whose decision was withdrawn, likewise."""
        await self.restore((), ids, fence=fence)

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Make it so that `held` are reserved and `gone` are not, likewise."""
        self._fence = max(fence, self._fence or 0)
        # Memory first, which cannot fail; Redis follows now or later.
        await self._memory.restore(held, gone, fence=fence)
        self._unwritten.update((reservation.id for reservation in held), gone)
        if self._state is StoreState.UP:
            # Neither is the caller's concern: what was asked for stands in memory and will be told.
            with suppress(NoFence), self._noticing():
                await self._write_back(fence)

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Return all reservations: at first what the predecessor left, later this leadership's own as well.

        While Redis is lost that is what memory holds, and `needs_recovery` stays true until a call succeeds.
        Raises as `commit` does.
        """
        self._fence = max(fence, self._fence or 0)
        if self._state is StoreState.UP:
            with self._noticing():
                # Before reading: what Redis has not heard yet would come back as gone.
                await self._write_back(fence)
                found = await self._store.live(fence=fence)
                await self._memory.restore(found, (), fence=fence)
                self._is_recovered = True
                # `needs_recovery` is part of the status, and has just become false.
                self._on_change(self.status())
                return found
        self._refuse_to_decide()
        return await self._memory.live(fence=fence)

    async def seed_fence(self, fence: int) -> None:
        """Give an emptied store its fence, then all that memory holds. Raises FenceTooLow.

        The caller has renewed its lease since `needs_seed` became true. A store that is lost or emptied once
        more meanwhile is LOST or NEEDS_SEED again; that is no error.
        """
        self._fence = max(fence, self._fence or 0)
        with suppress(NoFence), self._noticing():
            await self._store.seed_fence(fence)
            # The store was empty, so everything that memory holds is news to it.
            self._unwritten.update(self._memory.reservations)
            await self._write_back(fence)
            self._come_up()

    async def highest_fence(self) -> int | None:
        """Return the highest fence that Redis knows; None when it knows none."""
        return await self._store.highest_fence()

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Return the last `limit` log entries, the newest first: Redis's, or those since it was lost."""
        if self._state is StoreState.UP:
            return await self._store.decisions(limit=limit)
        # Redis is gone and with it its log; the answer is what this process has decided since.
        return tuple(reversed(self._backlog))[:limit]

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool | None:
        """Write to the plan as `PlanStore.write_plan` does; None while Redis is lost.

        It is not kept for later: the caller knows its plan, and compares when Redis is back.
        """
        self._fence = max(fence, self._fence or 0)
        if self._state is StoreState.UP:
            with self._noticing():
                return await self._store.write_plan(write, fence=fence)
        return None

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan | None:
        """Return what Redis holds of these tables, None while it is lost."""
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
        """Close the store beneath; reservations that it was not told of are forgotten."""
        await self._store.close()

    async def _commit_in_store(
        self,
        reservations: Sequence[QuotaReservation],
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision],
    ) -> tuple[Reserved | Lost, ...]:
        # Before the commit: a released Workload may come again in this very cycle, and would
        # be Lost to itself.
        await self._write_back(fence)
        answers = await self._store.commit(reservations, fence=fence, request_id=request_id, log=log)
        answers = await self._reclaim(reservations, answers, log)
        # After the answer: what is not certain is not in memory.
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
        self._unwritten.update(reservation.id for reservation in reservations)
        self._backlog.extend(logged(log, reservations, answers))
        return answers

    async def _reclaim(
        self,
        reservations: Sequence[QuotaReservation],
        answers: tuple[Reserved | Lost, ...],
        log: Sequence[LoggedDecision],
    ) -> tuple[Reserved | Lost, ...]:
        """Reserve anew what was Lost to nobody, and return the answers with these put right.

        A call that was given up on may take effect late, when Redis wakes. Its reservation is then of this
        leadership, which knows nothing of it; and of no other, whose fence would have been refused.
        """
        known = self._memory.reservations
        stuck = {
            r.id: dataclasses.replace(r, request_id=f"{r.request_id}.again")
            for r, answer in zip(reservations, answers, strict=True)
            # Before recovery the holder may be the predecessor's, which `live` has yet to show.
            if isinstance(answer, Lost) and self._is_recovered and r.id not in known
        }
        if not stuck:
            return answers
        fence, request_id = next((r.fence, r.request_id) for r in stuck.values())
        # Two calls, and that is safe: nobody else may write under this fence, and our own commits
        # are one at a time.
        await self._store.release(tuple(stuck), fence=fence)
        entries = [entry for entry in log if (entry.key, entry.uid) in stuck]
        again = await self._store.commit(
            tuple(stuck.values()), fence=fence, request_id=request_id, log=entries
        )
        answers_again = dict(zip(stuck, again, strict=True))
        return tuple(answers_again.get(r.id, a) for r, a in zip(reservations, answers, strict=True))

    async def _write_back(self, fence: int, *, always: bool = False) -> None:
        """Tell Redis what it has not heard; `always`: call it even when that is nothing, as a probe.

        Raises what the store raises, and then nothing is forgotten.
        """
        if not (self._unwritten or always):
            return
        async with self._writing:
            # Again while news came during the call; in the end Redis holds what memory holds at that moment.
            while self._unwritten or always:
                await self._write_once(fence)
                always = False
            await self._write_log(fence)

    async def _write_once(self, fence: int) -> None:
        # What changes during the call is noted in the new set, and written in the next turn.
        ids, self._unwritten = self._unwritten, set()
        reservations = self._memory.reservations
        held = [reservations[id_] for id_ in sorted(ids) if id_ in reservations]
        gone = [id_ for id_ in sorted(ids) if id_ not in reservations]
        try:
            await self._store.restore(held, gone, fence=fence)
        except BaseException:
            self._unwritten |= ids
            raise

    async def _write_log(self, fence: int) -> None:
        # As above: what is decided during the call belongs to the next one.
        entries, self._backlog = self._backlog, deque(maxlen=LOG_BACKLOG)
        if not entries:
            return
        try:
            # An id of its own each time: entries whose answer is lost are told twice, which a log can bear.
            await self._store.commit((), fence=fence, request_id=f"log-{uuid4()}", log=tuple(entries))
        except BaseException:
            self._backlog = deque((*entries, *self._backlog), maxlen=LOG_BACKLOG)
            raise

    async def _ask(self) -> None:
        """Ask a store that is UP whether it still is, and still knows a fence; put right what it holds."""
        if self._state is StoreState.UP:
            with suppress(NoFence), self._noticing():
                # A Redis that was emptied answers pings as gladly as before; only the missing fence shows it.
                if await self._store.highest_fence() is None and self._fence is not None:
                    raise NoFence
                with suppress(FenceTooLow):
                    await self._agree()

    async def _agree(self) -> None:
        """Make Redis hold what memory holds.

        A commit that was given up on may take effect after all was written back. `_reclaim` mends that when
        the same Workload comes again; one that never does would stay reserved until the next leader judges
        it.
        """
        # No commit may be under way: what it has reserved is not in memory yet.
        async with self._committing:
            if self._fence is None or not self._is_recovered:
                return
            found = {one.id for one in await self._store.live(fence=self._fence)}
            # The symmetric difference: what is in Redis only has to go, what is in memory only has to come.
            self._unwritten |= found ^ self._memory.reservations.keys()
            await self._write_back(self._fence)

    async def _wait_back(self) -> None:
        wait_seconds = self._first_probe_seconds
        while self._state is StoreState.LOST:
            await asyncio.sleep(wait_seconds)
            # Doubled up to five seconds: a Redis that is starting is not asked again and again, one
            # that is back is soon noticed.
            wait_seconds = min(2 * wait_seconds, LONGEST_PROBE_SECONDS)
            await self._probe()

    async def _probe(self) -> None:
        with suppress(NoFence), self._noticing():
            await self._store.ping()
            # FenceTooLow is for the caller of the next call: the store is there, the leadership may not be.
            with suppress(FenceTooLow):
                if self._fence is not None:
                    # `always`: a Redis that answers pings but takes no writes (a full disk, a
                    # replica) is still lost.
                    await self._write_back(self._fence, always=True)
            self._come_up()

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Notice what calls tell of the store's state: end quietly when it is lost, pass on the rest."""
        try:
            yield
        except NoFence as error:
            self._need_seed(error)
            raise
        # CorruptValue too: a key of ours that holds something else cannot be worked with
        # until somebody removes it.
        except (StoreUnreachable, StoreRefused, CorruptValue) as error:
            self._lose(error)

    def _refuse_to_decide(self) -> None:
        if self._state is StoreState.NEEDS_SEED:
            raise NoFence
        # The reason goes along: who is told that nothing is admitted wants to know what is wrong with Redis.
        if self._require_store:
            raise StoreUnreachable(f"{self._reason}; nothing is admitted meanwhile, as --require-store asks")

    def _lose(self, error: Exception) -> None:
        self._fall_to(StoreState.LOST, error)

    def _need_seed(self, error: NoFence) -> None:
        # Nothing of what was written is there any more.
        self._unwritten.update(self._memory.reservations)
        self._fall_to(StoreState.NEEDS_SEED, error)

    def _fall_to(self, state: StoreState, error: Exception) -> None:
        self._reason = str(error)
        if self._state is state:
            return
        self._state = state
        # From the first loss on: going from LOST to NEEDS_SEED is not being back.
        self._lost_since = self._lost_since or self._clock()
        # A store that waits for its seed answers: there is nothing to probe for.
        if state is StoreState.LOST:
            self._went_down.set()
        else:
            self._went_down.clear()
        self._on_change(self.status())

    def _come_up(self) -> None:
        self._state, self._lost_since, self._reason = StoreState.UP, None, ""
        self._went_down.clear()
        self._on_change(self.status())
