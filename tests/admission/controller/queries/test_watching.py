"""Watches: a page as events that a client can resume, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from admission.answers.items import Kind
from admission.controller.queries import service, views, watching
from admission.controller.queries.callers import TRUSTED
from admission.controller.queries.watching import HEARTBEAT, HEARTBEAT_SECONDS
from api.http.server import HttpError
from api.kube.informer import ChangeType
from tests.admission.controller.known import workload_object
from tests.admission.controller.queries.asking import Asked
from tests.admission.controller.queries.test_service import caller

Event = tuple[str, str, str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Give a service whose clock moves on by a second whenever a watch waits."""
    found = Asked()

    async def pause(seconds: float) -> None:
        found.known.clock.at += seconds
        await _yield()

    monkeypatch.setattr(asyncio, "sleep", pause)
    return found


_SLEEP = asyncio.sleep


async def _yield() -> None:
    await _SLEEP(0)


def read(chunk: bytes) -> list[Event]:
    """Return the id, the kind and the name of each event."""
    found = []
    for text in chunk.decode().split("\n\n")[:-1]:
        fields: dict[str, Any] = dict(line.split(": ", 1) for line in text.split("\n"))
        found.append((fields["id"], fields["event"], msgspec.json.decode(fields["data"]).get("name", "")))
    return found


async def watch(asked: Asked, last: str = "", token: str = "", **query: str) -> AsyncGenerator[bytes]:
    who = await caller(asked, token) if token else TRUSTED
    stream = await asked.service.watch(who, Kind.WORKLOADS, query, last)
    assert isinstance(stream, AsyncGenerator), "it ends when its client is gone"
    return stream


async def test_a_watch_begins_with_all_items_and_goes_on_with_changes(asked: Asked) -> None:
    stream = await watch(asked, namespace="bob")
    first = read(await anext(stream))

    asked.known.tell(workload_object("e", "bob", "lq"))
    second = read(await anext(stream))
    asked.known.tell(workload_object("e", "bob", "lq"), ChangeType.DELETED)
    third = read(await anext(stream))

    assert [one[1:] for one in first] == [("reset", ""), ("added", "d")]
    assert [one[1:] for one in second] == [("added", "e")]
    assert [one[1:] for one in third] == [("deleted", "e")]


async def test_a_client_that_comes_back_gets_what_it_has_missed(asked: Asked) -> None:
    seen = read(await anext(await watch(asked, namespace="bob")))[-1][0]
    asked.known.tell(workload_object("e", "bob", "lq"))
    asked.known.clock.at += 5

    resumed = read(await anext(await watch(asked, seen, namespace="bob")))

    assert [one[1:] for one in resumed] == [("added", "e")]


@pytest.mark.parametrize("last", ["", "x", "00000000-1", "-", "9-9999999999999999999999", "\xb2-\xb2"])
async def test_an_unknown_place_begins_again(asked: Asked, last: str) -> None:
    first, *_ = read(await anext(await watch(asked, last, namespace="bob")))

    assert first[1] == "reset"


@pytest.mark.parametrize(("bound", "most"), [("MOST_LOGGED", 2), ("MOST_LOGGED_BYTES", 1_000)])
async def test_a_client_far_behind_gets_the_whole_page(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(watching, bound, most)
    stream = await watch(asked, namespace="bob")
    await anext(stream)
    for name in "efg":
        asked.known.tell(workload_object(name, "bob", "lq"))

    found = read(await anext(stream))

    assert [one[1] for one in found] == ["reset", "added", "added", "added", "added"]


async def test_a_quiet_stream_has_heartbeats(asked: Asked) -> None:
    stream = await watch(asked, namespace="bob")
    await anext(stream)

    assert await anext(stream) == HEARTBEAT


async def test_a_watch_shows_a_tenant_its_own_until_its_rights_change(asked: Asked) -> None:
    stream = await watch(asked, token="ada")
    first = read(await anext(stream))
    asked.api.namespaces = {**asked.api.namespaces, "ada": ()}
    asked.known.clock.at += 100
    asked.known.tell(workload_object("e", "ada", "lq"))

    rest = [chunk async for chunk in stream]

    assert [one[2] for one in first] == ["", "a", "b", "c"]
    assert len(rest) <= 1


async def test_there_are_only_so_many_watches(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_WATCHERS", 1)
    first = await watch(asked)
    await anext(first)

    with pytest.raises(HttpError, match="too many watches"):
        await watch(asked)


async def test_a_user_has_only_so_many_watches(asked: Asked) -> None:
    streams = [await watch(asked, token="ada") for _ in range(8)]
    for stream in streams:
        await anext(stream)

    with pytest.raises(HttpError, match="ada watches 8 pages already") as caught:
        await watch(asked, token="ada")
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "10")
    assert await anext(await watch(asked, token="bob"))

    await streams[0].aclose()
    assert await anext(await watch(asked, token="ada"))


async def test_watches_that_begin_at_once_are_counted(asked: Asked) -> None:
    streams = [await watch(asked, token="ada") for _ in range(9)]

    begun = [await anext(stream, b"") for stream in streams]

    assert sum(map(bool, begun)) == 8


async def test_a_watch_ends_so_that_its_token_is_reviewed_again(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LONGEST_WATCH_SECONDS", 60.0)
    stream, began_at = await watch(asked, token="ada"), asked.known.clock.at

    async for _ in stream:
        assert asked.known.clock.at <= began_at + 60 + HEARTBEAT_SECONDS

    assert asked.known.clock.at >= began_at + 60


async def test_a_change_larger_than_the_log_is_sent(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_LOGGED_BYTES", 1)
    stream = await watch(asked, namespace="bob")
    await anext(stream)
    asked.known.tell(workload_object("e", "bob", "lq"))

    assert [one[1:] for one in read(await anext(stream))] == [("added", "e")]


@pytest.mark.parametrize(("is_watched", "want"), [(False, ["reset", "added", "added"]), (True, ["added"])])
async def test_a_view_is_kept_for_a_while_after_its_last_client(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, *, is_watched: bool, want: list[str]
) -> None:
    monkeypatch.setattr(views, "KEPT_SECONDS", 0.02)
    stream = await watch(asked, namespace="bob")
    seen = read(await anext(stream))[-1][0]
    if not is_watched:
        await stream.aclose()
    await _SLEEP(0.1)
    asked.known.tell(workload_object("e", "bob", "lq"))
    asked.known.clock.at += 5

    resumed = read(await anext(await watch(asked, seen, namespace="bob")))

    assert [one[1] for one in resumed] == want
