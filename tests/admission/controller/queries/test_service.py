"""The query service: lists and single objects, as the rights of each caller allow."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest

from admission.answers import selection
from admission.answers.items import ClusterQueueItem, DecisionItem, Kind, WorkloadItem
from admission.answers.promise_items import decision_item
from admission.controller.http.state_api import StateApi
from admission.controller.queries import service
from admission.controller.queries.callers import (
    ASKED_AT_ONCE,
    TRUSTED,
    Caller,
    RateLimits,
    Rights,
    Viewers,
)
from admission.controller.queries.service import QueryService
from admission.controller.queries.standing_copy import MOST_AGE_SECONDS
from admission.controller.runtime.large_reads import LargeReads
from api.http.server import HttpError, Request
from api.workload import WorkloadKey
from queues.reservations.reservations import LoggedDecision, StoreUnreachable
from tests.admission.controller.known import local_queue_object, namespace_object, workload_object
from tests.admission.controller.queries.asking import Asked, running_workload, two_teams


async def caller(asked: Asked, token: str) -> Caller:
    """Return the caller with this token."""
    request = Request(method="GET", path="/v1/workloads", headers={"authorization": f"Bearer {token}"})
    return await asked.callers.caller(request)


def token(raw: bytes) -> str:
    """Return a token that holds this."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


async def names(asked: Asked, who: Caller, kind: Kind, **query: str) -> list[str]:
    """Return the names on the page."""
    found = await asked.service.list(who, kind, query)
    return [one.domain if kind is Kind.RACKS else one.name for one in found.items]


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param({}, ["a", "b", "c", "d"], id="by namespace and name unless asked otherwise"),
        pytest.param({"sort": "position", "namespace": "ada"}, ["c", "b", "a"], id="by position"),
        pytest.param({"sort": "-priority"}, ["c", "b", "d", "a"], id="in reverse, equals by identity too"),
        pytest.param({"namespace": "bob"}, ["d"], id="of one namespace"),
        pytest.param({"clusterQueue": "queue-a", "name": "a,c,d"}, ["a", "c"], id="of some names"),
        pytest.param({"status": "admitted"}, [], id="of a status that none has"),
    ],
)
async def test_a_list_is_filtered_and_sorted(query: dict[str, str], want: list[str]) -> None:
    assert await names(Asked(), TRUSTED, Kind.WORKLOADS, **query) == want


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        pytest.param(Kind.WORKLOADS, ["a", "b", "c"], id="its own Workloads"),
        pytest.param(Kind.LOCAL_QUEUES, ["lq"], id="its own LocalQueue"),
        pytest.param(Kind.CLUSTER_QUEUES, ["queue-a"], id="the ClusterQueue that serves it"),
        pytest.param(Kind.COHORTS, ["all"], id="the Cohort above that"),
        pytest.param(Kind.PROMISES, [], id="no promises"),
        pytest.param(Kind.RACKS, [], id="no racks"),
    ],
)
async def test_a_tenant_sees_its_own(kind: Kind, want: list[str]) -> None:
    asked = Asked()

    assert await names(asked, await caller(asked, "ada"), kind) == want


async def test_what_a_tenant_may_not_see_is_counted() -> None:
    asked = Asked()

    found = await asked.service.list(await caller(asked, "bob"), Kind.WORKLOADS, {})

    assert (found.total, found.hidden) == (1, 3)
    assert b'"a"' not in msgspec.json.encode(found)


