"""The plan as a store keeps it: promises and leases for the next leader, and what runs have taught.

Some state is in no Kubernetes object and would be lost with the leader's process: which Workload has
which promised start, which run on leases, for which freed capacity is held, how long the runs of
deleted Workloads took and what they used. A store keeps it in *tables*, with one row for each Workload, key
of runs, node, or day of usage. Rows are bytes in this module, so that model and Redis also agree on
unreadable ones; `queues.store.plan_rows` defines their content.

Only the leader writes, and its writes form a chain: each names the version that it builds upon, and its own.

    version 7/41 ──write──▶ 7/42 ──write──▶ 7/43        fence 7, the leader's 41st, 42nd, 43rd write
        a store that holds another version than the write builds upon changes nothing and reports it:
        it was emptied, restored from a backup or rebuilt; the leader then writes the whole plan in one call

The chain has three effects: a lost write is always noticed, a write that arrives late (its sender timed
out) changes nothing, and a reader recognises by one small value whether anything is new. A version begins
with the number of the schema. A version of another schema counts as unknown, and the leader writes the
whole plan over it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from api.parsing.decimals import whole_number
from api.workload import WorkloadKey
from queues.estimates.run_history import Run, RunOutcome
from queues.estimates.runtime_estimate import RunKey
from queues.profile.holds import Hold, Move
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.reservations.reservations import LivingStore, ReservationStore
from queues.reservations.usage_rows import UsageKey, UsageRow

# The number of the schema of keys, tables and rows. A reader ignores rows with another
# number, and reports them.
SCHEMA = 1


class PlanTable(StrEnum):
    """The tables. Each value is the last part of the table's Redis key."""

    PROMISES = "promises"
    LEASES = "leases"
    OUTRUN = "outrun"
    EXPECTED = "expected"
    HOLDS = "holds"
    MOVES = "moves"
    RUNS = "runs"
    NODES = "nodes"
    USAGE = "usage"


# Rows that are valid while their Workloads wait or run. They are written with the cycle that changed them.
PLAN_TABLES = (
    PlanTable.PROMISES,
    PlanTable.LEASES,
    PlanTable.OUTRUN,
    PlanTable.EXPECTED,
    PlanTable.HOLDS,
    PlanTable.MOVES,
)
# What was learned from runs, and what deleted Workloads used. It grows slowly and is written every few
# seconds.
HISTORY_TABLES = (PlanTable.RUNS, PlanTable.NODES, PlanTable.USAGE)


class PlanVersion(NamedTuple):
    """The leader's fence, and the number of the write within that leadership."""

    fence: int
    number: int

    @property
    def text(self) -> str:
        """The version as stored: schema, fence and number, separated by spaces."""
        return f"{SCHEMA} {self.fence} {self.number}"


def to_plan_version(text: str) -> PlanVersion | None:
    """Return the version that a text holds, None where it is not a version of this schema."""
    parts = text.split(" ")
    if len(parts) != 3 or parts[0] != str(SCHEMA):
        return None
    fence, number = map(whole_number, parts[1:])
    return PlanVersion(fence, number) if fence is not None and number is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWrite:
    """Rows to put, or to delete where they are None, by table and field.

    `after` is the version that the write builds upon. None: the named tables are
    replaced, whatever they hold.
    """

    version: PlanVersion
    after: PlanVersion | None
    rows: Mapping[PlanTable, Mapping[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """The content of the requested tables. `foreign` are those whose key holds a value of another type."""

    version: PlanVersion | None = None
    rows: Mapping[PlanTable, Mapping[str, bytes]] = field(default_factory=dict)
    foreign: tuple[PlanTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanState:
    """The version of a stored plan, and the number of rows of each table; -1 for a foreign one."""

    version: PlanVersion | None
    sizes: Mapping[PlanTable, int]

    def __str__(self) -> str:
        """Return the version and the tables that are not empty, for a log line."""
        sizes = "".join(f" {table.value}={size}" for table, size in self.sizes.items() if size)
        return f"{self.version.text if self.version is not None else 'no version'}{sizes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanValues:
    """The tables as values.

    `outrun` holds, by Workload and uid, how many seconds a Workload had run that was evicted at the end of
    its lease. `expected` holds an expected start and when it was published, both in Unix seconds. `holds` is
    by the Workload for which capacity is held, `moves` by the Workload that was moved.
    """

    promises: Mapping[WorkloadKey, PlannedStart] = field(default_factory=dict)
    leases: Mapping[WorkloadKey, BackfillLease] = field(default_factory=dict)
    outrun: Mapping[tuple[WorkloadKey, str], float] = field(default_factory=dict)
    expected: Mapping[WorkloadKey, tuple[float, float]] = field(default_factory=dict)
    holds: Mapping[WorkloadKey, Hold] = field(default_factory=dict)
    moves: Mapping[WorkloadKey, Move] = field(default_factory=dict)
    runs: Mapping[RunKey, tuple[Run, ...]] = field(default_factory=dict)
    nodes: Mapping[str, tuple[RunOutcome, ...]] = field(default_factory=dict)
    usage: Mapping[UsageKey, UsageRow] = field(default_factory=dict)

    def table(self, table: PlanTable) -> Mapping[Any, Any]:
        """Return the entries of one table."""
        entries: Mapping[Any, Any] = getattr(self, table.value)
        return entries


class PlanStore(Protocol):
    """The contract of a store of the plan. Errors are those of `ReservationStore`."""

    async def write_plan(self, write: PlanWrite, *, fence: int) -> bool:
        """Apply a write as a whole. Return False, without effect, where the store has another version.

        The same write again returns True and changes nothing. A foreign table also gives False: the caller
        then writes the whole plan. Raises FenceTooLow and NoFence.
        """

    async def read_plan(self, tables: Collection[PlanTable]) -> StoredPlan:
        """Return the content of these tables. It needs no fence, because reading is open to every replica."""

    async def plan_state(self) -> PlanState:
        """Return the version and the number of rows of each table. Cheap, for polling."""


class Store(ReservationStore, LivingStore, PlanStore, Protocol):
    """Everything that the store of one shard keeps."""
