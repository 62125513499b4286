"""HTTP: the plan and the decision log as JSON, served by every replica.

The plan is read from this replica's engine, which shows the leader's plan. The decision log is
read from the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.runtime.large_reads import LargeReads, encoded
from api.http.server import HttpError, Request, Response, Route, json_response
from api.parsing.decimals import whole_number
from api.workload import to_rfc3339
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.reservations.reservations import LOG_LENGTH, LoggedDecision, ReservationError

_DEFAULT_DECISIONS = 100

# Returns up to that many of the last decisions, the newest first.
Decisions = Callable[[int], Awaitable[tuple[LoggedDecision, ...]]]


class PlanApi:
    """Serves /v1/plan and /v1/decisions. `decisions` None: this replica has no decision log."""

    def __init__(self, cluster_state: ClusterState, decisions: Decisions | None, reads: LargeReads) -> None:
        self._cluster_state = cluster_state
        self._reads = reads
        self._decisions = decisions

    def routes(self) -> list[Route]:
        """Return the two routes."""
        return [Route("GET", "/v1/plan", self._plan), Route("GET", "/v1/decisions", self._logged)]

    async def _plan(self, request: Request) -> Response:
        del request
        promises, leases = self._cluster_state.engine.promises.plan()
        return json_response(
            {
                "promises": await encoded(self._reads, map(promise_json, promises)),
                "leases": await encoded(self._reads, map(_lease, leases)),
            }
        )

    async def _logged(self, request: Request) -> Response:
        if self._decisions is None:
            raise HttpError(404, "this replica only observes, so it has no decision log")
        limit = _limit(request)
        workload, what = request.query.get("workload"), request.query.get("what")
        # The last decisions on one Workload may be far back in the log.
        is_filtered = workload is not None or what is not None
        try:
            found = await self._decisions(LOG_LENGTH if is_filtered else limit)
        except ReservationError as error:
            raise HttpError(503, str(error)) from error
        wanted = (
            one
            for one in found
            if workload in (None, f"{one.key.namespace}/{one.key.name}") and what in (None, one.what)
        )
        items = map(decision_json, islice(wanted, limit))
        return json_response({"items": await encoded(self._reads, items)})


def promise_json(planned: PlannedStart) -> dict[str, Any]:
    """Return a promise and its Workload as JSON."""
    return {
        "namespace": planned.key.namespace,
        "name": planned.key.name,
        "clusterQueue": planned.cluster_queue,
        "startAt": to_rfc3339(planned.start_at),
        "firstStartAt": to_rfc3339(planned.first_start_at),
        "madeAt": to_rfc3339(planned.made_at),
        "domain": planned.domain,
        "borrows": planned.borrows,
        "moves": planned.moves,
        "cause": planned.cause,
    }


def decision_json(one: LoggedDecision) -> dict[str, Any]:
    """Return an entry of the decision log as JSON."""
    return {
        "at": to_rfc3339(one.at),
        "by": one.by,
        "fence": one.fence,
        "cycle": one.cycle,
        "namespace": one.key.namespace,
        "name": one.key.name,
        "decision": one.what,
        "reason": one.reason,
        "message": one.message,
        "startAt": None if one.start_at is None else to_rfc3339(one.start_at),
    }


def _lease(lease: BackfillLease) -> dict[str, Any]:
    promised = lease.promised
    return {
        "namespace": lease.key.namespace,
        "name": lease.key.name,
        "clusterQueue": lease.cluster_queue,
        "startedAt": to_rfc3339(lease.started_at),
        "isEvictable": lease.is_evictable,
        "evictionSeconds": lease.eviction_seconds,
        "inTheWayOf": None if promised is None else f"{promised.namespace}/{promised.name}",
    }


def _limit(request: Request) -> int:
    text = request.query.get("limit", str(_DEFAULT_DECISIONS))
    limit = whole_number(text)
    if limit is None or not 1 <= limit <= LOG_LENGTH:
        raise HttpError(400, f"limit={text!r}: expected a number from 1 to {LOG_LENGTH}")
    return limit