@pytest.mark.parametrize(
    ("kind", "query", "want"),
    [
        pytest.param(Kind.WORKLOADS, {"status": "pending"}, 1, id="a status"),
        pytest.param(Kind.WORKLOADS, {"clusterQueue": "queue-a"}, 0, id="a queue that serves it"),
        pytest.param(Kind.WORKLOADS, {"clusterQueue": "queue-b"}, 0, id="another's queue"),
        pytest.param(Kind.WORKLOADS, {"clusterQueue": "queue-a,queue-b"}, 0, id="both queues"),
        pytest.param(Kind.WORKLOADS, {"name": "d"}, 0, id="a name"),
        pytest.param(Kind.WORKLOADS, {"namespace": "ada,bob"}, 0, id="namespaces"),
        pytest.param(Kind.WORKLOADS, {"namespace": "ada,bob", "name": "d"}, 0, id="a name in namespaces"),
        pytest.param(Kind.WORKLOADS, {"localQueueName": "lq"}, 0, id="a LocalQueue"),
        pytest.param(Kind.WORKLOADS, {"ownerName": ""}, 0, id="an owner"),
        pytest.param(Kind.CLUSTER_QUEUES, {"name": "queue-b"}, 0, id="the name of a queue"),
        pytest.param(Kind.LOCAL_QUEUES, {"clusterQueue": "queue-b"}, 0, id="the queue of a LocalQueue"),
    ],
)
async def test_filters_do_not_tell_which_names_of_others_exist(
    kind: Kind, query: dict[str, str], want: int
) -> None:
    asked = Asked()

    found = await asked.service.list(await caller(asked, "ada"), kind, query)

    assert found.hidden == want


async def test_what_waits_in_a_shared_queue_is_counted() -> None:
    asked = Asked(*two_teams(), local_queue_object("shared", "bob", "queue-a"))
    asked.known.tell(workload_object("e", "bob", "shared"))

    found = await asked.service.list(
        await caller(asked, "ada"), Kind.WORKLOADS, {"clusterQueue": "queue-a", "status": "pending"}
    )

    assert (found.total, found.hidden) == (3, 1)


async def refusal(asked: Asked, path: str, **parameters: str) -> str:
    """Return the sentence with which ada is refused a page of one object."""
    see = Viewers(asked.callers, Rights(asked.authorization), asked.service.limits).see
    routes = StateApi(asked.known.cluster_state, LargeReads(asked.known.clock), see).routes()
    (route,) = [one for one in routes if one.path == path]
    headers = {"authorization": "Bearer ada"}
    with pytest.raises(HttpError) as caught:
        await route.handler(Request(method="GET", path=path, headers=headers, parameters=parameters))
    assert caught.value.status == 403
    return caught.value.message


async def test_a_refusal_does_not_tell_what_is_behind_a_queue() -> None:
    asked, path = Asked(), "/v1/clusterqueues/{name}/pendingworkloads"
    many = [local_queue_object("lq", f"of-{number}", "large") for number in range(101)]
    large = Asked(*two_teams(), *many)

    sentences = {
        await refusal(asked, path, name="queue-b"),
        await refusal(asked, path, name="none"),
        await refusal(large, path, name="large"),
    }

    assert len(sentences) == 1
    assert "bob" not in sentences.pop()


async def test_a_refusal_names_the_namespace_that_was_asked_for() -> None:
    asked = Asked()

    said = await refusal(asked, "/v1/workloads/{namespace}/{name}", namespace="bob", name="d")
    with pytest.raises(HttpError, match="in namespace bob"):
        await asked.service.list(await caller(asked, "ada"), Kind.WORKLOADS, {"namespace": "bob"})

    assert "in namespace bob;" in said


async def test_the_decision_log_becomes_items_in_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LoggedDecision] = []

    def noted(one: LoggedDecision) -> DecisionItem:
        made.append(one)
        return decision_item(one)

    monkeypatch.setattr(service, "decision_item", noted)
    logged = LoggedDecision(at=1.0, by="r", fence=1, key=WorkloadKey("ada", "w"), uid="u", what="Admit")

    found = await Asked(decisions=(logged,)).service.list(TRUSTED, Kind.DECISIONS, {})

    assert ([one.name for one in found.items], made) == (["w"], [])


async def test_one_right_for_all_namespaces_shows_all() -> None:
    asked = Asked()

    assert await names(asked, await caller(asked, "admin"), Kind.CLUSTER_QUEUES) == ["queue-a", "queue-b"]


async def test_rights_are_asked_once_a_minute() -> None:
    asked = Asked()
    who = await caller(asked, "ada")
    await names(asked, who, Kind.WORKLOADS)
    reviews = asked.api.reviews

    await names(asked, who, Kind.LOCAL_QUEUES)

    assert asked.api.reviews == reviews


