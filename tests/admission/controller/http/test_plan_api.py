"""What was promised and decided is shown on every replica: /v1/plan and /v1/decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from admission.controller.http.plan_api import PlanApi
from admission.controller.runtime.large_reads import LargeReads
from api.http.server import HttpError, Request, Stream
from queues.reservations.reservations import LoggedDecision, StoreUnreachable
from tests.admission.controller.fakes import FakeClock
from tests.admission.controller.leadership.test_plan_writer import Site
from tests.admission.controller.queries.asking import open_api, see_everything
from tests.admission.controller.replica import Replica
from tests.admission.controller.virtualtime import end


@pytest.fixture
def site() -> Iterator[Site]:
    """Give a leader that has promised a start, and a follower that shows it."""
    site = Site()
    site.submit("late", 1, 5000)
    site.loop.run_for(10.0)
    yield site
    end(site.loop)


def ask(site: Site, replica: Replica, path: str, **query: str) -> Any:
    async def decisions(limit: int) -> tuple[LoggedDecision, ...]:
        return await site.store.decisions(limit=limit)

    plan = PlanApi(replica.cluster_state, LargeReads(FakeClock()), see_everything)
    routes = [*plan.routes(), *open_api(replica.cluster_state, decisions)]
    route = next(route for route in routes if route.path == path)

    async def answer() -> Any:
        response = await route.handler(Request(method="GET", path=path, parameters={}, query=query))
        assert not isinstance(response, Stream)
        return msgspec.json.decode(response.body)

    return site.loop.run_until_complete(answer())


def test_leader_and_follower_show_the_same_plan(site: Site) -> None:
    shown = ask(site, site.first, "/v1/plan")

    assert [one["name"] for one in shown["promises"]] == ["gang"]
    assert [(one["name"], one["inTheWayOf"]) for one in shown["leases"]] == [("small", "team/gang")]
    assert ask(site, site.second, "/v1/plan") == shown


def test_every_decision_is_listed_with_its_cycle(site: Site) -> None:
    items = ask(site, site.second, "/v1/decisions")["items"]

    listed = [(one["decision"], one["name"]) for one in items]
    assert {("Admit", "running"), ("Plan", "gang"), ("Wait", "gang"), ("Admit", "small")} <= set(listed)
    plan = next(one for one in items if one["decision"] == "Plan")
    assert plan["startAt"] == ask(site, site.first, "/v1/plan")["promises"][0]["startAt"]
    wait = next(one for one in items if one["decision"] == "Wait")
    assert wait["reason"]
    assert wait["message"]
    cycles = [one["cycle"] for one in reversed(items)]
    assert cycles == sorted(cycles)
    assert {(one["by"], one["fence"]) for one in items} == {("first", 1)}


def test_decisions_can_be_asked_for_by_workload_and_kind(site: Site) -> None:
    items = ask(site, site.first, "/v1/decisions", workload="team/gang", what="Plan")["items"]

    assert {(one["name"], one["decision"]) for one in items} == {("gang", "Plan")}
    assert len(ask(site, site.first, "/v1/decisions", limit="1")["items"]) == 1


@pytest.mark.parametrize("limit", ["0", "many", "-1"])
def test_a_limit_that_cannot_be_is_named(site: Site, limit: str) -> None:
    with pytest.raises(HttpError, match=f"limit='{limit}'"):
        ask(site, site.first, "/v1/decisions", limit=limit)


async def test_without_a_store_the_answer_says_so(site: Site) -> None:
    async def lost(limit: int) -> tuple[LoggedDecision, ...]:
        raise StoreUnreachable("Redis is away")

    request = Request(method="GET", path="/v1/decisions", parameters={}, query={})
    for decisions, status in ((None, 404), (lost, 503)):
        routes = open_api(site.first.cluster_state, decisions)
        route = next(route for route in routes if route.path == "/v1/decisions")
        with pytest.raises(HttpError) as caught:
            await route.handler(request)
        assert caught.value.status == status
