"""Reservations in Redis, each transition one script; `queues.store.redis_scripts` says how they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queues.reservations.reservations import (
    LOG_LENGTH,
    CorruptValue,
    LoggedDecision,
    Lost,
    NoFence,
    QuotaReservation,
    ReservationId,
    Reserved,
    already_reserved,
    check_commit,
    check_repeated,
)
from queues.store import encoding, lua
from queues.store.keys import to_field, to_id
from queues.store.redis_plan import RedisPlan
from queues.store.redis_scripts import SLOW_SECONDS

# How long a commit's answer is kept for repeats of it. They come within a second; ten minutes outlast any
# failover, and hold some ten thousand answers of a few bytes.
REMEMBER_SECONDS = 600


class RedisReservationStore(RedisPlan):
    """All that one shard keeps in Redis: reservations, decision log and plan.

    See `ReservationStore` and `PlanStore` for the promises.
    """

    async def commit(
        self,
        reservations: Sequence[QuotaReservation],
        *,
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision] = (),
    ) -> tuple[Reserved | Lost, ...]:
        """Reserve for a whole cycle in one script; see `ReservationStore.commit`."""
        check_commit(reservations, fence=fence, request_id=request_id)
        keys = (
            self._keys.fence,
            self._keys.reservations,
            self._keys.request(request_id),
            self._keys.log,
        )
        arguments: list[Any] = [fence, request_id, REMEMBER_SECONDS, LOG_LENGTH, len(reservations)]
        arguments += [part for r in reservations for part in (to_field(r.id), encoding.encode(r))]
        # From 1: the script has 0 for an entry that belongs to no reservation of this commit.
        number_of = {r.id: number for number, r in enumerate(reservations, start=1)}
        for entry in log:
            arguments += [number_of.get((entry.key, entry.uid), 0), encoding.encode_entry(entry)]
        outcome, joined = await self._run(lua.COMMIT, keys, arguments, fence=fence)
        # A line for each reservation with a line end after it, so that empty answers can be counted.
        answers = joined.decode().split("\n")[:-1]
        check_repeated(request_id, answers=len(answers), reservations=len(reservations))
        is_duplicate = outcome == b"DUP"
        return tuple(_to_answer(*pair, is_duplicate) for pair in zip(reservations, answers, strict=True))

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations that the cluster shows."""
        await self._remove([to_field(id_) for id_ in ids], fence=fence)

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations whose decision was withdrawn."""
        await self._remove([to_field(id_) for id_ in ids], fence=fence)

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Make it so that `held` are reserved and `gone` are not."""
        arguments: list[Any] = [fence, len(held)]
        arguments += [part for r in held for part in (to_field(r.id), encoding.encode(r))]
        arguments += [to_field(id_) for id_ in gone]
        await self._run(lua.RESTORE, (self._keys.fence, self._keys.reservations), arguments, fence=fence)

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Return all reservations, oldest first; report and drop what cannot be read."""
        # A small call first: it shows the fence, and whether anybody answers. The large one then has time.
        await self._remove((), fence=fence)
        keys = (self._keys.fence, self._keys.reservations)
        _, *flat = await self._run(lua.LIVE, keys, [fence], fence=fence, seconds=SLOW_SECONDS)
        found: list[QuotaReservation] = []
        unreadable: list[bytes] = []
        # HGETALL's flat list: field, value, field, value.
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            try:
                found.append(_decode(field, value))
            except ValueError:
                unreadable.append(field)
        if unreadable:
            await self._drop(unreadable, fence=fence)
        return tuple(sorted(found, key=lambda r: (r.reserved_at, r.id)))

    async def highest_fence(self) -> int | None:
        """Return the highest fence ever shown; None when Redis knows none."""
        try:
            _, highest = await self._run(lua.FENCE, (self._keys.fence,), [])
        except NoFence:
            return None
        return int(highest)

    async def seed_fence(self, fence: int) -> None:
        """Remember `fence` where there is none or a lower one."""
        await self._run(lua.SEED, (self._keys.fence,), [fence], fence=fence)

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Return the last `limit` log entries, the newest first; one that cannot be read is left out."""
        _, *entries = await self._run(lua.DECISIONS, (self._keys.log,), [limit])
        return tuple(entry for raw in entries if (entry := _read_entry(raw)) is not None)

    async def _remove(self, fields: Sequence[str | bytes], *, fence: int) -> None:
        keys = (self._keys.fence, self._keys.reservations)
        await self._run(lua.REMOVE, keys, [fence, *fields], fence=fence)

    async def _drop(self, fields: Sequence[bytes], *, fence: int) -> None:
        for field in fields:
            key = f"{self._keys.reservations}[{field.decode(errors='replace')}]"
            self.on_corrupt(CorruptValue(key, expected=encoding.EXPECTED))
        await self._remove(fields, fence=fence)


def _to_answer(reservation: QuotaReservation, answer: str, is_duplicate: bool) -> Reserved | Lost:
    if answer in {"", "="}:
        # "" is newly reserved, "=" held already by this very request, else who holds it.
        return Reserved(request_id=reservation.request_id, is_duplicate=is_duplicate or answer == "=")
    holder_fence, _, holder = answer.partition(" ")
    return already_reserved(reservation, holder=holder, holder_fence=int(holder_fence))


def _decode(field: bytes, value: bytes) -> QuotaReservation:
    reservation = encoding.decode(value)
    if to_id(field.decode()) != reservation.id:
        raise ValueError(f"the reservation of {reservation.key} stands under {field!r}")
    return reservation


def _read_entry(raw: bytes) -> LoggedDecision | None:
    try:
        return encoding.decode_entry(raw)
    except ValueError:
        return None
