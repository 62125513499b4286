"""Usage: the GPU-hours that Workloads have used, waited for and lost, and their price, by queue or user.

All is computed from the Workloads that still exist, so it survives restarts and needs no store, and counts
nothing of those that are deleted. An object has the times of its last attempt, and of the attempts before it
only how long they took together:

    created ── waits ── earlier attempts, in all accumulated seconds ── admitted ── last attempt ── finished
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from admission.answers.items import Item
from admission.answers.selection import BadSelectionError, nearest
from admission.answers.workload_items import WorkloadItems, status_of
from admission.engine.engine import Engine
from admission.preemption.device_price import device_money
from api.jobs.checkpoint_annotations import reports_checkpoints
from api.jobs.resource_requests import gpus_of
from api.keys import SUBMITTER
from api.parsing.durations import DurationError, parse_duration
from api.reasons import ConditionType
from api.workload import Workload, to_rfc3339, to_seconds

_SECONDS_PER_HOUR = 3600.0
# A week.
_DEFAULT_SECONDS = 604800.0
_SECONDS_PER_DAY = 86400.0
# Longer texts are no time.
_TIME_SIGNS = 64


class UsageBy(StrEnum):
    """What usage is summed by: ClusterQueue, namespace, or the user who submitted it."""

    QUEUE = "queue"
    NAMESPACE = "namespace"
    USER = "user"


class UsageItem(Item, frozen=True, kw_only=True):
    """What Workloads of one queue, namespace or user have used since then.

    `name` "" is for Workloads without one. `gpuHoursUsed` are of all attempts. `hoursWaited` are those of
    Workloads, not of GPUs. `gpuHoursLost` are those of attempts that were evicted, of Workloads that report
    no checkpoints. `cost` is that of `gpuHoursUsed`, by the prices of nodes and flavors.
    """

    name: str
    workloads: int
    gpu_hours_used: float
    hours_waited: float
    gpu_hours_lost: float
    evictions: int
    cost: float


class Usage(Item, frozen=True, kw_only=True):
    """Usage since an instant, the largest first."""

    by: UsageBy
    since: str
    until: str
    items: tuple[UsageItem, ...]


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: `since` is in Unix seconds, `namespaces` None for all that may be seen."""

    by: UsageBy
    since: float
    namespaces: frozenset[str] | None = None


def read_usage_query(query: Mapping[str, str], *, now: float) -> UsageQuery:
    """Return what the texts of a URL ask for. Raises BadSelectionError. `now` is in Unix seconds."""
    for name in query:
        if name not in _PARAMETERS:
            raise BadSelectionError(nearest("query parameter", name, _PARAMETERS))
    by = query.get("by", UsageBy.QUEUE.value)
    if by not in list(UsageBy):
        raise BadSelectionError(nearest("word for by", by, list(UsageBy)))
    named = query.get("namespace")
    return UsageQuery(
        by=UsageBy(by),
        since=_instant(query["since"], now) if "since" in query else now - _DEFAULT_SECONDS,
        namespaces=None if named is None else frozenset(named.split(",")),
    )


def usage(engine: Engine, query: UsageQuery, *, sees: Callable[[str], bool], now: float) -> Usage:
    """Return the usage of the Workloads in the namespaces that `sees` allows. `now` is in Unix seconds."""
    sums: dict[str, _Sum] = {}
    name_of = _NAMES[query.by]
    items = WorkloadItems(engine)
    for workload in engine.workloads.workloads():
        namespace = workload.key.namespace
        is_wanted = query.namespaces is None or namespace in query.namespaces
        if is_wanted and sees(namespace) and _ended_at(workload, now) > query.since:
            sums.setdefault(name_of(items, workload), _Sum()).add(engine, workload, query.since, now)
    return Usage(
        by=query.by,
        since=to_rfc3339(query.since),
        until=to_rfc3339(now),
        items=tuple(_in_order(one.item(name) for name, one in sums.items())),
    )


