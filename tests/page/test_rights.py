"""The page shows each user what the query service lets it see, and nothing of other tenants."""

from __future__ import annotations

import aiohttp
import pytest

from admission.controller.page.changes import Changes
from admission.controller.page.routes import PageRoutes
from api.http.server import HttpServer
from tests.admission.controller.queries.asking import Asked

SCREENS = ("", "queues", "queues/queue-a", "cohorts", "racks", "calendar", "workloads/ada/a")


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


@pytest.mark.parametrize("path", ["", "what-if", "changes"])
async def test_without_a_token_nothing_is_shown(path: str) -> None:
    found = await pages("", path)

    assert found[path][0] == 401
