"""Checks from recorded API objects whether quota was ever exceeded, for demo, replay and tests.

A recorder watches Workloads, ClusterQueues and Cohorts during a run. `audit` replays the recorded versions in
the order in which the API server wrote them, and checks every limit after every version. It uses no data that
the controller reports about itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from admission.simulation.ledger import NodeKey, QuotaLedger, Use
from admission.simulation.records import ObjectRecord, in_order
from api.objects.workloads import WorkloadObject
from api.parsing.quantities import to_text
from queues.quota.resources import FlavorResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A time during which a node used more than its limit. `used` and `limit` are the values at its start.

    `by_admission`: it started when a Workload got quota. Otherwise a limit was lowered below the current
    usage, which is not a fault of the controller.
    """

    at: float
    node: NodeKey
    flavor_resource: FlavorResource
    used: int
    limit: int
    by_admission: bool
    cause: str

    def __str__(self) -> str:
        flavor, resource = self.flavor_resource
        used, most = to_text(resource, self.used), to_text(resource, self.limit)
        return f"{self.node} used {used} {resource} of flavor {flavor}, the limit is {most}: {self.cause}"


@dataclass(slots=True)
class UsageInterval:
    """The usage of one flavor-resource by one ClusterQueue: integrals over time and peaks.

    Integrals are in the resource's unit × seconds, peaks in the resource's unit. Borrowed is the usage
    above the nominal quota.
    """

    borrowed_seconds: float = 0.0
    peak_used: int = 0
    peak_borrowed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The result of an audit. `usage` is by ClusterQueue and flavor-resource."""

    breaches: tuple[Breach, ...]
    usage: Mapping[tuple[str, FlavorResource], UsageInterval]
    versions: int

    @property
    def exceeded(self) -> tuple[Breach, ...]:
        """Return the violations that an admission caused."""
        return tuple(breach for breach in self.breaches if breach.by_admission)


def audit(records: Iterable[ObjectRecord]) -> Audit:
    """Return every violation in the records, and the usage of each ClusterQueue.

    The records of one kind must be in the order of their watch. Between kinds the resourceVersion decides, so
    that a quota which was raised before it was used does not count as exceeded. The integrals end with the
    last record.
    """
    ordered = in_order(records)
    state = _Audit()
    for record in ordered:
        state.take(record)
    return Audit(breaches=tuple(state.breaches), usage=state.usage, versions=len(ordered))


class _Audit:
    """The state of a running audit."""

    def __init__(self) -> None:
        self.breaches: list[Breach] = []
        self.usage: dict[tuple[str, FlavorResource], UsageInterval] = {}
        self._ledger = QuotaLedger()
        self._over: set[tuple[NodeKey, FlavorResource]] = set()
        self._at: float | None = None

    def take(self, record: ObjectRecord) -> None:
        self._integrate(record.at)
        if not self._ledger.apply(record):
            return
        self._look(record)
        self._note_peaks()

    def _look(self, record: ObjectRecord) -> None:
        over: dict[tuple[NodeKey, FlavorResource], Use] = {
            (use.node, use.flavor_resource): use for use in self._ledger.uses() if use.is_over
        }
        for place, use in over.items():
            if place not in self._over:
                self.breaches.append(_breach(use, record))
        self._over = set(over)

    def _integrate(self, at: float) -> None:
        since = self._at
        # Records are in the order of the server's writes, but two watches may deliver them in another order,
        # so time must not go backwards here.
        self._at = at if since is None else max(since, at)
        if since is None or self._at == since:
            return
        seconds = self._at - since
        for place, _, borrowed in self._queue_uses():
            usage = self.usage.setdefault(place, UsageInterval())
            usage.borrowed_seconds += borrowed * seconds

    def _note_peaks(self) -> None:
        for place, used, borrowed in self._queue_uses():
            usage = self.usage.setdefault(place, UsageInterval())
            usage.peak_used = max(usage.peak_used, used)
            usage.peak_borrowed = max(usage.peak_borrowed, borrowed)

    def _queue_uses(self) -> Iterator[tuple[tuple[str, FlavorResource], int, int]]:
        for name in self._ledger.cluster_queues():
            nominal = self._ledger.nominal(name)
            for fr, used in self._ledger.used(name).items():
                yield (name, fr), used, max(0, used - nominal.get(fr, 0))


def _breach(use: Use, record: ObjectRecord) -> Breach:
    assert use.limit is not None, "a node without a limit cannot exceed it"
    metadata = record.object.metadata
    is_workload = isinstance(record.object, WorkloadObject)
    if is_workload:
        cause = f"Workload {metadata.namespace}/{metadata.name} got quota"
    else:
        cause = f"the quota of {metadata.name} was changed"
    return Breach(
        at=record.at,
        node=use.node,
        flavor_resource=use.flavor_resource,
        used=use.used,
        limit=use.limit,
        by_admission=is_workload,
        cause=cause,
    )
