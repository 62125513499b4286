"""Health and /v1: what callers are answered, also to a wrong request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.controller.http.checkpoint_reports import PATH as REPORTS
from admission.controller.http.health import Health
from admission.controller.http.state_api import StateApi
from admission.controller.runtime.large_reads import LargeReads
from api.http.server import HttpError, Request, Response, Route, Stream
from tests.admission.controller.fakes import FakeClock
from tests.admission.controller.known import (
    Known,
    Object,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)
from tests.admission.controller.queries.asking import open_api, see_everything


def make_routes() -> list[Route]:
    """Return the routes of a cluster with three Workloads in one queue."""
    names = [workload_object(name, "team", "lq", priority=number) for number, name in enumerate("abc")]
    known = Known(
        namespace_object("team"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("cq", "4"),
        local_queue_object("lq", "team", "cq"),
        *names,
        workload_object("lost", "team", "nowhere"),
    )
    detail = StateApi(known.cluster_state, LargeReads(FakeClock()), see_everything)
    return [*detail.routes(), *open_api(known.cluster_state)]


async def ask(routes: list[Route], path: str, query: dict[str, str] | None = None, **names: str) -> Response:
    """Return the answer of the route with this path."""
    route = next(route for route in routes if route.path == path)
    answer = await route.handler(Request(method="GET", path=path, parameters=names, query=query or {}))
    assert not isinstance(answer, Stream)
    return answer


PENDING = "/v1/clusterqueues/{name}/pendingworkloads"
WORKLOAD = "/v1/workloads/{namespace}/{name}"


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param({}, [("c", 0), ("b", 1), ("a", 2)], id="all, the first in order first"),
        pytest.param({"offset": "1"}, [("b", 1), ("a", 2)], id="from a place on"),
        pytest.param({"limit": "1"}, [("c", 0)], id="a limit"),
        pytest.param({"offset": "1", "limit": "1"}, [("b", 1)], id="a limit from a place on"),
        pytest.param({"offset": "9"}, [], id="none behind the last"),
    ],
)
async def test_the_pending_workloads(query: dict[str, str], want: list[tuple[str, int]]) -> None:
    answer = await ask(make_routes(), PENDING, query, name="cq")

    items = msgspec.json.decode(answer.body)["items"]
    assert [(one["name"], one["positionInClusterQueue"]) for one in items] == want


@pytest.mark.parametrize("text", ["-1", "ten", "1.5", ""])
async def test_a_number_that_is_none_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(HttpError, match=f"limit='{text}'.*not negative") as caught:
        await ask(make_routes(), PENDING, {"limit": text}, name="cq")

    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("path", "names"),
    [
        pytest.param("/v1/clusterqueues/{name}", {"name": "gone"}, id="a ClusterQueue"),
        pytest.param(PENDING, {"name": "gone"}, id="the waiting of one"),
        pytest.param(WORKLOAD, {"namespace": "team", "name": "gone"}, id="a Workload"),
    ],
)
async def test_what_is_not_there_is_named(path: str, names: dict[str, Any]) -> None:
    with pytest.raises(HttpError, match="gone") as caught:
        await ask(make_routes(), path, **names)

    assert caught.value.status == 404


async def test_a_workload_without_a_queue_shows_what_is_wrong() -> None:
    routes = make_routes()

    lost = msgspec.json.decode((await ask(routes, WORKLOAD, namespace="team", name="lost")).body)
    queued = msgspec.json.decode((await ask(routes, WORKLOAD, namespace="team", name="a")).body)

    assert "nowhere" in lost["problem"]["message"]
    assert (queued["problem"], queued["holdsQuota"]) == (None, False)


async def test_a_workload_shows_why_it_waits_before_that_is_written() -> None:
    known = Known(
        namespace_object("team"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("cq", "1"),
        local_queue_object("lq", "team", "cq"),
        *(
            workload_object(name, "team", "lq", created=f"2026-01-01T00:00:0{at}Z")
            for at, name in enumerate("abc")
        ),
    )
    engine, now = known.cluster_state.engine, 1_767_225_610.0
    while engine.wake_heads(now=now):
        engine.cycle(now=now)
    routes = StateApi(known.cluster_state, LargeReads(FakeClock()), see_everything).routes()

    bodies = [(await ask(routes, WORKLOAD, namespace="team", name=name)).body for name in "abc"]
    admitted, tried, behind = (msgspec.json.decode(body) for body in bodies)

    assert (admitted["holdsQuota"], admitted["waiting"]) == (True, None)
    assert (tried["conditions"], tried["waiting"]["reason"]) == ([], "WaitingForQuota")
    # It was not tried, since it asks for the same.
    assert behind["waiting"] == tried["waiting"]


async def test_a_victim_shows_its_preemptor_and_what_it_lost() -> None:
    said = "Preempted to accommodate a workload (UID: urgent, JobUID: UNKNOWN) due to prioritization"
    at = {"lastTransitionTime": "2026-01-31T12:00:00Z", "message": said}
    annotations = {"berth.dev/checkpoint-time": "2026-01-31T11:50:00Z", "berth.dev/checkpoint-step": "500"}
    victim = workload_object("victim", "team", "lq", annotations=annotations)
    victim["status"] = {
        "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 2}]},
        "conditions": [{**at, "type": "Evicted", "status": "True", "reason": "Preempted"}],
    }
    routes = StateApi(
        Known(workload_object("urgent", "team", "lq"), victim).cluster_state,
        LargeReads(FakeClock()),
        see_everything,
    ).routes()

    last = msgspec.json.decode((await ask(routes, WORKLOAD, namespace="team", name="victim")).body)
    other = msgspec.json.decode((await ask(routes, WORKLOAD, namespace="team", name="urgent")).body)

    assert (other["lastEviction"], other["evictions"]) == (None, 0)
    assert last["evictions"] == 2
    assert last["lastEviction"] == {
        "at": "2026-01-31T12:00:00Z",
        "reason": "Preempted",
        "preemptorUid": "urgent",
        "preemptor": "team/urgent",
        "checkpointTime": "2026-01-31T11:50:00Z",
        "checkpointStep": 500,
        "lostSeconds": 600,
    }


async def test_the_description_names_every_route() -> None:
    routes = make_routes()

    described = msgspec.json.decode((await ask(routes, "/v1/openapi.json")).body)["paths"]

    # Beside these: reports, which write, and the plan.
    elsewhere = {REPORTS, "/v1/plan"}
    assert {*described, "/v1/openapi.json"} - elsewhere == {route.path for route in routes}


@pytest.mark.parametrize(
    ("is_ready", "missing", "want"),
    [
        pytest.param(True, [], (200, b"ok"), id="ready"),
        pytest.param(False, ["jobs", "nodes"], (503, b"waiting for jobs, nodes"), id="what is missing"),
        pytest.param(
            False, [], (503, b"waiting for the API server"), id="or that the API server has not answered"
        ),
    ],
)
async def test_readiness(*, is_ready: bool, missing: list[str], want: tuple[int, bytes]) -> None:
    answer = await ask(Health(lambda: is_ready, lambda: missing).routes(), "/readyz")

    assert (answer.status, answer.body) == want


@pytest.mark.parametrize(("is_stalled", "want"), [(False, 200), (True, 503)])
async def test_health_fails_when_only_a_restart_helps(*, is_stalled: bool, want: int) -> None:
    health = Health(lambda: True, list, is_stalled=lambda: is_stalled)

    assert (await ask(health.routes(), "/healthz")).status == want


def lasting(name: str, seconds: int, at: str) -> Object:
    """Return a Workload of one CPU that says how long it runs."""
    expected = {"berth.dev/expected-runtime-seconds": str(seconds)}
    return workload_object(name, "team", "lq", annotations=expected, created=f"2026-01-01T00:00:{at}Z")


async def test_a_workload_shows_its_promise_its_estimate_and_the_ends_it_waits_for() -> None:
    known = Known(
        namespace_object("team"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("cq", "1"),
        local_queue_object("lq", "team", "cq"),
        made(
            "AdmissionPolicy",
            "p",
            version="berth.dev/v1alpha1",
            spec={"backfill": {"mode": "EASY", "etaDepth": 2, "endingSeconds": 0}},
        ),
        *(lasting(name, seconds, f"0{place}") for place, (name, seconds) in enumerate(LINE)),
    )
    engine, now = known.cluster_state.engine, 1_767_225_610.0
    while engine.wake_heads(now=now):
        engine.cycle(now=now)
    forecast = engine.forecasts.begin(now=now)
    assert forecast is not None
    while forecast.step():
        pass
    engine.forecasts.take(forecast, most=10, now=now)
    routes = StateApi(known.cluster_state, LargeReads(FakeClock()), see_everything).routes()

    async def shown(name: str) -> dict[str, Any]:
        body = (await ask(routes, WORKLOAD, namespace="team", name=name)).body
        return dict(msgspec.json.decode(body))

    head, following, behind = await shown("head"), await shown("next"), await shown("behind")
    end = "2026-01-01T00:01:40Z"
    assert head["plannedStart"]["startAt"] == head["expectedStart"] == end
    assert head["estimate"] == {"seconds": 50.0, "source": "Declared", "isEnforced": False}
    assert head["waitsFor"] == [{"namespace": "team", "name": "running", "expectedEnd": end}]
    assert (following["plannedStart"], following["expectedStart"]) == (None, "2026-01-01T00:02:30Z")
    assert (behind["expectedStart"], behind["expectedAfter"]) == (None, "2026-01-01T00:02:30Z")


DEPTH_OF_TWO = {"mode": "EASY", "etaDepth": 2}
LINE = (("running", 90), ("head", 50), ("next", 20), ("behind", 30))