@pytest.mark.parametrize(
    ("who", "kind", "name", "namespace", "status"),
    [
        pytest.param("ada", Kind.WORKLOADS, "a", "ada", 200, id="its own"),
        pytest.param("ada", Kind.WORKLOADS, "d", "bob", 403, id="another's"),
        pytest.param("ada", Kind.WORKLOADS, "x", "ada", 404, id="one that does not exist"),
        pytest.param("ada", Kind.CLUSTER_QUEUES, "queue-b", "", 404, id="a queue that serves another"),
        pytest.param("guest", Kind.CLUSTER_QUEUES, "queue-a", "", 403, id="a user without any right"),
        pytest.param("nobody", Kind.WORKLOADS, "a", "ada", 401, id="a token that is not accepted"),
    ],
)
async def test_one_object_is_shown_with_the_right_to_see_it(
    who: str, kind: Kind, name: str, namespace: str, status: int
) -> None:
    assert await _status(Asked(), who, kind, name, namespace) == status


async def _status(asked: Asked, who: str, kind: Kind, name: str, namespace: str) -> int:
    """Return the status of an answer about one object."""
    try:
        await asked.service.get(await caller(asked, who), kind, name, namespace)
    except HttpError as error:
        return error.status
    return 200


async def test_an_item_says_what_the_workload_asks_for_and_where_it_waits() -> None:
    found = await Asked().service.get(TRUSTED, Kind.WORKLOADS, "b", "ada")

    assert isinstance(found, WorkloadItem)
    assert (found.position, found.requests, found.cluster_queue) == (2, {"cpu": "1"}, "queue-a")


async def test_a_queue_shows_what_it_uses_borrows_and_lends() -> None:
    asked = Asked()
    for place, name in enumerate("efgh"):
        asked.known.tell(running_workload(name, "bob", "queue-b", at=place))

    lender = await asked.service.get(TRUSTED, Kind.CLUSTER_QUEUES, "queue-a")
    borrower = await asked.service.get(TRUSTED, Kind.CLUSTER_QUEUES, "queue-b")

    assert isinstance(lender, ClusterQueueItem)
    assert isinstance(borrower, ClusterQueueItem)
    assert (borrower.quotas[0].used, borrower.quotas[0].borrowed, borrower.quotas[0].lent) == ("4", "2", "0")
    assert (lender.quotas[0].used, lender.quotas[0].lent, lender.quotas[0].available) == ("0", "2", "2")


async def test_pages_continue_after_the_last_item_whatever_comes_and_goes() -> None:
    asked = Asked()
    first = await asked.service.list(TRUSTED, Kind.WORKLOADS, {"limit": "2", "sort": "-priority"})
    asked.known.tell(running_workload("0", "ada", "queue-a", at=1))

    query = {"limit": "9", "sort": "-priority", "continue": first.continue_}
    second = await asked.service.list(TRUSTED, Kind.WORKLOADS, query)

    assert [one.name for one in first.items] == ["c", "b"]
    assert [one.name for one in second.items] == ["d", "a", "0"]
    assert second.continue_ == ""


@pytest.mark.parametrize("order", ["position", "-position", "expectedStart", "-expectedStart"])
async def test_pages_continue_after_an_item_that_has_no_place_in_the_order(order: str) -> None:
    asked = Asked()
    for at, name in enumerate("xy"):
        asked.known.tell(running_workload(name, "ada", "queue-a", at=at))
    seen: list[str] = []
    query = {"namespace": "ada", "sort": order, "limit": "1"}
    while len(seen) < 5:
        found = await asked.service.list(TRUSTED, Kind.WORKLOADS, query)
        seen += [one.name for one in found.items]
        query["continue"] = found.continue_

    assert sorted(seen) == ["a", "b", "c", "x", "y"]
    assert query["continue"] == ""


