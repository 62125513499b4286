"""The contents and reports of the local copy, with and without failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from api.kube.client import KubeClient
from api.kube.errors import Forbidden, KubeError
from api.kube.history import ClusterRestored
from api.kube.informer import Change, Informer, InformerTiming, Listener, ListWatch
from api.kube.listing import Key, Unreadable
from api.kube.resources import JOBS, PODS, WORKLOADS

from .scripted import (
    PATIENCE_SECONDS,
    Responder,
    ScriptedServer,
    answer,
    bookmark,
    event,
    expired,
    page,
    refuse,
    watch,
    widget,
)
from .widgets import Widget

IMPATIENT = InformerTiming(
    page_size=2,
    watch_seconds=10,
    idle_seconds=5.0,
    first_pause_seconds=0.001,
    longest_pause_seconds=0.01,
    missing_retry_seconds=0.001,
)


class Followed:
    """A running informer, with everything that it reports, in the order of arrival."""

    def __init__(
        self,
        client: KubeClient,
        *,
        optional: bool = False,
        on_unreadable_gone: Callable[[Key], None] | None = None,
        **options: Any,
    ) -> None:
        self.reports: asyncio.Queue[Change[Widget] | Unreadable | KubeError] = asyncio.Queue()
        self.lists: list[tuple[set[str], str]] = []
        self.informer = Informer(
            client,
            ListWatch(resource=JOBS, type_=Widget, optional=optional),
            Listener(
                on_change=self.reports.put_nowait,
                on_unreadable=self.reports.put_nowait,
                on_unreadable_gone=on_unreadable_gone,
                on_list=lambda keys, version: self.lists.append(({name for _, name in keys}, version)),
            ),
            on_error=self.reports.put_nowait,
            **{"timing": IMPATIENT, **options},
        )

    async def next(self) -> Change[Widget] | Unreadable | KubeError:
        """Return the next report."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.reports.get()

    async def described(self, count: int) -> list[str]:
        """Return the next `count` reports as words: what happened to which object at which version."""
        return [describe(await self.next()) for _ in range(count)]

    async def synced(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.informer.synced.wait()

    def held(self) -> dict[str, str]:
        """Return the versions in the copy by name."""
        return {name: w.metadata.resource_version for (_, name), w in self.informer.store.items()}


def describe(report: Change[Widget] | Unreadable | KubeError) -> str:
    if isinstance(report, Change):
        return f"{report.type} {report.object.metadata.name}@{report.object.metadata.resource_version}"
    return f"{type(report).__name__} {report.name if isinstance(report, Unreadable) else report.message}"


@asynccontextmanager
async def follow(client: KubeClient, **options: Any) -> AsyncIterator[Followed]:
    """Run an informer while the block lasts."""
    followed = Followed(client, **options)
    task = asyncio.create_task(followed.informer.run())
    try:
        yield followed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_first_list_reports_every_object_of_every_page(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([widget("a"), widget("b")], token="t"), page([widget("c", "2")]))

    async with follow(client) as followed:
        assert await followed.described(3) == ["ADDED a@1", "ADDED b@1", "ADDED c@2"]
        await followed.synced()
        assert followed.held() == {"a": "1", "b": "1", "c": "2"}
        assert [request.query.get("continue") for request in scripted.requests[:2]] == [None, "t"]


async def test_it_is_not_synced_before_the_last_page(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(page([widget("a")], token="t"))

    async with follow(client) as followed:
        await followed.described(1)
        assert not followed.informer.synced.is_set()


async def test_events_are_applied_and_carry_what_was_there_before(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("a", "1")]),
        watch(
            event("ADDED", widget("b", "11")),
            event("MODIFIED", widget("a", "12", size=5)),
            event("DELETED", widget("b", "13")),
        ),
    )

    async with follow(client) as followed:
        assert await followed.described(2) == ["ADDED a@1", "ADDED b@11"]
        modified = await followed.next()
        assert isinstance(modified, Change)
        assert modified.previous is not None
        assert (modified.previous.spec.size, modified.object.spec.size) == (1, 5)
        assert await followed.described(1) == ["DELETED b@13"]
        assert followed.held() == {"a": "12"}


