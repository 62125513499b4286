"""The reservation store in memory: the model that every other store must agree with.

A leader also falls back on it while Redis is lost (`queues.store.failover_store`), and it is the store of
offline commands and of tests that are not about Redis. Nothing here waits; the methods are coroutines
because the protocol's are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from queues.reservations.memory_plan import InMemoryPlanStore
from queues.reservations.reservations import (
    LOG_LENGTH,
    FenceTooLow,
    LoggedDecision,
    Lost,
    QuotaReservation,
    ReservationId,
    Reserved,
    ServerLife,
    already_reserved,
    check_commit,
    check_repeated,
    logged,
)

# How many requests are remembered to recognise repeats. A repeat follows the first attempt within a second,
# and a leader makes about ten requests a second. Redis limits this by time instead.
REMEMBERED_REQUESTS = 10_000


class InMemoryReservationStore(InMemoryPlanStore):
    """A reservation store without persistence, for one process. See `ReservationStore` for the contract."""

    def __init__(self) -> None:
        super().__init__()
        #: The live reservations, at most one for each Workload and uid.
        self.reservations: dict[ReservationId, QuotaReservation] = {}
        #: Replaced by tests, as a restart of the server does.
        self.present_life = "1"
        self.complete_life: str | None = None
        self._answers: dict[str, tuple[Reserved | Lost, ...]] = {}
        self._log: deque[LoggedDecision] = deque(maxlen=LOG_LENGTH)

    async def commit(
        self,
        reservations: Sequence[QuotaReservation],
        *,
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision] = (),
    ) -> tuple[Reserved | Lost, ...]:
        """Reserve for a whole cycle; see `ReservationStore.commit`."""
        check_commit(reservations, fence=fence, request_id=request_id)
        self._check_fence(fence)
        # Checked first: a repeat must not be refused because of what its first attempt has changed.
        if (known := self._answers.get(request_id)) is not None:
            check_repeated(request_id, answers=len(known), reservations=len(reservations))
            return tuple(_as_duplicate(answer) for answer in known)
        answers = tuple(self._reserve(reservation) for reservation in reservations)
        self._log.extend(logged(log, reservations, answers))
        self._remember(request_id, answers)
        return answers

    def knows(self, request_id: str) -> bool:
        """Return whether a commit with this request id would get its earlier answer again."""
        return request_id in self._answers

    def adopt(
        self,
        reservations: Sequence[QuotaReservation],
        answers: tuple[Reserved | Lost, ...],
        *,
        fence: int,
        request_id: str,
    ) -> None:
        """Record another store's answers to a commit as if this store had given them. Raises FenceTooLow."""
        self._check_fence(fence)
        for reservation, answer in zip(reservations, answers, strict=True):
            if isinstance(answer, Reserved):
                self.reservations[reservation.id] = reservation
        self._remember(request_id, answers)

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations that the cluster shows by now."""
        self._check_fence(fence)
        self._remove(ids)

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations whose decision was withdrawn."""
        self._check_fence(fence)
        self._remove(ids)

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Make `held` reserved and `gone` not reserved, whatever the state was."""
        self._check_fence(fence)
        self._remove(gone)
        self.reservations.update((reservation.id, reservation) for reservation in held)

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Return all reservations, the oldest first."""
        self._check_fence(fence)
        return tuple(sorted(self.reservations.values(), key=lambda r: (r.reserved_at, r.id)))

    async def highest_fence(self) -> int | None:
        """Return the highest fence ever presented; None where there was none."""
        return self.fence

    async def life(self) -> ServerLife:
        """Return the life of the server; see `LivingStore.life`."""
        return ServerLife(present=self.present_life, complete=self.complete_life)

    async def vouch(self, life: str, *, fence: int) -> None:
        """Note that the store holds all that was acknowledged; see `LivingStore.vouch`."""
        self._check_fence(fence)
        self.complete_life = life

    async def seed_fence(self, fence: int) -> None:
        """Remember `fence` where there is none or a lower one; FenceTooLow where there is a higher one."""
        # An equal fence is a repeat.
        if self.fence is not None and fence < self.fence:
            raise FenceTooLow(fence=fence, highest=self.fence)
        self.fence = fence

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Return the last `limit` log entries, the newest first."""
        return tuple(reversed(self._log))[:limit]

    async def ping(self) -> None:
        """Return at once: memory always answers."""

    async def close(self) -> None:
        """Do nothing: there are no connections to close."""

    def flush(self) -> None:
        """Drop everything, the fence included, like a Redis that is emptied or replaced."""
        self.fence = self.complete_life = None
        self.reservations.clear()
        self._answers.clear()
        self._log.clear()
        self.flush_plan()

    def validate(self) -> None:
        """Raise AssertionError where the state contradicts itself. Tests call this after every step."""
        for id_, reservation in self.reservations.items():
            assert id_ == reservation.id, f"{reservation.id} is stored under {id_}"
            assert self.fence is not None, f"{id_} is reserved in a store without a fence"
            assert reservation.fence <= self.fence, (
                f"{id_} is from fence {reservation.fence}, of {self.fence}"
            )

    def _reserve(self, reservation: QuotaReservation) -> Reserved | Lost:
        holder = self.reservations.get(reservation.id)
        if holder is None:
            self.reservations[reservation.id] = reservation
            return Reserved(request_id=reservation.request_id)
        # The same request: an earlier attempt that timed out was applied after all.
        if holder.request_id == reservation.request_id:
            return Reserved(request_id=reservation.request_id, is_duplicate=True)
        return already_reserved(reservation, holder=holder.request_id, holder_fence=holder.fence)

    def _remove(self, ids: Sequence[ReservationId]) -> None:
        for id_ in ids:
            self.reservations.pop(id_, None)

    def _remember(self, request_id: str, answers: tuple[Reserved | Lost, ...]) -> None:
        self._answers[request_id] = answers
        if len(self._answers) > REMEMBERED_REQUESTS:
            # The oldest is dropped: a repeat comes within seconds or never.
            del self._answers[next(iter(self._answers))]


def _as_duplicate(answer: Reserved | Lost) -> Reserved | Lost:
    if isinstance(answer, Lost):
        return answer
    return Reserved(request_id=answer.request_id, is_duplicate=True)
