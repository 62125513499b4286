"""The values under a shard's keys, one by one, for `berth store dump|check|rebuild`.

Reads every key with the shard's prefix and reports what each value is, or what is wrong with it. Only `drop`
changes anything: it deletes exactly one value that was found. The store may be in use meanwhile, so the
result is not of a single instant: a value that disappears between two calls is left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from queues.reservations.plan import SCHEMA, PlanTable, to_plan_version
from queues.store import encoding, plan_rows
from queues.store.clients import SLOW_SECONDS
from queues.store.keys import to_id
from queues.store.plan_rows import RowFault
from queues.store.redis_store import RedisReservationStore
from queues.store.seal import NotSigned

_NOT_SIGNED = "it is not signed with this installation's key: another program wrote it"
_KEYS_AT_ONCE = 500
_ROWS_AT_ONCE = 500
# The Redis type that a key of each kind must have.
_TYPES = {
    "fence": "string",
    "life": "string",
    "plan": "string",
    "request": "string",
    "fabric": "string",
    "reservations": "hash",
    "log": "stream",
    **{table.value: "hash" for table in PlanTable},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """One value. `kind` is the last part of its key, `field` its field or entry id, empty for a string.

    `value` is the decoded content. `fault` and `problem` say what is wrong with it (None and empty: nothing).
    `size_bytes` is its own size, without Redis's overhead.
    """

    key: str
    kind: str
    field: str = ""
    value: Any = None
    fault: RowFault | None = None
    problem: str = ""
    size_bytes: int = 0


class InspectedStore(RedisReservationStore):
    """The store of a shard, with access to each of its values."""

    async def values(self) -> AsyncIterator[StoredValue]:
        """Yield every value, sorted by key and field. Raises StoreUnreachable and StoreRefused."""
        for key in await self._all_keys():
            async for one in self._values_of(key):
                yield one

    async def drop(self, value: StoredValue) -> None:
        """Delete one value."""
        # The inverse of how the field was decoded: a field that is not UTF-8 gives back its original bytes.
        field = value.field.encode(errors="surrogateescape")
        if not field:
            await self._call("DEL", value.key)
        elif value.kind == "log":
            await self._call("XDEL", value.key, field)
        else:
            await self._call("HDEL", value.key, field)

    async def _call(self, *command: Any) -> Any:
        return await self._send(command, seconds=SLOW_SECONDS)

    async def _all_keys(self) -> list[str]:
        keys: set[str] = set()
        cursor: Any = b"0"
        while True:
            # SCAN and not KEYS, which would block Redis while it iterates over every key, also
            # those of other applications.
            cursor, found = await self._call(
                "SCAN",
                cursor,
                "MATCH",
                f"{self._keys.prefix}*",
                "COUNT",
                _KEYS_AT_ONCE,
            )
            # A set, because SCAN may return a key twice.
            keys.update(key.decode(errors="surrogateescape") for key in found)
            if int(cursor) == 0:
                return sorted(keys)

    async def _values_of(self, key: str) -> AsyncIterator[StoredValue]:
        kind = key.removeprefix(self._keys.prefix).partition(":")[0]
        type_ = (await self._call("TYPE", key)).decode()
        wanted = _TYPES.get(kind)
        # The key disappeared between the two calls: the store is in use.
        if type_ == "none":
            return
        if wanted is None:
            problem = "no key of Berth's: find out who wrote it"
            yield StoredValue(key=key, kind=kind, fault=RowFault.FOREIGN, problem=problem)
        elif type_ != wanted:
            problem = f"expected a {wanted}, found a {type_}"
            yield StoredValue(key=key, kind=kind, fault=RowFault.FOREIGN, problem=problem)
        elif wanted == "string":
            raw = await self._call("GET", key)
            if raw is not None:
                yield self._text_value(key, kind, raw)
        elif wanted == "stream":
            for id_, fields in await self._call("XRANGE", key, "-", "+"):
                yield _entry_value(key, id_.decode(), fields)
        else:
            async for field, row in self._rows_of(key):
                yield self._row_value(key, kind, field, row)

    async def _rows_of(self, key: str) -> AsyncIterator[tuple[str, bytes]]:
        rows: dict[str, bytes] = {}
        cursor: Any = b"0"
        while True:
            cursor, found = await self._call("HSCAN", key, cursor, "COUNT", _ROWS_AT_ONCE)
            # As with SCAN a row may be returned twice. The later one counts.
            rows |= {field.decode(errors="surrogateescape"): row for field, row in found.items()}
            if int(cursor) == 0:
                break
        for field in sorted(rows):
            yield field, rows[field]

    def _text_value(self, key: str, kind: str, raw: bytes) -> StoredValue:
        try:
            text = (
                self.seal.open(key, raw).decode(errors="replace")
                if kind in ("fence", "life", "fabric")
                else raw.decode(errors="replace")
            )
        except NotSigned:
            known = StoredValue(key=key, kind=kind, value=raw.decode(errors="replace"), size_bytes=len(raw))
            return _faulty(known, _NOT_SIGNED, RowFault.UNSIGNED)
        known = StoredValue(key=key, kind=kind, value=text, size_bytes=len(raw))
        if kind == "fence" and not text.isdecimal():
            return _faulty(known, "expected a whole number")
        if kind == "plan" and to_plan_version(text) is None:
            schema, is_schema = text.partition(" ")[0], text.partition(" ")[0].isdecimal()
            if is_schema and schema != str(SCHEMA):
                problem = f"expected a version in schema {SCHEMA}, found schema {schema}"
                return _faulty(known, problem, RowFault.OTHER_SCHEMA)
            return _faulty(known, f"expected a version in schema {SCHEMA}")
        return known

    def _row_value(self, key: str, kind: str, field: str, row: bytes) -> StoredValue:
        known = StoredValue(key=key, kind=kind, field=field, size_bytes=len(row))
        try:
            row = self.seal.open(f"{key} {field}", row)
            if kind == "reservations":
                reservation = encoding.decode(row)
                # A row under the wrong field would be confirmed and released by an id that no caller uses.
                if to_id(field) != reservation.id:
                    raise ValueError
                return _with_value(known, reservation)
            return _with_value(known, plan_rows.from_row(PlanTable(kind), field, row)[1])
        except NotSigned:
            return _faulty(known, _NOT_SIGNED, RowFault.UNSIGNED)
        except ValueError:
            if kind == "reservations":
                return _faulty(known, f"expected {encoding.EXPECTED}")
            bad = plan_rows.bad_row(PlanTable(kind), field, row)
            return _faulty(known, bad.message, bad.fault)


def _entry_value(key: str, id_: str, fields: Mapping[bytes, bytes]) -> StoredValue:
    raw = fields.get(b"entry", b"")
    known = StoredValue(key=key, kind="log", field=id_, size_bytes=len(raw))
    try:
        return _with_value(known, encoding.decode_entry(raw))
    except ValueError:
        return _faulty(known, "expected an entry of the decision log")


def _with_value(known: StoredValue, value: object) -> StoredValue:
    return replace(known, value=value)


def _faulty(known: StoredValue, problem: str, fault: RowFault = RowFault.CORRUPT) -> StoredValue:
    return replace(known, problem=problem, fault=fault)
