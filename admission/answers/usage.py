"""Usage: the GPU-hours that Workloads have used, waited for and lost, and their price, by queue or user.

It is computed from the Workloads that exist, and of deleted ones from the sums of each day that the store
keeps (`admission.cache.deleted_usage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

import msgspec

from admission.answers.items import Item
from admission.answers.selection import BadSelectionError, nearest
from admission.cache.workload_usage import SECONDS_PER_DAY, day_of
from admission.engine.engine import Engine
from api.keys import SUBMITTER
from api.parsing.durations import DurationError, parse_duration
from api.parsing.times import to_rfc3339, to_seconds
from queues.reservations.usage_rows import UsageKey, UsageRow

_SECONDS_PER_HOUR = 3600.0
# A week.
_DEFAULT_SECONDS = 604800.0
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
    """Return the usage in the namespaces that `sees` allows. `now` is in Unix seconds."""
    sums: dict[str, UsageRow] = {}

    def add(key: UsageKey, row: UsageRow, share: float = 1.0) -> None:
        is_wanted = query.namespaces is None or key.namespace in query.namespaces
        if is_wanted and sees(key.namespace):
            name = _NAMES[query.by](key)
            sums[name] = sums.get(name, UsageRow()).plus(row, share)

    for workload, queue, row in engine.workloads.usage(since=query.since, now=now):
        user = workload.annotations.get(SUBMITTER, "")
        add(UsageKey(day_of(now), queue, workload.key.namespace, user), row)
    for key, row in engine.workloads.deleted_usage().items():
        # Of the first day counts the share that is asked for: when within it, its row does not say.
        share = (key.day + 1) - query.since / SECONDS_PER_DAY
        if share > 0:
            add(key, row, min(1.0, share))
    return Usage(
        by=query.by,
        since=to_rfc3339(query.since),
        until=to_rfc3339(now),
        items=tuple(_in_order(_item(name, row) for name, row in sums.items())),
    )


def _item(name: str, row: UsageRow) -> UsageItem:
    """Return the sums in hours."""
    return UsageItem(
        name=name,
        workloads=row.workloads,
        gpu_hours_used=_hours(row.used),
        hours_waited=_hours(row.waited),
        gpu_hours_lost=_hours(row.lost),
        evictions=row.evictions,
        cost=round(row.cost, 2),
    )


def _in_order(items: Iterable[UsageItem]) -> list[UsageItem]:
    return sorted(items, key=lambda one: (-one.gpu_hours_used, one.name))


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
        return now - int(days) * SECONDS_PER_DAY
    try:
        return now - parse_duration(text)
    except DurationError:
        return to_seconds(text)


_PARAMETERS = ("by", "since", "namespace")
_NAMES: Mapping[UsageBy, Callable[[UsageKey], str]] = {
    UsageBy.QUEUE: lambda key: key.cluster_queue,
    UsageBy.NAMESPACE: lambda key: key.namespace,
    UsageBy.USER: lambda key: key.user,
}