async def test_a_watch_goes_on_from_the_version_of_the_last_bookmark(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([], "10"), watch(bookmark("42"), then="end"))

    async with follow(client):
        queries = [(await scripted.next_request()).query for _ in range(3)]

    assert queries[1]["resourceVersion"] == "10"
    assert queries[1]["allowWatchBookmarks"] == "true"
    assert 10 <= int(queries[1]["timeoutSeconds"]) <= 12
    assert queries[2]["resourceVersion"] == "42"


async def test_a_cut_in_the_middle_of_a_line_loses_nothing(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    line = event("ADDED", widget("b", "12"))
    scripted.will(
        page([]),
        watch(event("ADDED", widget("a", "11")), line[:20], then="cut"),
        watch(line),
    )

    async with follow(client) as followed:
        first, fault, second = await followed.described(3)

    assert (first, second) == ("ADDED a@11", "ADDED b@12")
    assert fault.startswith("Unreachable")
    assert scripted.requests[2].query["resourceVersion"] == "11"
    assert followed.informer.relists == 1
    assert followed.informer.last_error is None


async def test_an_object_seen_twice_is_reported_once(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(
        page([widget("a", "9")], "9"),
        watch(event("ADDED", widget("a", "9")), event("ADDED", widget("b", "11"))),
    )

    async with follow(client) as followed:
        assert await followed.described(2) == ["ADDED a@9", "ADDED b@11"]


@pytest.mark.parametrize(
    "forgotten",
    [
        pytest.param(watch(expired(), then="end"), id="reported in the middle of a watch"),
        pytest.param(refuse(410, "Expired"), id="reported when the watch is asked for"),
    ],
)
async def test_after_a_410_the_list_is_read_again_and_the_differences_are_reported(
    scripted: ScriptedServer, client: KubeClient, forgotten: Any
) -> None:
    scripted.will(
        page([widget("same", "1"), widget("changed", "2"), widget("deleted", "3", size=7)][:2], token="t"),
        page([widget("deleted", "3", size=7)], "10"),
        forgotten,
        page([widget("same", "1"), widget("changed", "21")], token="t"),
        page([widget("new", "22")], "30"),
    )

    async with follow(client) as followed:
        await followed.described(3)
        assert await followed.described(2) == ["MODIFIED changed@21", "ADDED new@22"]
        deleted = await followed.next()
        assert isinstance(deleted, Change)
        assert describe(deleted) == "DELETED deleted@3"
        assert deleted.object.spec.size == 7, "a deletion found by listing carries the last known state"
        assert followed.held() == {"same": "1", "changed": "21", "new": "22"}
        assert followed.informer.relists == 2
        assert followed.lists == [
            ({"same", "changed", "deleted"}, "10"),
            ({"same", "changed", "new"}, "30"),
        ]


async def test_a_page_that_expired_makes_the_list_begin_again(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("a"), widget("gone")], token="t"),
        refuse(410, "Expired"),
        page([widget("a"), widget("c")]),
    )

    async with follow(client) as followed:
        assert await followed.described(4) == ["ADDED a@1", "ADDED gone@1", "ADDED c@1", "DELETED gone@1"]


async def test_an_object_made_again_under_its_name_is_another_object(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("a", "1", uid="old")]),
        watch(expired(), then="end"),
        page([widget("a", "1", uid="new")]),
    )

    async with follow(client) as followed:
        assert await followed.described(3) == ["ADDED a@1", "DELETED a@1", "ADDED a@1"]


