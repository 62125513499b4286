"""No answer names what a tenant may not see: every text of every route, with another tenant beside it."""

from __future__ import annotations

from collections.abc import Iterator

import aiohttp
import msgspec
import pytest

from admission.controller.http.plan_api import PlanApi
from admission.controller.http.query_api import QueryApi
from admission.controller.http.state_api import StateApi
from admission.controller.page.changes import Changes
from admission.controller.page.routes import PageRoutes
from admission.controller.queries.callers import Rights, Viewers
from admission.controller.runtime.large_reads import LargeReads
from admission.decisions.decision import Evict
from admission.reconcile.decision_texts import decision_text
from api import keys
from api.http.server import HttpServer, Route
from api.reasons import EvictionReason
from api.workload import WorkloadKey
from queues.reservations.reservations import LoggedDecision
from tests.admission.controller.known import Object, local_queue_object, namespace_object, workload_object
from tests.admission.controller.queries.asking import Asked, running_workload, two_teams

# The other tenant's namespace and the names of its Workloads, one of which has these as its uid.
SECRET = "hush"
UID = "5e0f"
READER = "Bearer ada"
PREEMPTED = f"Preempted to accommodate a workload (UID: {UID}, JobUID: ) due to prioritization"


def scene() -> tuple[Object, ...]:
    """Return ada's Workloads in one queue with those of another tenant.

    One is to be evicted for a Workload of that tenant, one was, and the others wait for what that tenant
    holds.
    """
    request = {
        "reason": "Preempted",
        "preemptorUid": UID,
        "requestedAt": "2026-01-01T00:00:05Z",
        "deadline": "2026-01-01T09:00:05Z",
        "reservedAt": "2026-01-01T00:00:01Z",
        "message": PREEMPTED,
    }
    saving = running_workload("saving", "ada", "queue-a", at=1)
    saving["metadata"]["annotations"] = {keys.EVICTION: msgspec.json.encode(request).decode()}
    evicted = {"type": "Evicted", "status": "True", "reason": "Preempted", "message": PREEMPTED}
    stopped = workload_object("stopped", "ada", "lq", priority=-1)
    stopped["status"] = {"conditions": [{**evicted, "lastTransitionTime": "2026-01-01T00:00:05Z"}]}
    following = workload_object(f"{SECRET}-next", SECRET, "lq", priority=9)
    following["metadata"]["uid"] = UID
    holding = [running_workload(f"{SECRET}-{at}", SECRET, "queue-a", at=at, says=3600) for at in (2, 3, 4)]
    queue = local_queue_object("lq", SECRET, "queue-a")
    return *two_teams(), namespace_object(SECRET), queue, saving, stopped, following, *holding


def logged() -> LoggedDecision:
    """Return what the log has of an eviction for the other tenant."""
    evict = Evict(
        key=WorkloadKey("ada", "stopped"),
        uid="stopped",
        resource_version="1",
        reason=EvictionReason.PREEMPTED,
        message=PREEMPTED,
        preemptor=WorkloadKey(SECRET, f"{SECRET}-next"),
    )
    return LoggedDecision(
        at=0.0,
        by="replica",
        fence=1,
        key=evict.key,
        uid=evict.uid,
        what="Evict",
        message=decision_text(evict),
    )


def _paths(route: Route) -> Iterator[str]:
    """Yield the route's path with each name that ada knows."""
    names = ("a", "saving", "stopped", "queue-a", "lq", "all", "digest")
    if "{" not in route.path:
        yield route.path
        return
    for name in names:
        yield route.path.format(namespace="ada", name=name, digest="digest")


@pytest.fixture
async def texts() -> dict[str, str]:
    """Give the answers of all routes to ada, by path."""
    asked = Asked(*scene(), decisions=(logged(),))
    known, limits = asked.known, asked.service.limits
    see = Viewers(asked.callers, Rights(asked.authorization), limits).see
    reads = LargeReads(known.clock)
    routes = [
        *PageRoutes(asked.service, asked.callers.caller, known.clock, changes=Changes()).routes(),
        *QueryApi(asked.service, asked.callers).routes(),
        *StateApi(known.cluster_state, reads, see).routes(),
        *PlanApi(known.cluster_state, reads, see).routes(),
    ]
    found = {}
    async with HttpServer(routes) as server, aiohttp.ClientSession(headers={"Authorization": READER}) as ada:
        for route in routes:
            for path in _paths(route) if route.method == "GET" and route.path != "/changes" else ():
                # Of the questions that are tried on the engine a caller has two a second.
                known.clock.at += 1.0
                async with ada.get(f"{server.url}{path}") as answer:
                    found[f"{answer.status} {path}"] = await answer.text()
        question = {"namespace": "ada", "objects": [workload_object("new", "ada", "lq")]}
        async with ada.post(f"{server.url}/v1/what-if", json=question) as answer:
            found[f"{answer.status} what-if"] = await answer.text()
    return found


async def test_no_answer_names_what_is_of_another_tenant(texts: dict[str, str]) -> None:
    assert [path for path, text in texts.items() if SECRET in text] == []
    # What is left out is said all the same, and what is its own is there.
    assert (
        "To be evicted for a Workload of another namespace"
        in texts["200 /v1/workloads/ada/saving/explanation"]
    )
    assert '"heldByHidden"' in texts["200 /v1/workloads/ada/a/explanation"]
    assert '"namespace":"ada"' in texts["200 /v1/decisions"]
    assert "200 what-if" in texts


def _keys(value: object) -> Iterator[str]:
    """Yield the keys of all objects in a JSON value."""
    if isinstance(value, dict):
        yield from value
        for one in value.values():
            yield from _keys(one)
    elif isinstance(value, list):
        for one in value:
            yield from _keys(one)


async def test_keys_of_all_answers_are_written_as_in_the_kubernetes_api(texts: dict[str, str]) -> None:
    # The names of the OpenAPI document's schemas are of Python's types.
    bodies = {
        path: text
        for path, text in texts.items()
        if path.startswith("200 ") and text.startswith("{") and "openapi" not in path
    }

    keys = {(path, key) for path, text in bodies.items() for key in _keys(msgspec.json.decode(text))}
    assert len(bodies) > 10
    assert {"localQueueName", "expectedStart", "heldByHidden"} <= {key for _, key in keys}
    assert [(path, key) for path, key in sorted(keys) if "_" in key] == []
