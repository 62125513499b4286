"""Who may read /v1 and /metrics: reviews of the API server, cached and limited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from admission.controller.queries import authorization
from admission.controller.queries.authorization import ALLOWED_SECONDS, REFUSED_SECONDS, Authorization
from api.http.server import HttpError, Request, Response, Route, Stream, text_response
from api.kube.client import Body, KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.errors import ServerError
from api.kube.kubeconfig import Endpoint
from tests.admission.controller.fakes import FakeClock

USERS = {
    "admin": {"username": "anna", "groups": ["admins"], "extra": {"scopes": ["all"]}},
    "guest": {"username": "gast"},
}


class Reviewer(KubeClient):
    """An API server that knows two tokens, and lets the first user read /v1."""

    def __init__(self) -> None:
        super().__init__(Endpoint(server="http://nowhere", origin="a test", credentials=FixedCredentials()))
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.is_down = False

    async def request(self, method: str, path: str, **given: Any) -> bytes:
        """Answer a review."""
        assert method == "POST"
        if self.is_down:
            raise ServerError("the server is down", status=500)
        body = given["body"]
        assert isinstance(body, Body)
        review = msgspec.json.decode(body.data)
        self.asked.append((review["kind"], review["spec"]))
        return msgspec.json.encode({**review, "status": self._status(review)})

    def _status(self, review: Mapping[str, Any]) -> Mapping[str, Any]:
        spec = review["spec"]
        if review["kind"] == "TokenReview":
            user = USERS.get(spec["token"])
            return {"authenticated": True, "user": user} if user else {"error": "invalid"}
        return {"allowed": spec["user"] == "anna" and spec["nonResourceAttributes"]["path"] == "/v1"}


class Site:
    """Guarded routes, a clock and the API server."""

    def __init__(self) -> None:
        self.api, self.clock = Reviewer(), FakeClock()
        self._guard = Authorization(self.api, self.clock)

    async def ask(self, token: str | None, path: str = "/v1/plan", *, address: str = "10.0.0.1") -> int:
        """Return the status of the answer."""

        async def answer(request: Request) -> Response | Stream:
            return text_response(request.path)

        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        route = self._guard.guarded(Route("GET", path, answer))
        try:
            found = await route.handler(
                Request(method="GET", path=path, headers=headers, client_address=address)
            )
        except HttpError as error:
            self.refusal = error
            return error.status
        assert isinstance(found, Response)
        assert found.body == path.encode()
        return found.status


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize(
    ("token", "path", "want", "said"),
    [
        pytest.param("admin", "/v1/plan", 200, "", id="a user with the right"),
        pytest.param("guest", "/v1/plan", 403, "gast may not get /v1", id="a user without it"),
        pytest.param("admin", "/metrics", 403, "anna may not get /metrics", id="another path"),
        pytest.param("forged", "/v1/plan", 401, "does not accept the token", id="an unknown token"),
        pytest.param("x" * 9000, "/v1/plan", 401, "does not accept the token", id="no token is so long"),
        pytest.param(None, "/v1/plan", 401, "send a token of the cluster", id="no token"),
    ],
)
async def test_a_user_reads_what_rbac_allows(
    site: Site, token: str | None, path: str, want: int, said: str
) -> None:
    assert await site.ask(token, path) == want
    if said:
        assert said in site.refusal.message
    if want == 401:
        assert site.refusal.headers["WWW-Authenticate"] == "Bearer"


async def test_the_access_review_names_the_whole_user_and_the_first_part_of_the_path(site: Site) -> None:
    await site.ask("admin", "/v1/workloads/team/a")

    assert site.api.asked[1] == (
        "SubjectAccessReview",
        {
            "user": "anna",
            "uid": "",
            "groups": ["admins"],
            "extra": {"scopes": ["all"]},
            "nonResourceAttributes": {"path": "/v1", "verb": "get"},
        },
    )


@pytest.mark.parametrize(
    ("token", "seconds"),
    [
        pytest.param("admin", ALLOWED_SECONDS, id="allowed"),
        pytest.param("guest", REFUSED_SECONDS, id="refused"),
    ],
)
async def test_an_answer_is_cached_for_a_time(site: Site, token: str, seconds: float) -> None:
    first = await site.ask(token)
    asked = len(site.api.asked)
    site.clock.at += seconds - 0.1
    assert await site.ask(token, "/v1/decisions") == first
    assert len(site.api.asked) == asked

    site.clock.at += 0.2
    assert await site.ask(token) == first
    assert len(site.api.asked) > asked


async def test_no_more_than_a_number_of_answers_is_cached(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization, "MOST_KNOWN", 5)
    site = Site()
    await site.ask("admin")
    for number in range(5):
        await site.ask(f"forged-{number}", address=f"10.0.0.{number}")

    asked = len(site.api.asked)
    await site.ask("admin")
    assert len(site.api.asked) == asked + 1


async def test_an_address_that_forges_tokens_does_not_lock_out_others(site: Site) -> None:
    answers = [await site.ask(f"forged-{n}", address="10.6.6.6") for n in range(40)]

    assert set(answers) == {401, 429}
    assert len(site.api.asked) == 20
    assert int(site.refusal.headers["Retry-After"]) >= 1
    assert await site.ask("admin") == 200


async def test_known_users_read_on_while_the_api_server_does_not_answer(site: Site) -> None:
    await site.ask("admin")
    site.api.is_down = True

    assert await site.ask("admin") == 200
    assert await site.ask("guest") == 503
    assert site.refusal.headers == {"Retry-After": "1"}