@dataclass(slots=True)
class _Sum:
    """Seconds of several Workloads; `used` and `lost` are those of GPUs."""

    workloads: int = 0
    used: float = 0.0
    waited: float = 0.0
    lost: float = 0.0
    evictions: int = 0
    cost: float = 0.0

    def add(self, engine: Engine, workload: Workload, since: float, now: float) -> None:
        """Add what the Workload has used since then."""
        gpus, admission = _gpus(engine, workload), workload.admission
        last, earlier = _last_attempt(workload, since, now), _earlier_attempts(workload, since, now)
        self.workloads += 1
        self.used += (last + earlier) * gpus
        if not reports_checkpoints(workload):
            self.lost += earlier * gpus
        if status_of(workload) != "deactivated":
            existed = _ended_at(workload, now) - max(workload.created_at, since)
            self.waited += max(0.0, existed - last - earlier)
        self.evictions += sum(workload.evictions.values())
        if admission is not None:
            # Of earlier attempts no object says where they ran: they have the price of the last one.
            self.cost += device_money(admission, (last + earlier) * gpus, engine.nodes.device_price)

    def item(self, name: str) -> UsageItem:
        """Return the sum in hours."""
        return UsageItem(
            name=name,
            workloads=self.workloads,
            gpu_hours_used=_hours(self.used),
            hours_waited=_hours(self.waited),
            gpu_hours_lost=_hours(self.lost),
            evictions=self.evictions,
            cost=round(self.cost, 2),
        )


def _in_order(items: Iterable[UsageItem]) -> list[UsageItem]:
    return sorted(items, key=lambda one: (-one.gpu_hours_used, one.name))


def _ended_at(workload: Workload, now: float) -> float:
    return workload.end.at if workload.end is not None else now


def _last_attempt(workload: Workload, since: float, now: float) -> float:
    """Return how many seconds the last attempt ran since then; 0 if it was evicted, or none has begun."""
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    if admitted is None or not admitted.status:
        return 0.0
    return max(0.0, _ended_at(workload, now) - max(admitted.at, since))


def _earlier_attempts(workload: Workload, since: float, now: float) -> float:
    """Return how many seconds the attempts before ran since then, as late as they may have been."""
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    # The condition changes as an attempt begins and as it ends.
    before = admitted.at if admitted is not None else now
    return min(float(workload.accumulated_execution_seconds), max(0.0, before - since))


def _gpus(engine: Engine, workload: Workload) -> int:
    """Return how many GPUs it holds, or else asks for."""
    if workload.admission is not None:
        return sum(gpus_of(one.usage) for one in workload.admission.pod_sets)
    return sum(gpus_of(one.total()) for one in engine.workloads.requests(workload.key))


def _hours(seconds: float) -> float:
    return round(seconds / _SECONDS_PER_HOUR, 3)


def _instant(text: str, now: float) -> float:
    """Return the instant of a time, or of a duration before now such as 12h or 30d; 1970 at the earliest."""
    try:
        if len(text) > _TIME_SIGNS:
            raise ValueError(text)
        return max(0.0, _before(text, now))
    except ValueError as error:
        expected = "a time such as 2026-01-31T00:00:00Z, or a duration such as 12h or 30d"
        raise BadSelectionError(f"since={text[:_TIME_SIGNS]!r}: expected {expected}") from error


def _before(text: str, now: float) -> float:
    days = text.removesuffix("d")
    if days != text and days.isascii() and days.isdigit():
        return now - int(days) * _SECONDS_PER_DAY
    try:
        return now - parse_duration(text)
    except DurationError:
        return to_seconds(text)


_PARAMETERS = ("by", "since", "namespace")
_NAMES: Mapping[UsageBy, Callable[[WorkloadItems, Workload], str]] = {
    UsageBy.QUEUE: lambda items, workload: items.cluster_queue(workload),
    UsageBy.NAMESPACE: lambda _, workload: workload.key.namespace,
    UsageBy.USER: lambda _, workload: workload.annotations.get(SUBMITTER, ""),
}
