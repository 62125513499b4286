"""Carrying out the verdicts on the reservations that a new leader finds.

`admission.reconcile.reservation_recovery` gives the verdicts. Before a reservation is replayed, its quota is
counted here: the leader that made it may have died after giving the quota to another Workload, and nothing
recorded that. A reservation that does not fit is released like a stale one. What is replayed is written
again from the Workload as the cluster shows it: only the chosen flavors, pods and domains are taken from the
stored bytes, because another program may have written those. A reservation that can be neither replayed nor
released, because the API server refuses every write on that Workload, keeps its quota and is handed to the
term, which keeps trying.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from admission.controller.runtime.logs import Log
from admission.controller.writer.executor import Executor
from admission.controller.writer.fencing import fence_write, is_fenced_off, refenced
from admission.controller.writer.write_order import Moot, Refused, Result, WriteOrder, Written
from admission.decisions.api_writes import Write
from admission.decisions.decision import Admit, DecisionId
from admission.reconcile.reservation_recovery import RecoveryVerdict, is_known, verdict_of
from api.workload import Workload, WorkloadKey
from queues.reservations.reservations import QuotaReservation, ReservationStore

log = Log("berth.leader")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownState:
    """What recovery needs from the control loop, the one task that owns the state.

    `look_up` returns a Workload and its bytes as of a list that began after the lease was won, or
    newer. `to_workload` parses bytes (None: unreadable). `adopt` counts the quota of the given
    Workload, `always` or only where a cycle could decide the same (None: it could not), and `forget` takes
    that back. `render` gives the write of an admission onto these bytes. `finished` receives every result.
    """

    look_up: Callable[[WorkloadKey], tuple[Workload, bytes] | None]
    to_workload: Callable[[bytes], Workload | None]
    adopt: Callable[[Workload, bool], Awaitable[Admit | None]]
    forget: Callable[[DecisionId], None]
    render: Callable[[Admit, bytes], Write]
    finished: Callable[[Write, Result], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A verdict. `adopted` is what is counted for it and `replay` its write, None where nothing is."""

    verdict: RecoveryVerdict
    adopted: Admit | None = None
    replay: Write | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredReservation:
    """A reservation that cannot be released: its write may still be stored on version `may_land_on`."""

    decision: DecisionId
    may_land_on: str