async def test_the_decision_log_shows_a_tenant_its_own() -> None:
    logged = tuple(
        LoggedDecision(at=at, by="r", fence=1, key=WorkloadKey(namespace, "w"), uid="u", what="Admit")
        for at, namespace in ((20.0, "ada"), (10.0, "bob"), (5.0, "ada"))
    )
    asked = Asked(decisions=logged)

    found = await asked.service.list(await caller(asked, "ada"), Kind.DECISIONS, {})
    named = await asked.service.list(await caller(asked, "ada"), Kind.DECISIONS, {"workload": "bob/w"})

    assert [one.at for one in found.items] == ["1970-01-01T00:00:20Z", "1970-01-01T00:00:05Z"]
    assert (found.hidden, named.hidden) == (1, 0)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param({"namspace": "ada"}, "did you mean namespace", id="an unknown parameter"),
        pytest.param({"sort": "prioriti"}, "did you mean priority", id="an unknown order"),
        pytest.param({"limit": "0"}, "limit='0': expected a number", id="a limit of nothing"),
        pytest.param({"limit": "-1"}, "limit='-1': expected a number", id="a negative limit"),
        pytest.param({"continue": "x"}, "continue is no token", id="a token that is none"),
        pytest.param({"continue": "WyIiLFsxXV0"}, "continue is no token", id="a token of other values"),
        pytest.param(
            {"continue": token(b'["",' + b"[" * 4900)}, "continue is no token", id="a token of great depth"
        ),
        pytest.param(
            {"continue": token(b'["",["ada","%s"]]' % (b"a" * 4000))},
            "continue is no token",
            id="a long token",
        ),
    ],
)
async def test_a_query_that_cannot_be_read_is_refused_in_a_sentence(query: dict[str, str], want: str) -> None:
    with pytest.raises(HttpError, match=want) as caught:
        await Asked().service.list(TRUSTED, Kind.WORKLOADS, query)

    assert caught.value.status == 400


async def test_only_the_begin_of_a_long_name_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def noted(word: str, *_: object, **__: object) -> list[str]:
        compared.append(word)
        return []

    monkeypatch.setattr(selection, "get_close_matches", noted)
    with pytest.raises(HttpError, match=r"^'x{64}' is no query parameter"):
        await Asked().service.list(TRUSTED, Kind.WORKLOADS, {"x" * 64 + "y" * 10_000: ""})

    assert compared == ["x" * 64]


async def test_a_caller_that_asks_too_often_gets_a_time_to_retry_after() -> None:
    asked, who = Asked(), Caller(name="impatient")
    for _ in range(100):
        asked.service.limits.take_read(who)

    with pytest.raises(HttpError) as caught:
        await asked.service.list(who, Kind.COHORTS, {})

    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "1")


def team(number: int) -> str:
    return f"team-{number:02}"


def many_teams(tenants: int) -> Asked:
    """Return 98 namespaces with a queue each beside two, and so many tenants, of which each may read one."""
    spaces = [team(number) for number in range(98)]
    queues = [local_queue_object("lq", one, "queue-a") for one in spaces]
    asked = Asked(*two_teams(), *map(namespace_object, spaces), *queues)
    asked.api.namespaces = {one: (one,) for one in spaces[:tenants]}
    return asked


async def test_tenants_that_ask_for_all_namespaces_leave_others_the_reviews_of_their_own() -> None:
    """Each list asks for 102 reviews; the API server answers 200 at once for all users together."""
    asked = many_teams(6)
    refused = 0
    for number in range(5):
        greedy = await caller(asked, team(number))
        try:
            await asked.service.list(greedy, Kind.WORKLOADS, {})
        except HttpError as error:
            refused += error.status == 429
    assert refused >= 1

    other = await caller(asked, team(5))
    page = await asked.service.list(other, Kind.WORKLOADS, {"namespace": team(5)})

    assert page.total == 0


async def test_one_tenant_alone_cannot_take_all_reviews_that_users_share() -> None:
    """Of the 200 that they share at once, it has 120, also with several tokens."""
    asked = many_teams(1)
    await asked.service.list(await caller(asked, team(0)), Kind.WORKLOADS, {})

    with pytest.raises(HttpError) as caught:
        await asked.service.list(await caller(asked, f"{team(0)}.2"), Kind.WORKLOADS, {})

    assert caught.value.status == 429
    # With one review for each of its tokens.
    assert asked.api.reviews <= 120 + 2


