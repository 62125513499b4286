"""The plan as a store keeps it: promises and leases for whoever leads next, and what runs have taught.

What Kubernetes objects do not hold would end with the process that knows it: who was promised which start,
who runs on a lease, for whom freed room is kept, how long runs took whose Workloads are deleted. A store
keeps it in *tables*, a row for each Workload, kind of run or node. Here rows are bytes, so that model and
Redis agree on them, unreadable ones too; what they mean stands in `queues.store.plan_rows`.

One leader writes, in one chain: every write names the version that it builds upon, and its own.

    version 7/41 ──write──▶ 7/42 ──write──▶ 7/43        fence 7, the leader's 41st, 42nd, 43rd write
        a store that holds another version than the write builds upon changes nothing and says so:
        it was emptied, restored from a backup or rebuilt; the leader writes the plan anew, in one call

So no write is lost in silence, one that arrives late (its sender gave it up) changes nothing, and a reader
sees by one small value whether anything is new. The version begins with the number of the schema: of another
schema it is none of ours, and the leader writes anew over it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from api.workload import WorkloadKey
from queues.estimates.run_history import Run, RunOutcome
from queues.estimates.runtime_estimate import RunKey
from queues.profile.holds import Hold, Move
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.reservations.reservations import ReservationStore

# Of keys, tables and rows. A reader ignores rows of another number, and names them.
SCHEMA = 1


class PlanTable(StrEnum):
    """The tables; each value is the last part of the table's key."""

    PROMISES = "promises"
    LEASES = "leases"
    OUTRUN = "outrun"
    EXPECTED = "expected"
    HOLDS = "holds"
    MOVES = "moves"
    RUNS = "runs"
    NODES = "nodes"


# What holds for as long as those wait or run of whom it speaks: written with the cycle that changed it.
PLAN_TABLES = (
    PlanTable.PROMISES,
    PlanTable.LEASES,
    PlanTable.OUTRUN,
    PlanTable.EXPECTED,
    PlanTable.HOLDS,
    PlanTable.MOVES,
)
# What was learned, which grows slowly and is written every few seconds.
HISTORY_TABLES = (PlanTable.RUNS, PlanTable.NODES)


class PlanVersion(NamedTuple):
    """Which write of which leader a plan is the outcome of."""

    fence: int
    number: int

    @property
    def text(self) -> str:
        """The version as it stands in a store, the schema's number first."""
        return f"{SCHEMA} {self.fence} {self.number}"


def to_plan_version(text: str) -> PlanVersion | None:
    """Return the version of a text, None where it is none of this schema."""
    parts = text.split(" ")
    # Both numbers at once: text of signs or spaces in either is no version.
    if len(parts) != 3 or parts[0] != str(SCHEMA) or not (parts[1] + parts[2]).isdecimal():
        return None
    return PlanVersion(int(parts[1]), int(parts[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWrite:
    """Rows to be put, or dropped where they are None, by table and field.

    `after` is the version that it builds upon; None: the tables named are written anew, whatever was there.
    """

    version: PlanVersion
    after: PlanVersion | None
    rows: Mapping[PlanTable, Mapping[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """What a store holds of the tables asked for. `foreign` are those whose key holds something else."""

    version: PlanVersion | None = None
    rows: Mapping[PlanTable, Mapping[str, bytes]] = field(default_factory=dict)
    foreign: tuple[PlanTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """The version of a stored plan, and how many rows each table has; of a foreign one -1."""

    version: PlanVersion | None
    sizes: Mapping[PlanTable, int]

    def __str__(self) -> str:
        """Return it for a log: the version, and the tables that are not empty."""
        sizes = "".join(f" {table.value}={size}" for table, size in self.sizes.items() if size)
        return f"{self.version.text if self.version is not None else 'no version'}{sizes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanValues:
    """The tables as values. `expected`: an expected start, and when it was told, in Unix seconds.

    `outrun` is how long who was stopped at the end of a lease had run, by Workload and uid; `holds` is by who
    the room is kept for, `moves` by who was moved.
    """

    promises: Mapping[WorkloadKey, PlannedStart] = field(default_factory=dict)
    leases: Mapping[WorkloadKey, BackfillLease] = field(default_factory=dict)
    outrun: Mapping[tuple[WorkloadKey, str], float] = field(default_factory=dict)
    expected: Mapping[WorkloadKey, tuple[float, float]] = field(default_factory=dict)
    holds: Mapping[WorkloadKey, Hold] = field(default_factory=dict)
    moves: Mapping[WorkloadKey, Move] = field(default_factory=dict)
    runs: Mapping[RunKey, tuple[Run, ...]] = field(default_factory=dict)
    nodes: Mapping[str, tuple[RunOutcome, ...]] = field(default_factory=dict)

    def table(self, table: PlanTable) -> Mapping[Any, Any]:
        """Return the entries of one table."""
        entries: Mapping[Any, Any] = getattr(self, table.value)
        return entries


class PlanStore(Protocol):
    """What a store of the plan promises, beside `ReservationStore` and with its errors."""

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool:
        """Apply a write whole. Returns False, with nothing changed, where the store has another version.

        The same write again is True and changes nothing. A foreign table is False too: write it anew. Raises
        FenceTooLow and NoFence.
        """

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan:
        """Return what is held of these tables. It needs no fence: anybody may look."""

    async def plan_state(self) -> PlanState:
        """Return the version and the sizes, for a look that costs next to nothing."""


class Store(ReservationStore, PlanStore, Protocol):
    """All that one shard keeps."""
