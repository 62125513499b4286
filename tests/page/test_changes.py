"""The stream of changes: what an open page is told, and what one that has lost it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from admission.controller.page import changes as module
from admission.controller.page.changes import Changes
from api.http.server import HttpError, Request

pytestmark = pytest.mark.usefixtures("without_pace")


@pytest.fixture
def without_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell of each change at once."""
    monkeypatch.setattr(module, "PACE_SECONDS", 0.0)


def opened(
    changes: Changes, *, seen: str | None = None, last_id: str = "", user: str | None = None
) -> AsyncIterator[bytes]:
    """Return the chunks of a new stream, of a page with the present state or with that of `seen`."""
    headers = {"last-event-id": last_id} if last_id else {}
    query = {"seen": changes.id if seen is None else seen}
    return changes.stream(Request(method="GET", path="/changes", headers=headers, query=query), user).chunks


async def test_a_page_hears_that_something_has_changed() -> None:
    changes = Changes()
    stream = opened(changes)
    await anext(stream)

    changes.note()

    assert b"event: changed\ndata: 1\n\n" in await anext(stream)


async def test_changes_of_a_moment_are_one_event() -> None:
    changes = Changes()
    stream = opened(changes)
    await anext(stream)

    for _ in range(100):
        changes.note()

    assert b"data: 100" in await anext(stream)


async def test_a_page_hears_of_what_changed_before_it_listened() -> None:
    changes = Changes()
    loaded_at = changes.id
    changes.note()
    stream = opened(changes, seen=loaded_at)
    await anext(stream)

    assert b"event: changed" in await anext(stream)


async def test_a_browser_that_resumes_hears_of_what_it_missed_and_of_nothing_else() -> None:
    changes = Changes()
    changes.note()
    stream = opened(changes, seen="old")
    await anext(stream)
    told = await anext(stream)
    last_id = told.decode().splitlines()[0].removeprefix("id: ")

    changes.note()
    resumed = opened(changes, seen="old", last_id=last_id)
    await anext(resumed)

    assert (last_id, b"data: 2" in await anext(resumed)) == (f"{changes.id.split('-')[0]}-1", True)


async def test_a_browser_that_resumes_at_another_replica_asks_again() -> None:
    resumed = opened(Changes(), last_id=Changes().id)
    await anext(resumed)

    assert b"event: changed" in await anext(resumed)


async def test_a_quiet_stream_is_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    stream = opened(Changes())
    await anext(stream)

    assert await anext(stream) == b":\n\n"


async def test_one_page_too_many_hears_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STREAMS", 1)
    changes = Changes()
    first = opened(changes)
    await anext(first)

    with pytest.raises(HttpError, match="1 pages are open") as caught:
        opened(changes)
    await first.aclose()  # type: ignore[attr-defined]

    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "30"})
    opened(changes)


async def test_the_pages_of_one_user_leave_room_for_those_of_others() -> None:
    changes = Changes()
    pages = [opened(changes, user="ada") for _ in range(8)]
    for one in pages:
        await anext(one)

    with pytest.raises(HttpError, match="ada has 8 pages open") as caught:
        opened(changes, user="ada")
    await anext(opened(changes, user="bob"))
    await pages[0].aclose()  # type: ignore[attr-defined]

    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "30"})
    opened(changes, user="ada")


async def test_pages_on_a_port_that_is_open_to_the_machine_are_of_no_user() -> None:
    changes = Changes()
    pages = [opened(changes) for _ in range(9)]

    assert [await anext(one) for one in pages]


async def test_a_page_hears_of_a_change_once_it_would_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEHIND_SECONDS", 0.01)
    behind = [0]
    changes = Changes(lambda: behind[0])
    stream = opened(changes)
    await anext(stream)
    changes.note()
    behind[0] = 1
    hearing = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.05)
    was_told = hearing.done()

    behind[0] = 0

    assert b"event: changed\ndata: 1\n\n" in await hearing
    assert not was_told