async def test_a_half_open_watch_is_replaced(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(page([]), watch(then="hang"), watch(event("ADDED", widget("a", "11"))))
    # As long as a watch may also take to begin, on a machine that halts for a while.
    timing = InformerTiming(idle_seconds=3.0, first_pause_seconds=0.001)

    async with follow(client, timing=timing) as followed:
        silent, added = await followed.described(2)

    assert silent.startswith("Timeout the watch of /apis/batch/v1/jobs was silent")
    assert added == "ADDED a@11"


async def test_an_event_that_is_no_json_makes_the_list_be_read_again(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([]), watch(b"{{\n"), page([widget("a")]))

    async with follow(client) as followed:
        fault, added = await followed.described(2)

    assert fault.startswith("ServerError the answer is no watch event of jobs")
    assert added == "ADDED a@1"


async def test_an_event_larger_than_every_buffer_arrives(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([]), watch(event("ADDED", widget("a", "11", note="x" * 2_000_000))))

    async with follow(client, keep_raw=True) as followed:
        change = await followed.next()

    assert isinstance(change, Change)
    assert len(change.raw or b"") > 2_000_000


# Unreadable objects


async def test_an_unreadable_object_is_named_once_and_the_others_go_on(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("broken", "1", size="x")]),
        watch(
            event("MODIFIED", widget("broken", "11", size="y")),
            event("ADDED", widget("a", "12")),
        ),
    )

    async with follow(client) as followed:
        assert await followed.described(2) == ["Unreadable broken", "ADDED a@12"]
        assert list(followed.informer.unreadable) == [("team", "broken")]
        assert followed.held() == {"a": "12"}


async def test_an_object_that_becomes_unreadable_keeps_its_last_readable_state(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("a", "1")]),
        watch(event("MODIFIED", widget("a", "11", size="x")), expired(), then="end"),
        page([widget("a", "11", size="x"), widget("b")], "12"),
    )

    async with follow(client) as followed:
        assert await followed.described(3) == ["ADDED a@1", "Unreadable a", "ADDED b@1"]
        assert followed.held() == {"a": "1", "b": "1"}


async def test_an_object_that_becomes_readable_is_a_change(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([widget("a", "1", size="x")]), watch(event("MODIFIED", widget("a", "11"))))

    async with follow(client) as followed:
        assert await followed.described(2) == ["Unreadable a", "ADDED a@11"]
        assert followed.informer.unreadable == {}


async def test_the_deletion_of_an_object_that_became_unreadable_is_reported(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("a", "1", size=3)]),
        watch(event("MODIFIED", widget("a", "11", size="x")), event("DELETED", widget("a", "12", size="x"))),
    )

    async with follow(client) as followed:
        assert await followed.described(3) == ["ADDED a@1", "Unreadable a", "DELETED a@1"]
        assert (followed.held(), followed.informer.unreadable) == ({}, {})


