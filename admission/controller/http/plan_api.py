"""HTTP: the plan as JSON, served by every replica.

It is read from this replica's engine, which shows the leader's plan.
"""

from __future__ import annotations

from typing import Any

from admission.answers.promise_items import promise_item
from admission.answers.sight import Sight
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.queries.callers import See
from admission.controller.runtime.large_reads import LargeReads, encoded
from api.http.server import Request, Response, Route, json_response
from api.parsing.times import to_rfc3339
from queues.profile.planned_start import BackfillLease


class PlanApi:
    """Serves /v1/plan. `see`: what a caller may see."""

    def __init__(self, cluster_state: ClusterState, reads: LargeReads, see: See) -> None:
        self._cluster_state = cluster_state
        self._reads = reads
        self._see = see

    def routes(self) -> list[Route]:
        """Return the route."""
        return [Route("GET", "/v1/plan", self._plan)]

    async def _plan(self, request: Request) -> Response:
        engine = self._cluster_state.engine
        sight = await self._see(request, engine.queues.namespaces())
        promises, leases = engine.promises.plan()
        shown = (promise_item(one) for one in promises if sight.sees(one.key.namespace))
        ahead = (_lease(one, sight) for one in leases if sight.sees(one.key.namespace))
        return json_response(
            {
                "promises": await encoded(self._reads, shown),
                "leases": await encoded(self._reads, ahead),
            }
        )


def _lease(lease: BackfillLease, sight: Sight) -> dict[str, Any]:
    promised = lease.promised
    is_named = promised is not None and sight.sees(promised.namespace)
    return {
        "namespace": lease.key.namespace,
        "name": lease.key.name,
        "clusterQueue": lease.cluster_queue,
        "startedAt": to_rfc3339(lease.started_at),
        "isEvictable": lease.is_evictable,
        "evictionSeconds": lease.eviction_seconds,
        "inTheWayOf": str(promised) if is_named else None,
    }
