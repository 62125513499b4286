"""The page shows each user what the query service lets it see, and nothing of other tenants."""

from __future__ import annotations

from contextlib import AsyncExitStack

import aiohttp
import pytest

from admission.controller.page import screens
from admission.controller.page.changes import Changes
from admission.controller.page.manifests import question_of
from admission.controller.page.routes import PageRoutes
from admission.controller.queries.callers import Caller
from api.http.server import HttpServer
from tests.admission.controller.queries.asking import Asked

SCREENS = ("", "queues", "queues/queue-a", "cohorts", "racks", "calendar", "workloads/ada/a", "health")


async def pages(token: str, *paths: str) -> dict[str, tuple[int, str]]:
    """Return what the user of a token sees at these paths."""
    asked = Asked()
    routes = PageRoutes(asked.service, asked.callers.caller, asked.known.clock, changes=Changes()).routes()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    found = {}
    async with HttpServer(routes) as server, aiohttp.ClientSession(headers=headers) as client:
        for path in paths:
            async with client.get(f"{server.url}/{path}") as answer:
                found[path] = answer.status, await answer.text()
    return found


async def test_a_tenant_sees_its_work_and_nothing_of_others() -> None:
    found = await pages("ada", *SCREENS)

    assert {status for status, _ in found.values()} == {200}
    assert "ada/a" in found[""][1]
    assert [path for path, (_, text) in found.items() if "bob" in text or "queue-b" in text] == []


@pytest.mark.parametrize("path", ["queues/queue-b", "workloads/bob/d"])
async def test_what_is_of_others_is_not_there_or_forbidden(path: str) -> None:
    found = await pages("ada", path)

    assert found[path][0] in (403, 404)


async def test_one_user_cannot_hold_all_streams_of_changes() -> None:
    asked = Asked()
    routes = PageRoutes(asked.service, asked.callers.caller, asked.known.clock, changes=Changes()).routes()
    async with HttpServer(routes) as server, AsyncExitStack() as stack:
        client = await stack.enter_async_context(aiohttp.ClientSession())

        async def status(user: str) -> int:
            headers = {"Authorization": f"Bearer {user}"}
            answer = await stack.enter_async_context(client.get(f"{server.url}/changes", headers=headers))
            return answer.status

        assert [await status("ada") for _ in range(9)] == [200] * 8 + [429]
        assert await status("bob") == 200


async def pasted(asked: Asked, token: str, namespace: str, *, of_job: str = "") -> tuple[int, str]:
    """Return what the user of a token is answered to a Job in the form."""
    routes = PageRoutes(asked.service, asked.callers.caller, asked.known.clock, changes=Changes()).routes()
    headers = {"Authorization": f"Bearer {token}"}
    manifests = f"kind: Job\nmetadata: {{name: new, namespace: {of_job or namespace}}}\n"
    form = {"manifests": manifests, "namespace": namespace}
    async with (
        HttpServer(routes) as server,
        aiohttp.ClientSession(headers=headers) as client,
        client.post(f"{server.url}/what-if", data=form) as answer,
    ):
        return answer.status, await answer.text()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the manifests that this process has parsed; its copies have lists of their own."""
    found: list[str] = []

    def noted(text: str, namespace: str) -> bytes:
        found.append(text)
        return question_of(text, namespace)

    monkeypatch.setattr(screens, "question_of", noted)
    return found


async def test_manifests_are_parsed_in_a_copy_and_not_on_the_event_loop(parsed: list[str]) -> None:
    status, text = await pasted(Asked(), "ada", "ada")

    assert (status, "alert" in text, parsed) == (200, False, [])


async def test_manifests_of_a_namespace_that_the_user_may_not_read_are_refused() -> None:
    status, text = await pasted(Asked(), "ada", "ada", of_job="bob")

    assert (status, "in namespace bob" in text) == (403, True)


@pytest.mark.parametrize(("namespace", "questions", "want"), [("bob", 0, 403), ("ada", 20, 429)])
async def test_manifests_are_not_parsed_without_rights_or_beyond_the_rate_limit(
    parsed: list[str], namespace: str, questions: int, want: int
) -> None:
    asked = Asked()
    for _ in range(questions):
        with asked.service.limits.trial(Caller(name="ada")):
            pass

    status, text = await pasted(asked, "ada", namespace)

    assert (status, 'role="alert"' in text, parsed) == (want, True, [])


@pytest.mark.parametrize("path", ["", "what-if", "changes"])
async def test_without_a_token_nothing_is_shown(path: str) -> None:
    found = await pages("", path)

    assert found[path][0] == 401
