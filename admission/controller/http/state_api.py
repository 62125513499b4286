"""HTTP: metrics, and the state of queues and Workloads as JSON. Handlers only read views."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from admission.answers.items import instant
from admission.answers.sight import Sight
from admission.cache.workload_record import Problem
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.gauges.collector import QueueCollector
from admission.controller.metrics.placement_metrics import DomainCollector
from admission.controller.metrics.registry import Metrics
from admission.controller.queries.callers import See
from admission.controller.runtime.large_reads import LargeReads, encoded
from admission.engine.engine import Engine
from admission.status.last_eviction import eviction_json, past_eviction
from admission.status.views import ClusterQueueView, PendingWorkloadView
from api.eviction import EvictionRequest, current_request
from api.http.server import HttpError, Request, Response, Route, json_response
from api.parsing.decimals import whole_number
from api.parsing.times import to_rfc3339
from api.workload import WorkloadKey
from api.workload_status import admission_body
from queues.estimates.runtime_estimate import Estimate
from queues.profile.planned_start import PlannedStart

# How many entries a list returns by default, as in Kueue's visibility API.
DEFAULT_LIMIT = 1000
MAX_LIMIT = 100_000


# How many Workloads are listed at most that a promised Workload waits for.
MOST_HOLDERS = 20


def metrics_route(metrics: Metrics, queues: QueueCollector, domains: DomainCollector) -> Route:
    """Return /metrics. With many queues the text takes long to build, so a thread builds it."""
    turn = asyncio.Lock()

    async def handle(request: Request) -> Response:
        del request
        # One text at a time: each thread that formats takes its part of the interpreter from the event loop.
        async with turn:
            # The values are read in slices on the event loop. The thread only formats values
            # that no longer change.
            await queues.refresh()
            await domains.refresh()
            body = await asyncio.to_thread(metrics.render)
        return Response(body=body, content_type="text/plain; version=0.0.4; charset=utf-8")

    return Route("GET", "/metrics", handle)


class StateApi:
    """One Workload in all detail, and the order of a queue. `see`: what a caller may see."""

    def __init__(self, cluster_state: ClusterState, reads: LargeReads, see: See) -> None:
        self._cluster_state = cluster_state
        self._reads = reads
        self._see = see

    @property
    def _engine(self) -> Engine:
        return self._cluster_state.engine

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("GET", "/v1/clusterqueues/{name}/pendingworkloads", self._pending),
            Route("GET", "/v1/workloads/{namespace}/{name}", self._workload),
        ]

    async def _pending(self, request: Request) -> Response:
        name = request.parameters["name"]
        sight = await self._see(request, self._engine.queues.namespaces_of(name))
        # 404 for a queue that does not exist, rather than an empty list.
        self._view(name)
        offset, limit = _number(request, "offset", 0), _number(request, "limit", DEFAULT_LIMIT)
        # A larger limit is reduced to the maximum.
        found = await self._reads.collect(self._engine.queues.iter_pending(name))
        page = found[offset : offset + min(limit, MAX_LIMIT)]
        places = self._engine.queues.positions(found)
        items = (
            self._pending_item(places.get(one.key), one) for one in page if sight.sees(one.key.namespace)
        )
        return json_response({"items": await encoded(self._reads, items)})

    def _pending_item(self, position: int | None, one: PendingWorkloadView) -> dict[str, Any]:
        return {
            "namespace": one.key.namespace,
            "name": one.key.name,
            "localQueueName": one.local_queue[1],
            "priority": one.priority,
            "queuedAt": to_rfc3339(one.queued_at),
            "isParked": one.is_parked,
            "positionInClusterQueue": None if position is None else position - 1,
            "canStart": one.can_start,
            "expectedStart": instant(self._engine.promises.expected_start(one.key)),
            "expectedAfter": instant(self._engine.promises.expected_after(one.key)),
        }

    async def _workload(self, request: Request) -> Response:
        key = WorkloadKey(request.parameters["namespace"], request.parameters["name"])
        sight = await self._see(request, {key.namespace})
        seen = self._cluster_state.look_up(key)
        if seen is None:
            raise HttpError(404, f"there is no Workload {key}")
        workload, _ = seen
        queries, requested = self._engine.workloads, current_request(workload)
        waits_for = self._engine.promises.waits_for(key, MOST_HOLDERS)
        past = past_eviction(workload, queries.key_of)
        if requested is not None:
            requested = queries.named(requested)
        named = [one for one, _ in waits_for]
        named += [one.preemptor for one in (requested, past) if one is not None and one.preemptor is not None]
        others = {one.namespace for one in named if not sight.sees(one.namespace)}
        if others:
            sight = await self._see(request, {key.namespace, *others})
        if past is not None and past.preemptor is not None and not sight.sees(past.preemptor.namespace):
            past = replace(past, preemptor=None)
        if requested is not None and not _is_named(requested, sight):
            requested = replace(requested, preemptor=None)
        return json_response(
            {
                "namespace": key.namespace,
                "name": key.name,
                "queueName": workload.queue_name,
                "priority": workload.priority,
                "holdsQuota": queries.is_holding(key),
                "admission": None if workload.admission is None else admission_body(workload.admission),
                "plannedStart": _planned(self._engine.promises.planned(key)),
                "expectedStart": instant(self._engine.promises.expected_start(key)),
                "expectedAfter": instant(self._engine.promises.expected_after(key)),
                "estimate": _estimate(queries.estimate(workload)),
                "isBackfilled": self._engine.promises.is_backfilled(key),
                "eviction": _eviction(requested),
                "lastEviction": eviction_json(past),
                "evictions": sum(workload.evictions.values()),
                "waitsFor": [{**_named(one, sight), "expectedEnd": to_rfc3339(at)} for one, at in waits_for],
                "problem": _problem(queries.queue_problem(workload)),
                # The condition follows when there is time for it (`api.kube.report_budget`).
                "waiting": _problem(queries.waiting_reason(key)),
                "conditions": [
                    {
                        "type": one.type,
                        "status": one.status,
                        "reason": one.reason,
                        "message": one.message,
                        "at": to_rfc3339(one.at),
                    }
                    for one in workload.conditions.values()
                ],
            }
        )

    def _view(self, name: str) -> ClusterQueueView:
        view = self._engine.queues.cluster_queue_view(name)
        if view is None:
            raise HttpError(404, f"there is no ClusterQueue {name}")
        return view


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    number = whole_number(text)
    if number is None:
        raise HttpError(400, f"{name}={text!r}: expected a number that is not negative")
    return number


def _named(key: WorkloadKey, sight: Sight) -> dict[str, str | None]:
    """Return the Workload's name, or none for a caller that may not know it."""
    if not sight.sees(key.namespace):
        return {"namespace": None, "name": None}
    return {"namespace": key.namespace, "name": key.name}


def _is_named(request: EvictionRequest, sight: Sight) -> bool:
    return request.preemptor is None or sight.sees(request.preemptor.namespace)


def _problem(problem: Problem | None) -> dict[str, str] | None:
    return None if problem is None else {"reason": problem[0], "message": problem[1]}


def _eviction(request: EvictionRequest | None) -> dict[str, Any] | None:
    """Return an eviction that waits for the Workload's checkpoint; None if there is none."""
    if request is None:
        return None
    return {
        "reason": request.reason,
        "preemptor": str(request.preemptor) if request.preemptor is not None else None,
        "requestedAt": to_rfc3339(request.requested_at),
        "deadline": to_rfc3339(request.deadline),
        "message": request.message,
    }


def _planned(planned: PlannedStart | None) -> dict[str, Any] | None:
    if planned is None:
        return None
    return {
        "startAt": to_rfc3339(planned.start_at),
        "firstStartAt": to_rfc3339(planned.first_start_at),
        "madeAt": to_rfc3339(planned.made_at),
        "domain": planned.domain,
        "borrows": planned.borrows,
        "moves": planned.moves,
        "cause": planned.cause,
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"seconds": estimate.seconds, "source": estimate.source, "isEnforced": estimate.is_enforced}
