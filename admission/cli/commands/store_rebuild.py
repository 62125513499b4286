"""`berth store rebuild`: a consistent store, from its readable values and the cluster's objects.

    unreadable values, other schemas, keys that are not Berth's     removed
    promises, leases, expected starts of deleted Workloads          removed
    readable reservations                                           kept: the next leader resolves them
    runs and outcomes                                               kept; finished Workloads are added
    decision log                                                    kept
    fence                                                           kept; if unreadable, the Lease's number

Promises cannot be restored from the cluster; the next leader makes new ones for those that are lost. A live
leader would overwrite the result at once, so the command refuses to run beside one without `--force`. With
`--force` nothing breaks: the leader sees another version of the plan and writes its own again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from admission.cache.cache import Cache
from admission.cache.finished_runs import FinishedRuns
from admission.cli.common.errors import NotHoldingError
from admission.controller.runtime.identity import own_namespace
from admission.engine.restore_plan import adopt_history, stored_value, tables
from api.kube.client import KubeClient
from api.kube.errors import NotFound
from api.kube.lease_record import parse_lease
from api.kube.resources import LEASES, WORKLOADS
from api.objects.workloads import WorkloadObject
from api.parsing.times import to_seconds
from api.workload import Workload, WorkloadKey
from api.workload_decoding import to_workload
from queues.reservations.plan import (
    HISTORY_TABLES,
    PLAN_TABLES,
    PlanTable,
    PlanValues,
    PlanVersion,
    PlanWrite,
)
from queues.store.inspection import InspectedStore
from queues.store.plan_rows import read_rows, to_field, to_row

# A Lease without a duration is assumed to have Kueue's.
_DEFAULT_LEASE_SECONDS = 15.0
_ROWS_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Numbers of values that were removed, by reason, and kept.

    `learned` counts the kinds of runs and the nodes for which finished Workloads added or changed an entry.
    """

    unreadable: int
    untrue: int
    kept: int
    learned: int


async def rebuild(store: InspectedStore, arguments: argparse.Namespace) -> Rebuilt:
    """Rebuild the store. Raises NotHoldingError if a leader is alive, KubeError, and the store's errors."""
    async with await KubeClient.connect(arguments.kubeconfig) as client:
        name, namespace = f"berth-{arguments.shard}", own_namespace(arguments.namespace)
        fence = await _look_at_lease(client, name, namespace, is_forced=arguments.force)
        workloads = await _read_workloads(client)
    values = [one async for one in store.values()]
    unreadable = [one for one in values if one.fault is not None]
    for one in unreadable:
        await store.drop(one)
    highest = await store.highest_fence()
    if highest is None:
        # Either no leader is alive, or the user has confirmed with --force.
        await store.seed_fence(fence)
    fence = highest if highest is not None else fence
    return await _write_plan(store, workloads, unreadable=len(unreadable), fence=fence)


async def _look_at_lease(client: KubeClient, name: str, namespace: str, *, is_forced: bool) -> int:
    """Return the Lease's number. Raises NotHoldingError if its holder is alive, unless `is_forced`."""
    try:
        lease = parse_lease(await client.get(LEASES, name, namespace))
    except NotFound:
        return 1
    renewed = lease.mark[1]
    try:
        age = time.time() - to_seconds(renewed) if isinstance(renewed, str) else None
    except ValueError:
        age = None
    is_alive = age is not None and age < (lease.duration_seconds or _DEFAULT_LEASE_SECONDS)
    if lease.holder and is_alive and not is_forced:
        raise NotHoldingError(
            f"{lease.holder} leads: it renewed the Lease {namespace}/{name} {max(0.0, age or 0.0):.0f} s ago "
            "and maintains the plan itself; stop it first, or use --force"
        )
    return max(1, lease.transitions)


async def _read_workloads(client: KubeClient) -> dict[WorkloadKey, Workload]:
    try:
        found = (await client.list(WORKLOADS, type_=WorkloadObject)).items
    except NotFound:
        return {}
    workloads = {}
    for obj in found:
        try:
            workload = to_workload(obj)
        except (ValueError, msgspec.DecodeError):
            continue  # The controller reports unreadable Workloads.
        workloads[workload.key] = workload
    return workloads


async def _write_plan(
    store: InspectedStore, workloads: Mapping[WorkloadKey, Workload], *, unreadable: int, fence: int
) -> Rebuilt:
    stored = await store.read_plan(tuple(PlanTable))
    plan, _ = read_rows(stored)
    true = {table: _true_rows(table, plan, workloads) for table in PLAN_TABLES}
    history, learned = _history(plan, workloads)
    number = stored.version.number if stored.version is not None else 0
    # Skip a number: with the next number, a live leader's next write would be taken for a
    # repetition of this one.
    version = PlanVersion(fence, number + 2)
    write = PlanWrite(version=version, after=None, rows={**true, **{table: {} for table in HISTORY_TABLES}})
    await store.write_plan(write, fence=fence)
    for table, rows in history.items():
        fields = list(rows.items())
        for at in range(0, len(fields), _ROWS_AT_ONCE):
            after, version = version, PlanVersion(fence, version.number + 1)
            chunk = dict(fields[at : at + _ROWS_AT_ONCE])
            await store.write_plan(PlanWrite(version=version, after=after, rows={table: chunk}), fence=fence)
    kept = sum(len(rows) for rows in (*true.values(), *history.values()))
    before = sum(len(plan.table(table)) for table in PLAN_TABLES)
    untrue = before - sum(len(rows) for rows in true.values())
    return Rebuilt(unreadable=unreadable, untrue=untrue, kept=kept, learned=learned)


def _true_rows(
    table: PlanTable, plan: PlanValues, workloads: Mapping[WorkloadKey, Workload]
) -> dict[str, bytes]:
    """Return the rows whose Workload still exists in the state that the table is for."""
    if table is PlanTable.MOVES:
        # Moves count against a policy's limit for an hour, also if the moved Workload no longer exists.
        return {to_field(table, key): to_row(value) for key, value in plan.moves.items()}
    rows = {}
    for key, value in plan.table(table).items():
        owner, uid = key if table is PlanTable.OUTRUN else (key, getattr(value, "uid", None))
        workload = workloads.get(owner)
        if workload is None or workload.is_finished or uid not in (None, workload.uid):
            continue
        if workload.has_quota_reservation is (table is PlanTable.LEASES):
            rows[to_field(table, key)] = to_row(value)
    return rows


def _history(
    plan: PlanValues, workloads: Mapping[WorkloadKey, Workload]
) -> tuple[dict[PlanTable, dict[str, bytes]], int]:
    """Return the known runs with those of finished Workloads added, and the number of changed entries."""
    # Use the controller's own code, so that the result is what it would learn from these Workloads.
    cache = Cache()
    finished_runs = FinishedRuns(cache)
    learned = tables(cache)
    adopt_history(cache, plan, is_whole=True)
    ended = [one for one in workloads.values() if one.is_finished]
    for workload in sorted(ended, key=lambda one: (one.conditions["Finished"].at, one.uid)):
        finished_runs.learn(workload)
    rows: dict[PlanTable, dict[str, bytes]] = {}
    news = 0
    for table in HISTORY_TABLES:
        known = plan.table(table)
        news += sum(known.get(key) != value for key, value in learned[table].items())
        rows[table] = {
            to_field(table, key): to_row(stored_value(value)) for key, value in learned[table].items()
        }
    return rows, news