async def test_the_reviews_of_a_list_are_asked_for_side_by_side_and_not_all_at_once() -> None:
    asked = many_teams(1)

    await asked.service.list(await caller(asked, team(0)), Kind.WORKLOADS, {})

    assert asked.api.most_at_once == ASKED_AT_ONCE


async def test_the_first_refusal_ends_the_other_reviews_of_a_list() -> None:
    asked = many_teams(1)
    asked.api.answers = 20

    with pytest.raises(HttpError, match="does not say who may"):
        await asked.service.list(await caller(asked, team(0)), Kind.WORKLOADS, {})
    # Time for reviews that no request waits for.
    for _ in range(200):
        await asyncio.sleep(0)

    assert asked.api.reviews <= 20 + 3 * ASKED_AT_ONCE


async def test_a_list_of_a_large_cluster_says_how_many_changes_it_does_not_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "LARGE_CLUSTER", 1)
    asked = Asked()
    first = await names(asked, TRUSTED, Kind.WORKLOADS, namespace="bob")
    asked.known.tell(workload_object("e", "bob", "lq"))

    kept, behind = await names(asked, TRUSTED, Kind.WORKLOADS, namespace="bob"), asked.service.behind()
    asked.known.clock.at += MOST_AGE_SECONDS + 0.1
    fresh = await names(asked, TRUSTED, Kind.WORKLOADS, namespace="bob")
    asked.service.close()

    assert (first, kept, behind) == (["d"], ["d"], 1)
    assert (fresh, asked.service.behind()) == (["d", "e"], 0)


async def test_a_tenant_sees_what_its_own_workloads_have_used() -> None:
    running = (
        running_workload("mine", "ada", "queue-a", at=0),
        running_workload("his", "bob", "queue-b", at=0),
    )
    asked = Asked(*two_teams(), *running)
    query = {"by": "namespace", "since": "1970-01-01T00:00:00Z"}

    own = await asked.service.usage(await caller(asked, "ada"), query)
    whole = await asked.service.usage(TRUSTED, query)

    assert [one.name for one in own.items] == ["ada"]
    assert {one.name for one in whole.items} == {"ada", "bob"}
    with pytest.raises(HttpError, match=r"^ada may not list .* bob") as found:
        await asked.service.usage(await caller(asked, "ada"), {"namespace": "bob"})
    assert found.value.status == 403
    with pytest.raises(HttpError, match="did you mean since") as found:
        await asked.service.usage(TRUSTED, {"sinse": "1d"})
    assert found.value.status == 400


async def test_a_tenant_sees_the_health_of_the_replica_and_of_its_own_queues() -> None:
    asked = Asked(*two_teams()[:2], *two_teams()[3:])

    own = await asked.service.health(await caller(asked, "ada"))
    whole = await asked.service.health(TRUSTED)

    assert [one.name for one in own.problems] == ["queue-a"]
    assert [one.name for one in whole.problems] == ["queue-a", "queue-b"]
    assert "references missing ResourceFlavor(s): f" in own.problems[0].message
    with pytest.raises(HttpError, match="may not list"):
        await asked.service.health(await caller(asked, "guest"))


async def test_a_decision_log_that_cannot_be_read_does_not_tell_where_it_is() -> None:
    async def lost(limit: int) -> tuple[LoggedDecision, ...]:
        raise StoreUnreachable("redis://secret:6379 does not answer")

    asked = Asked()
    asked.service = QueryService(
        asked.known.cluster_state,
        asked.known.clock,
        Rights(asked.authorization),
        RateLimits(asked.known.clock),
        decisions=lost,
    )

    with pytest.raises(HttpError, match="Redis does not answer") as found:
        await asked.service.list(await caller(asked, "ada"), Kind.DECISIONS, {})
    assert (found.value.status, "secret" in found.value.message) == (503, False)
