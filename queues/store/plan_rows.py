"""The encoding of the plan's rows: the number of the schema on a line of its own, then MessagePack.

    1\n<MessagePack>

`berth store dump` prints the rows in readable form. An unreadable row is reported and left out: it is of
another schema (written by a newer Berth) or damaged. All other rows count, because no row depends on another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from api.parsing.decimals import whole_number
from api.workload import WorkloadKey
from queues.estimates.run_history import Run, RunOutcome
from queues.estimates.runtime_estimate import RunKey
from queues.profile.holds import Hold, Move
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.reservations.plan import SCHEMA, PlanTable, PlanValues, StoredPlan
from queues.reservations.usage_rows import UsageKey, UsageRow

# In place of a row that is not signed with the installation's key: no row that `to_row` makes.
UNSIGNED = b"unsigned"

_HEAD = f"{SCHEMA}\n".encode()
_ENCODER = msgspec.msgpack.Encoder()


class RowFault(StrEnum):
    """Why a value in the store is ignored."""

    CORRUPT = "Corrupt"
    OTHER_SCHEMA = "OtherSchema"
    FOREIGN = "Foreign"
    UNSIGNED = "Unsigned"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """An ignored row, or an ignored table where `field` is empty. `message` says what was expected."""

    table: PlanTable
    field: str
    fault: RowFault
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Codec:
    """How one table's keys map to fields, and its rows to values."""

    to_field: Callable[[Any], str]
    to_key: Callable[[str], Any]
    decoder: msgspec.msgpack.Decoder[Any]
    expected: str


def to_field(table: PlanTable, key: Any) -> str:
    """Return the field under which the table stores this key."""
    return _CODECS[table].to_field(key)


def to_row(value: object) -> bytes:
    """Return a value as its table stores it."""
    return _HEAD + _ENCODER.encode(value)


def from_row(table: PlanTable, field: str, row: bytes) -> tuple[Any, Any]:
    """Return key and value of a row. Raises ValueError for a row that `to_row` did not make."""
    codec = _CODECS[table]
    if not row.startswith(_HEAD):
        raise ValueError(f"{row[:20]!r} begins no row of schema {SCHEMA}")
    key, value = codec.to_key(field), codec.decoder.decode(row[len(_HEAD) :])
    # A row copied to another field would give the promised start of one Workload to another.
    if isinstance(value, PlannedStart | BackfillLease | Hold) and value.key != key:
        raise ValueError(f"the row of {value.key} is stored under {field}")
    return key, value


def bad_row(table: PlanTable, field: str, row: bytes) -> BadRow:
    """Return a description of a row that `from_row` cannot read."""
    if row == UNSIGNED:
        message = "it is not signed with this installation's key"
        return BadRow(table=table, field=field, fault=RowFault.UNSIGNED, message=message)
    head = row.partition(b"\n")[0]
    # A number alone is not a row of another schema: a newline and content must follow.
    is_other = head.isdigit() and head != str(SCHEMA).encode() and len(head) < len(row)
    return BadRow(
        table=table,
        field=field,
        fault=RowFault.OTHER_SCHEMA if is_other else RowFault.CORRUPT,
        message=f"expected {_CODECS[table].expected} in schema {SCHEMA}"
        + (f", found schema {head.decode()}" if is_other else ""),
    )


def foreign_table(table: PlanTable) -> BadRow:
    """Return a description of a table whose key holds a value of another type."""
    return BadRow(table=table, field="", fault=RowFault.FOREIGN, message="expected a hash")


def read_rows(stored: StoredPlan) -> tuple[PlanValues, tuple[BadRow, ...]]:
    """Return the values of all readable rows, and a description of each ignored row or table."""
    tables: dict[str, dict[Any, Any]] = {}
    bad = [foreign_table(table) for table in stored.foreign]
    for table, rows in stored.rows.items():
        known = tables[table.value] = {}
        for field_, row in rows.items():
            try:
                key, value = from_row(table, field_, row)
            except ValueError:  # msgspec's errors are ValueErrors
                bad.append(bad_row(table, field_, row))
            else:
                known[key] = value
    return PlanValues(**tables), tuple(bad)


def _workload_field(key: WorkloadKey) -> str:
    return f"{key.namespace}/{key.name}"


def _workload_key(field: str) -> WorkloadKey:
    namespace, name = field.split("/")
    return WorkloadKey(namespace, name)


def _life_key(field: str) -> tuple[WorkloadKey, str]:
    namespace, name, uid = field.split("/")
    return WorkloadKey(namespace, name), uid


def _run_key(field: str) -> RunKey:
    namespace, stem, shape = field.split("/")
    return RunKey(namespace, stem, shape)


def _usage_field(key: UsageKey) -> str:
    return "/".join((str(key.day), *key[1:]))


def _usage_key(field: str) -> UsageKey:
    # A user may have slashes in its name, as with OpenID Connect.
    day, queue, namespace, user = field.split("/", 3)
    number = whole_number(day)
    if number is None:
        raise ValueError(f"{day!r} is no day")
    return UsageKey(number, queue, namespace, user)


def _codec(type_: Any, expected: str, **names: Any) -> _Codec:
    # Most tables are keyed by Workload. Explicit arguments override that.
    names = {"to_field": _workload_field, "to_key": _workload_key, **names}
    return _Codec(decoder=msgspec.msgpack.Decoder(type_), expected=expected, **names)


_CODECS: Mapping[PlanTable, _Codec] = {
    PlanTable.PROMISES: _codec(PlannedStart, "a planned start"),
    PlanTable.LEASES: _codec(BackfillLease, "a backfill lease"),
    PlanTable.OUTRUN: _codec(
        float,
        "the seconds that a stopped run took",
        to_field=lambda life: f"{_workload_field(life[0])}/{life[1]}",
        to_key=_life_key,
    ),
    PlanTable.EXPECTED: _codec(tuple[float, float], "an expected start and when it was reported"),
    PlanTable.HOLDS: _codec(Hold, "capacity that is held for a Workload"),
    PlanTable.MOVES: _codec(Move, "when a Workload was moved, and for which policy"),
    PlanTable.RUNS: _codec(tuple[Run, ...], "the latest runs of a kind", to_field="/".join, to_key=_run_key),
    PlanTable.NODES: _codec(
        tuple[RunOutcome, ...], "the latest outcomes on a node", to_field=str, to_key=str
    ),
    PlanTable.USAGE: _codec(
        UsageRow, "what deleted Workloads used on a day", to_field=_usage_field, to_key=_usage_key
    ),
}