async def test_the_end_of_an_object_that_was_never_readable_is_reported(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    gone: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    scripted.will(
        page([widget("a", "1", size="x"), widget("b", "1", size="x")]),
        watch(event("DELETED", widget("a", "12", size="x")), expired(), then="end"),
        page([widget("c", "13")], "13"),
    )

    async with follow(client, on_unreadable_gone=gone.put_nowait) as followed:
        assert await followed.described(3) == ["Unreadable a", "Unreadable b", "ADDED c@13"]
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [await gone.get(), await gone.get()] == [("team", "a"), ("team", "b")]


# Errors


async def test_an_error_is_reported_once_and_its_end_is_seen(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    forbidden = refuse(403, "Forbidden", "may not list jobs")
    scripted.will(forbidden, forbidden, forbidden, page([widget("a")]))

    async with follow(client) as followed:
        assert await followed.described(2) == ["Forbidden may not list jobs", "ADDED a@1"]
        await followed.synced()
        assert followed.informer.last_error is None


async def test_an_error_that_lasts_stays_visible(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(*[refuse(403, "Forbidden", "may not list jobs")] * 50)

    async with follow(client) as followed:
        await followed.next()
        assert isinstance(followed.informer.last_error, Forbidden)
        assert not followed.informer.synced.is_set()


async def test_a_watch_that_keeps_failing_at_one_version_is_given_up_for_a_list(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    refused = refuse(504, "Timeout", "not this version")
    scripted.will(page([widget("a")], "99"), *[refused] * 4, page([widget("b")], "105"))

    async with follow(client) as followed:
        assert await followed.described(4) == [
            "ADDED a@1",
            "ServerError not this version",
            "ADDED b@1",
            "DELETED a@1",
        ]


# --- a cluster that is restored from a backup ------------------------------------------------------


async def restored(client: KubeClient) -> str:
    """Return what an informer says that notices that the server's versions went back."""
    followed = Followed(client)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(ClusterRestored) as noticed:
            await followed.informer.run()
    return str(noticed.value)


async def test_a_server_whose_version_went_back_is_noticed_before_the_next_watch(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    """kube-apiserver accepts a watch from a later version than its own and is silent until it reaches it."""
    scripted.version = "49"
    scripted.will(page([widget("a", "12")], "50"), watch(then="cut"))

    assert "resourceVersion 49 of jobs after 50" in await restored(client)
    assert [request.query.get("watch") for request in scripted.requests] == [None, "true"]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([watch(expired()), page([widget("a", "12")], "49")], id="a list of an older version"),
        pytest.param([watch(expired()), page([widget("a", "11")], "90")], id="a new list with an old object"),
        pytest.param(
            [watch(event("MODIFIED", widget("a", "49")))], id="a watch that starts below its version"
        ),
        pytest.param([watch(bookmark("49"))], id="a bookmark below the version of the watch"),
    ],
)
async def test_an_informer_ends_when_versions_go_back(
    scripted: ScriptedServer, client: KubeClient, after: list[Any]
) -> None:
    scripted.will(page([widget("a", "12")], "50"), *after)

    assert "its etcd was restored from a backup" in await restored(client)


async def test_a_watch_that_goes_on_shows_what_happened_before_the_servers_present_version(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.version = "60"
    scripted.will(
        page([widget("a", "12")], "50"),
        watch(then="end"),
        watch(event("MODIFIED", widget("a", "55")), event("MODIFIED", widget("a", "60"))),
    )

    async with follow(client) as followed:
        assert await followed.described(3) == ["ADDED a@12", "MODIFIED a@55", "MODIFIED a@60"]


async def test_versions_that_are_no_numbers_have_no_order(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.version = "y"
    scripted.will(
        page([widget("a", "z9")], "z9"),
        watch(event("MODIFIED", widget("a", "b1")), then="end"),
        watch(event("MODIFIED", widget("a", "a0"))),
    )

    async with follow(client) as followed:
        assert await followed.described(3) == ["ADDED a@z9", "MODIFIED a@b1", "MODIFIED a@a0"]


@pytest.mark.parametrize(
    "closing",
    [
        pytest.param(watch(then="end"), id="a server that ends every watch at once"),
        pytest.param(refuse(500), id="a server that fails every watch"),
    ],
)
async def test_a_server_in_trouble_is_asked_more_and_more_rarely(
    scripted: ScriptedServer, client: KubeClient, closing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("api.kube.informer.asyncio.sleep", note)
    monkeypatch.setattr(random, "uniform", lambda _, high: high)
    scripted.will(page([]), *[closing] * 3)

    async with follow(client, timing=InformerTiming(first_pause_seconds=1.0, longest_pause_seconds=3.0)):
        for _ in range(5):
            await scripted.next_request()

    assert pauses == [1.0, 2.0, 3.0]


async def test_a_server_that_asks_to_wait_is_obeyed(
    scripted: ScriptedServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("api.kube.informer.asyncio.sleep", note)
    scripted.will(refuse(429, "TooManyRequests", Retry_After="17"), page([]))

    async with follow(client) as followed:
        await followed.synced()

    assert pauses[0] == 17.0


# Optional kinds


def served(*versions: str) -> Responder:
    """Return the answer of a server that serves these groups and versions."""
    return answer({"groups": [{"versions": [{"groupVersion": version}]} for version in versions]})


async def test_a_kind_that_is_not_served_has_no_objects_until_it_appears(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    missing = answer(b"404 page not found\n", status=404)
    scripted.will(missing, missing, served(), served("batch/v1"), page([widget("a")]))

    async with follow(client, optional=True) as followed:
        await followed.synced()
        assert followed.held() == {}
        assert await followed.described(1) == ["ADDED a@1"]
    assert [one.path for one in scripted.requests][:5] == [*[JOBS.path()] * 2, "/apis", "/apis", JOBS.path()]


async def test_a_server_that_hides_what_it_serves_is_asked_for_the_kind_itself(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(refuse(404), refuse(404), refuse(403), page([widget("a")]))

    async with follow(client, optional=True) as followed:
        assert await followed.described(1) == ["ADDED a@1"]


async def test_one_request_answers_for_all_kinds_that_are_missing(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(served("batch/v1"))

    found = await asyncio.gather(
        *(client.served.has(one, max_age_seconds=60.0) for one in (JOBS, WORKLOADS, PODS, JOBS))
    )

    assert found == [True, False, True, True], "the core group is always served"
    assert len(scripted.requests) == 1


async def test_a_kind_that_goes_away_takes_its_objects_with_it(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    missing = refuse(404, "NotFound")
    scripted.will(page([widget("a")]), watch(then="end"), missing, missing)

    async with follow(client, optional=True) as followed:
        assert await followed.described(2) == ["ADDED a@1", "DELETED a@1"]


async def test_a_kind_missing_for_a_moment_keeps_its_objects(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("a")]),
        watch(then="end"),
        refuse(404),
        page([widget("a"), widget("b")]),
        watch(then="hang"),
    )

    async with follow(client, optional=True) as followed:
        assert await followed.described(2) == ["ADDED a@1", "ADDED b@1"]


async def test_a_missing_kind_that_is_needed_is_an_error(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(refuse(404, "NotFound", "could not find the requested resource"))

    async with follow(client) as followed:
        assert await followed.described(1) == ["NotFound could not find the requested resource"]
        assert not followed.informer.synced.is_set()


# Kept bytes


@pytest.mark.parametrize(
    ("object_", "want_raw"),
    [
        pytest.param(
            {
                "apiVersion": "v",
                "kind": "K",
                "metadata": {"name": "a", "managedFields": [{"x": 1}]},
                "z": [1.50],
            },
            b'{"apiVersion":"v","kind":"K","metadata":{"name":"a"},"z":[1.5]}',
            id="managedFields are left out and all else stays",
        ),
        pytest.param(
            {"metadata": {"name": "a"}},
            b'{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"}}',
            id="an object of a built-in kind's list gets its kind",
        ),
    ],
)
async def test_the_bytes_kept_of_an_object(
    scripted: ScriptedServer, client: KubeClient, object_: object, want_raw: bytes
) -> None:
    scripted.will(page([object_]))

    async with follow(client, keep_raw=True) as followed:
        change = await followed.next()
        assert isinstance(change, Change)
        assert change.raw is not None
        assert change.raw.replace(b" ", b"") == want_raw
        assert followed.informer.raw == {("", "a"): change.raw}


async def test_no_bytes_are_kept_unless_asked_for(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(page([widget("a")]))

    async with follow(client) as followed:
        change = await followed.next()

    assert isinstance(change, Change)
    assert (change.raw, followed.informer.raw) == (None, {})


async def test_a_copy_beside_a_listener_that_keeps_the_objects_has_only_their_versions(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(
        page([widget("a", "1", size=7), widget("b", "2", size=7)]),
        watch(event("MODIFIED", widget("a", "11", size=8)), expired(), then="end"),
        page([widget("a", "11", size=8)], "12"),
        watch(event("DELETED", widget("a", "13", size=9))),
    )

    def version_of(one: Widget) -> Widget:
        return Widget(metadata=one.metadata)

    async with follow(client, keep_raw=True, keeps=version_of) as followed:
        reports = [await followed.next() for _ in range(5)]
        assert (followed.informer.store, followed.informer.raw) == ({}, {})

    # The one that the second list shows at the same version is no change.
    assert [describe(one) for one in reports] == [
        "ADDED a@1",
        "ADDED b@2",
        "MODIFIED a@11",
        "DELETED b@2",
        "DELETED a@13",
    ]
    changes = [one for one in reports if isinstance(one, Change)]
    # Of the one that a list shows to be gone, what was kept is known.
    assert [one.object.spec.size for one in changes] == [7, 7, 8, 0, 9]
    assert [one.raw is not None for one in changes] == [True, True, True, False, True]
    assert changes[2].previous is not None
    assert changes[2].previous.metadata.resource_version == "1"


async def test_what_the_callback_raises_is_not_swallowed(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    def fail(_: Change[Widget]) -> None:
        raise RuntimeError("a bug of the caller's")

    scripted.will(page([widget("a")]))

    with pytest.raises(RuntimeError, match="a bug of the caller's"):
        await Informer(client, ListWatch(resource=JOBS, type_=Widget), Listener(on_change=fail)).run()
