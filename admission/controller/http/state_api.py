"""HTTP: metrics, and the state of queues and Workloads as JSON. Handlers only read views."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Any

from admission.cache.workload_record import Problem
from admission.calendar.advance_reservations import ReservedCapacity
from admission.controller.cluster_state.cluster_state import ClusterState
from admission.controller.gauges.collector import QueueCollector
from admission.controller.http.checkpoint_reports import REPORT_OPERATION
from admission.controller.metrics.placement_metrics import DomainCollector
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.large_reads import LargeReads, encoded
from admission.engine.engine import Engine
from admission.status.last_eviction import eviction_json, past_eviction
from admission.status.views import ClusterQueueView, FlavorUsages, PendingWorkloadView
from api.eviction import EvictionRequest, current_request
from api.http.server import HttpError, Request, Response, Route, json_response
from api.parsing.decimals import whole_number
from api.parsing.quantities import to_text
from api.workload import WorkloadKey, to_rfc3339
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
    """/v1: the controller's state and decisions, read-only."""

    def __init__(self, cluster_state: ClusterState, reads: LargeReads) -> None:
        self._cluster_state = cluster_state
        self._reads = reads

    @property
    def _engine(self) -> Engine:
        return self._cluster_state.engine

    def routes(self) -> list[Route]:
        """Return the routes of /v1."""
        return [
            Route("GET", "/v1/clusterqueues", self._cluster_queues),
            Route("GET", "/v1/clusterqueues/{name}", self._cluster_queue),
            Route("GET", "/v1/clusterqueues/{name}/pendingworkloads", self._pending),
            Route("GET", "/v1/workloads/{namespace}/{name}", self._workload),
            Route("GET", "/v1/openapi.json", self._openapi),
        ]

    async def _cluster_queues(self, request: Request) -> Response:
        del request
        views = (
            self._engine.queues.cluster_queue_view(name)
            for name in sorted(self._cluster_state.specs.cluster_queues)
        )
        items = (_queue(view) for view in views if view is not None)
        return json_response({"items": await encoded(self._reads, items)})

    async def _cluster_queue(self, request: Request) -> Response:
        return json_response(_queue(self._view(request.parameters["name"])))

    async def _pending(self, request: Request) -> Response:
        name = request.parameters["name"]
        # 404 for a queue that does not exist, rather than an empty list.
        self._view(name)
        offset, limit = _number(request, "offset", 0), _number(request, "limit", DEFAULT_LIMIT)
        # A larger limit is reduced to the maximum.
        found = await self._reads.collect(self._engine.queues.iter_pending(name))
        page = found[offset : offset + min(limit, MAX_LIMIT)]
        places = self._engine.queues.positions(found)
        items = (self._pending_item(places.get(one.key), one) for one in page)
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
            "expectedStart": _instant(self._engine.promises.expected_start(one.key)),
            "expectedAfter": _instant(self._engine.promises.expected_after(one.key)),
        }

    async def _workload(self, request: Request) -> Response:
        key = WorkloadKey(request.parameters["namespace"], request.parameters["name"])
        seen = self._cluster_state.look_up(key)
        if seen is None:
            raise HttpError(404, f"there is no Workload {key}")
        workload, _ = seen
        queries = self._engine.workloads
        return json_response(
            {
                "namespace": key.namespace,
                "name": key.name,
                "queueName": workload.queue_name,
                "priority": workload.priority,
                "holdsQuota": queries.is_holding(key),
                "admission": None if workload.admission is None else admission_body(workload.admission),
                "plannedStart": _planned(self._engine.promises.planned(key)),
                "expectedStart": _instant(self._engine.promises.expected_start(key)),
                "expectedAfter": _instant(self._engine.promises.expected_after(key)),
                "estimate": _estimate(queries.estimate(workload)),
                "isBackfilled": self._engine.promises.is_backfilled(key),
                "eviction": _eviction(current_request(workload)),
                "lastEviction": eviction_json(past_eviction(workload, self._key_of)),
                "evictions": sum(workload.evictions.values()),
                "waitsFor": [
                    {"namespace": one.namespace, "name": one.name, "expectedEnd": to_rfc3339(at)}
                    for one, at in self._engine.promises.waits_for(key, MOST_HOLDERS)
                ],
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

    def _key_of(self, uid: str) -> WorkloadKey | None:
        seen = self._cluster_state.workloads.by_uid(uid)
        return None if seen is None else seen.value.key

    async def _openapi(self, request: Request) -> Response:
        del request
        return json_response(_OPENAPI)

    def _view(self, name: str) -> ClusterQueueView:
        view = self._engine.queues.cluster_queue_view(name)
        if view is None:
            raise HttpError(404, f"there is no ClusterQueue {name}")
        return view


def _queue(view: ClusterQueueView) -> dict[str, Any]:
    return {
        "name": view.name,
        "isActive": view.is_active,
        "reason": view.reason or "Ready",
        "message": view.message,
        "pending": view.pending,
        "inadmissible": view.parked_pending,
        "reserving": view.reserving,
        "admitted": view.admitted,
        "flavorsReservation": _flavors(view.flavors_reservation),
        "flavorsUsage": _flavors(view.flavors_usage),
        "quotasInForce": [
            {
                "flavor": pair.flavor,
                "resource": pair.resource,
                "nominalQuota": to_text(pair.resource, present.amount),
                "insteadOf": to_text(pair.resource, present.nominal),
                "window": present.window,
                "until": to_rfc3339(present.closes_at) if present.closes_at < inf else None,
            }
            for pair, present in sorted(view.quotas_in_force.items())
        ],
        "reservations": [_reservation(kept, has_begun) for kept, has_begun in view.reservations],
    }


def _reservation(kept: ReservedCapacity, has_begun: bool) -> dict[str, Any]:
    return {
        "name": kept.id.name,
        "policy": kept.id.policy,
        "namespace": kept.local_queue[0],
        "localQueueName": kept.local_queue[1],
        "start": to_rfc3339(kept.start_at),
        "end": to_rfc3339(kept.end_at),
        "hasBegun": has_begun,
        "domain": kept.domain.name if kept.domain is not None else None,
        "nodes": kept.domain.hosts if kept.domain is not None else None,
        "resources": [
            {"flavor": pair.flavor, "resource": pair.resource, "amount": to_text(pair.resource, amount)}
            for pair, amount in sorted(kept.usage.items())
        ],
    }


def _flavors(usages: FlavorUsages) -> dict[str, dict[str, dict[str, str]]]:
    return {
        flavor: {
            resource: {"total": to_text(resource, usage.total), "borrowed": to_text(resource, usage.borrowed)}
            for resource, usage in by_resource.items()
        }
        for flavor, by_resource in usages.items()
    }


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    number = whole_number(text)
    if number is None:
        raise HttpError(400, f"{name}={text!r}: expected a number that is not negative")
    return number


def _get(summary: str, *parameters: str) -> dict[str, Any]:
    # These are parameters of the query, all others are parts of the path.
    places = {"offset": "integer", "limit": "integer", "workload": "string", "what": "string"}
    return {
        "get": {
            "summary": summary,
            "parameters": [
                {
                    "name": name,
                    "in": "query" if name in places else "path",
                    "required": name not in places,
                    "schema": {"type": places.get(name, "string")},
                }
                for name in parameters
            ],
            "responses": {"200": {"description": "as asked", "content": {"application/json": {}}}},
        }
    }


_OPENAPI = {
    "openapi": "3.0.3",
    "info": {"title": "Berth", "version": "v1"},
    "components": {"securitySchemes": {"podToken": {"type": "http", "scheme": "bearer"}}},
    "paths": {
        "/v1/clusterqueues": _get("All ClusterQueues with their use and counts"),
        "/v1/clusterqueues/{name}": _get("One ClusterQueue", "name"),
        "/v1/clusterqueues/{name}/pendingworkloads": _get(
            "Pending Workloads in order", "name", "offset", "limit"
        ),
        "/v1/workloads/{namespace}/{name}": _get(
            "One Workload, and what keeps it waiting", "namespace", "name"
        ),
        "/v1/plan": _get("All planned starts, and Workloads that run ahead of one on a lease"),
        "/v1/decisions": _get("The last decisions, the newest first", "limit", "workload", "what"),
        "/v1/checkpoints": {"post": REPORT_OPERATION},
    },
}


def _instant(at: float | None) -> str | None:
    return None if at is None else to_rfc3339(at)


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
