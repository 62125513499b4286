"""Reservations in Redis, with one script per transition; `queues.store.redis_scripts` sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from api.parsing.decimals import whole_number
from queues.reservations.reservations import (
    LOG_LENGTH,
    CorruptValue,
    LoggedDecision,
    Lost,
    NoFence,
    QuotaReservation,
    ReservationId,
    Reserved,
    ServerLife,
    already_reserved,
    check_commit,
    check_repeated,
)
from queues.store import encoding, lua
from queues.store.clients import SLOW_SECONDS
from queues.store.keys import to_field, to_id
from queues.store.redis_plan import RedisPlan
from queues.store.redis_scripts import Execute
from queues.store.seal import SIGNED, NotSigned

# How many seconds a commit's answer is kept for repeats. A repeat follows within a second; ten minutes
# outlast any failover, and amount to about ten thousand answers of a few bytes.
REMEMBER_SECONDS = 600


class RedisReservationStore(RedisPlan):
    """Everything that one shard keeps in Redis: reservations, decision log and plan.

    See `ReservationStore` and `PlanStore` for the contract.
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
        arguments: list[Any] = [
            self._fence(fence),
            request_id,
            REMEMBER_SECONDS,
            LOG_LENGTH,
            len(reservations),
        ]
        arguments += [part for r in reservations for part in self._encode(r)]
        # Numbered from 1, because the script uses 0 for an entry that belongs to no
        # reservation of this commit.
        number_of = {r.id: number for number, r in enumerate(reservations, start=1)}
        for entry in log:
            arguments += [number_of.get((entry.key, entry.uid), 0), encoding.encode_entry(entry)]
        outcome, joined = await self._run(lua.COMMIT, keys, arguments, fence=fence, is_write=True)
        # Each answer ends with a newline, so that empty answers can be counted.
        answers = joined.decode().split("\n")[:-1]
        check_repeated(request_id, answers=len(answers), reservations=len(reservations))
        is_duplicate = outcome == b"DUP"
        return tuple(_to_answer(*pair, is_duplicate) for pair in zip(reservations, answers, strict=True))

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations that the cluster shows by now."""
        await self._remove([to_field(id_) for id_ in ids], fence=fence)

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations whose decision was withdrawn."""
        await self._remove([to_field(id_) for id_ in ids], fence=fence)

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Make `held` reserved and `gone` not reserved, whatever the state was."""
        arguments: list[Any] = [self._fence(fence), len(held)]
        arguments += [part for r in held for part in self._encode(r)]
        arguments += [to_field(id_) for id_ in gone]
        keys = (self._keys.fence, self._keys.reservations)
        await self._run(lua.RESTORE, keys, arguments, fence=fence, is_write=True)

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Return all reservations, oldest first. Unreadable and unsigned ones are reported and dropped.

        Those that a former key signed are signed again, so that the former key can be removed.
        """
        # A small call first presents the fence and shows quickly whether Redis answers. The
        # large one then gets more time.
        await self._remove((), fence=fence)
        keys = (self._keys.fence, self._keys.reservations)
        _, *flat = await self._run(lua.LIVE, keys, [self._fence(fence)], fence=fence, seconds=SLOW_SECONDS)
        found: list[QuotaReservation] = []
        unreadable: list[bytes] = []
        unsigned: list[bytes] = []
        outdated: list[QuotaReservation] = []
        # HGETALL returns a flat list: field, value, field, value.
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            try:
                found.append(self._decode(field, value))
                if self.seal.is_outdated(self._keys.reservation(field.decode()), value):
                    outdated.append(found[-1])
            except NotSigned:
                unsigned.append(field)
            except ValueError:
                unreadable.append(field)
        for field in (*unsigned, *unreadable):
            self._report(field, is_unsigned=field in unsigned)
        if unsigned or unreadable:
            await self._remove([*unsigned, *unreadable], fence=fence)
        if outdated:
            await self.restore(outdated, (), fence=fence)
        return tuple(sorted(found, key=lambda r: (r.reserved_at, r.id)))

    async def highest_fence(self) -> int | None:
        """Return the highest fence ever presented; None where Redis knows none."""
        try:
            _, highest = await self._run(lua.FENCE, (self._keys.fence,), [])
        except NoFence:
            return None
        return self._open_fence(highest)

    async def life(self) -> ServerLife:
        """Return the life of the server; see `LivingStore.life`. An unsigned value counts as none.

        Raises StoreUnreachable where the server has fewer replicas than it must have: after a fail-over, the
        former primary does not know that there is another.
        """
        # On one connection: during a fail-over two may lead to two servers, and what one of them holds would
        # count for the life of the other.
        async with self._one_connection() as execute:
            present = await self.present_life(execute)
            command = (1, self._keys.life)
            answer = await self._run_once(lua.LIFE, command, seconds=self._call_seconds, execute=execute)
            _, stored = self._checked(answer)
            if self.replication:
                await self._wait_acknowledged(execute)
        try:
            complete = self.seal.open(self._keys.life, stored).decode() if stored else None
        except ValueError:
            complete = None
        return ServerLife(present=present, complete=complete)

    async def present_life(self, execute: Execute | None = None, /) -> str:
        """Return the ids of the server's run and of its data set.

        The run id changes at each start. The replication id changes when a replica is promoted, also where
        the same server was primary before and has lost what was written in between.
        """
        # Two calls: before Redis 7 INFO takes one section.
        run = await self._send(("INFO", "server"), seconds=self._call_seconds, execute=execute)
        data = await self._send(("INFO", "replication"), seconds=self._call_seconds, execute=execute)
        return f"{run.get('run_id')} {data.get('master_replid')}"

    async def vouch(self, life: str, *, fence: int) -> None:
        """Note that the store holds all that was acknowledged; see `LivingStore.vouch`."""
        value = self.seal.close(self._keys.life, life.encode())
        keys = (self._keys.fence, self._keys.life)
        await self._run(lua.VOUCH, keys, [self._fence(fence), value], fence=fence, is_write=True)

    async def seed_fence(self, fence: int) -> None:
        """Remember `fence` where there is none or a lower one; FenceTooLow where there is a higher one."""
        await self._run(lua.SEED, (self._keys.fence,), [self._fence(fence)], fence=fence, is_write=True)

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Return the last `limit` log entries, the newest first. Unreadable ones are left out."""
        _, *entries = await self._run(lua.DECISIONS, (self._keys.log,), [limit])
        return tuple(entry for raw in entries if (entry := _read_entry(raw)) is not None)

    def _encode(self, reservation: QuotaReservation) -> tuple[str, bytes]:
        """Return the field and the signed value of a reservation."""
        field = to_field(reservation.id)
        return field, self.seal.close(self._keys.reservation(field), encoding.encode(reservation))

    def _decode(self, field: bytes, stored: bytes) -> QuotaReservation:
        """Return a stored reservation. Raises ValueError for any that `_encode` did not make."""
        name = field.decode()
        reservation = encoding.decode(self.seal.open(self._keys.reservation(name), stored))
        if to_id(name) != reservation.id:
            raise ValueError(f"the reservation of {reservation.key} is stored under {name}")
        return reservation

    async def _remove(self, fields: Sequence[str | bytes], *, fence: int) -> None:
        keys = (self._keys.fence, self._keys.reservations)
        await self._run(lua.REMOVE, keys, [self._fence(fence), *fields], fence=fence)

    def _report(self, field: bytes, *, is_unsigned: bool) -> None:
        key = f"{self._keys.reservations}[{field.decode(errors='replace')}]"
        expected = SIGNED if is_unsigned else encoding.EXPECTED
        self.on_corrupt(CorruptValue(key, expected=expected, is_unsigned=is_unsigned))


def _to_answer(reservation: QuotaReservation, answer: str, is_duplicate: bool) -> Reserved | Lost:
    if answer in {"", "="}:
        # "" is newly reserved, "=" already held by this same request; otherwise the answer names the holder.
        return Reserved(request_id=reservation.request_id, is_duplicate=is_duplicate or answer == "=")
    holder_fence, _, holder = answer.partition(" ")
    # The holder's is what Redis says, and only named.
    return already_reserved(reservation, holder=holder, holder_fence=whole_number(holder_fence) or 0)


def _read_entry(raw: bytes) -> LoggedDecision | None:
    try:
        return encoding.decode_entry(raw)
    except ValueError:
        return None