class ReservationRecovery:
    """Carries out the verdicts. `decided_without_store`: see `reservation_recovery.is_known`."""

    def __init__(
        self,
        executor: Executor,
        store: ReservationStore,
        state: KnownState,
        *,
        fence: int,
        decided_without_store: bool = False,
    ) -> None:
        self._executor = executor
        self._store = store
        self._state = state
        self._fence = fence
        self._decided_without_store = decided_without_store
        self._kept: list[RecoveredReservation] = []

    async def run(self) -> tuple[RecoveredReservation, ...]:
        """Make store and cluster agree; return the reservations that are kept. Raises the store's errors."""
        # `live` returns the oldest reservation first.
        found = await self._store.live(fence=self._fence)
        # One after the other, the oldest first: each is counted before the next is fitted beside it.
        judged = [(reservation, await self._judge(reservation)) for reservation in found]
        # In parallel: each waits for the API server, and they do not depend on each other.
        are_confirmed = await asyncio.gather(*(self._settle(*one) for one in judged))
        kept = {(one.decision.key, one.decision.uid) for one in self._kept}
        confirmed = [one.id for one, is_shown in zip(found, are_confirmed, strict=True) if is_shown]
        # A reservation that is neither confirmed nor kept was given back.
        released = [one.id for one in found if one.id not in kept and one.id not in confirmed]
        if confirmed:
            await self._store.confirm(confirmed, fence=self._fence)
        if released:
            await self._store.release(released, fence=self._fence)
        return tuple(self._kept)

    async def _judge(self, reservation: QuotaReservation) -> _Judged:
        """Return the verdict; the quota of a reservation that is to be replayed is counted then."""
        seen = self._state.look_up(reservation.key)
        known = is_known(reservation, fence=self._fence, decided_without_store=self._decided_without_store)
        judged = _Judged(
            verdict=verdict_of(reservation, seen[0] if seen is not None else None, is_known=known)
        )
        if seen is not None and judged.verdict is RecoveryVerdict.REPLAY:
            adopted = await self._adopt(reservation)
            # None: there is no room for it any more, because the leader that made it had given the quota to
            # another Workload; or no leader decided this.
            if adopted is None:
                judged = _Judged(verdict=RecoveryVerdict.RELEASE)
            else:
                replay = self._state.render(adopted, seen[1])
                judged = _Judged(verdict=judged.verdict, adopted=adopted, replay=replay)
        log.info("recover", workload=reservation.key, verdict=judged.verdict, fence=reservation.fence)
        return judged

    async def _adopt(self, reservation: QuotaReservation, *, always: bool = False) -> Admit | None:
        workload = self._state.to_workload(reservation.write)
        # The bytes are those of this Workload; a stored value may say otherwise.
        if workload is None or (workload.key, workload.uid) != reservation.id:
            return None
        return await self._state.adopt(workload, always)

    async def _settle(self, reservation: QuotaReservation, judged: _Judged) -> bool:
        """Carry out the verdict on one reservation; return whether the cluster shows its admission."""
        if judged.verdict is RecoveryVerdict.DROP:
            return False
        if judged.verdict is RecoveryVerdict.CONFIRM or (
            judged.replay is not None and await self._replay(reservation, judged.replay)
        ):
            return True
        may_land_on = await self._fence_off(reservation)
        adopted = judged.adopted
        if may_land_on is None:
            # Its quota was counted until the outcome was known; now it is not.
            if adopted is not None:
                self._state.forget(adopted.id)
            return False
        # It cannot be released, so it is counted whether it fits or not.
        adopted = adopted or await self._adopt(reservation, always=True)
        decision = adopted.id if adopted else DecisionId(reservation.key, reservation.uid, may_land_on)
        self._kept.append(RecoveredReservation(decision=decision, may_land_on=may_land_on))
        return False

    async def _replay(self, reservation: QuotaReservation, write: Write) -> bool:
        """Write the admission again; return whether the cluster shows it now."""
        result = await self._send(write, None)
        if isinstance(result, Written):
            return True
        # A conflict returns the object, which may show the admission already: the old leader's write, or our
        # own whose answer was lost, was stored before.
        workload = self._state.to_workload(result.raw) if isinstance(result, Moot) else None
        return workload is not None and workload.uid == reservation.uid and workload.has_quota_reservation

    async def _fence_off(self, reservation: QuotaReservation) -> str | None:
        """Write the Workload, so that a write of the old leader that is still in flight meets 409.

        Return None if it does now, otherwise the version on which that write may still be stored.
        """
        seen = self._state.look_up(reservation.key)
        raw = seen[1] if seen is not None else None
        # A write in flight was sent before the lease was won, so for this version or an older one.
        version = seen[0].resource_version if seen is not None else reservation.resource_version
        stray = DecisionId(reservation.key, reservation.uid, version)
        while True:
            write = fence_write(stray, fence=self._fence, raw=raw)
            result = await self._send(write, partial(self._refence, write, stray))
            match result:
                # The annotation had this value already, so no new version was stored. The next value differs.
                case Written(raw=raw) if not is_fenced_off(stray, raw):
                    continue
                case Refused(error=error):
                    log.error("reservation-kept", workload=reservation.key, error=error)
                    return version
                case _:
                    return None

    def _refence(self, write: Write, stray: DecisionId, raw: bytes) -> Write | None:
        return refenced(write, stray, fence=self._fence, raw=raw)

    async def _send(self, write: Write, rebuild: Callable[[bytes], Write | None] | None) -> Result:
        answered: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def on_result(result: Result) -> None:
            self._state.finished(write, result)
            # If the term has ended, the caller was cancelled and the future with it.
            with suppress(asyncio.InvalidStateError):
                answered.set_result(result)

        self._executor.submit(WriteOrder(write=write, on_result=on_result, rebuild=rebuild))
        return await answered
