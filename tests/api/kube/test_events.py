"""Which events are sent, how often, and which are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from api.kube.client import KubeClient
from api.kube.events import COMBINED, MAX_SIMILAR, SIMILAR_SECONDS, EventLimits, EventRecorder, cut_note
from api.kube.report_budget import WriteLoad
from api.object_events import EventType, ObjectRef

from .scripted import PATIENCE_SECONDS, Responder, ScriptedServer, answer, cut, refuse

JOB = ObjectRef(api_version="batch/v1", kind="Job", namespace="team", name="train", uid="u1")
QUEUE = ObjectRef(api_version="kueue.x-k8s.io/v1beta2", kind="ClusterQueue", name="gpu")


def recorder(client: KubeClient, **options: Any) -> EventRecorder:
    return EventRecorder(client, options.pop("load", WriteLoad()), instance="host-1", **options)


@asynccontextmanager
async def running(events: EventRecorder) -> AsyncIterator[None]:
    task = asyncio.create_task(events.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def send_all(events: EventRecorder) -> None:
    async with running(events):
        await events.drain(PATIENCE_SECONDS)


def pending(events: EventRecorder, ref: ObjectRef = JOB, note: str = "waits for quota") -> None:
    events.record(ref, EventType.NORMAL, "Pending", note, "Queue")


async def test_an_event_has_all_that_the_api_asks_for(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(answer(status=201))
    events = recorder(client)
    events.record(JOB, EventType.WARNING, "Pending", "waits for quota", "Queue")

    await send_all(events)

    request = await scripted.next_request()
    assert (request.method, request.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/team/events")
    body = request.json()
    metadata, at = body.pop("metadata"), body.pop("eventTime")
    assert metadata["namespace"] == "team"
    assert metadata["name"].startswith("train.")
    assert at.endswith("Z")
    assert body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "type": "Warning",
        "reason": "Pending",
        "action": "Queue",
        "note": "waits for quota",
        "regarding": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "team",
            "name": "train",
            "uid": "u1",
        },
        "reportingController": "berth.dev/controller",
        "reportingInstance": "host-1",
    }
    assert (events.sent, events.dropped) == (1, 0)


async def test_events_of_cluster_scoped_objects_are_in_default(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(answer(status=201))
    events = recorder(client)
    pending(events, QUEUE)

    await send_all(events)

    request = await scripted.next_request()
    assert request.path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert "namespace" not in request.json()["regarding"]


async def test_repeats_become_one_event_while_they_wait(scripted: ScriptedServer, client: KubeClient) -> None:
    scripted.will(answer(status=201), answer(status=201))
    events = recorder(client)
    for _ in range(3):
        pending(events)
    pending(events, note="another note")

    await send_all(events)

    bodies = [request.json() for request in scripted.requests]
    assert [body.get("series", {}).get("count") for body in bodies] == [3, None]
    assert (events.sent, events.dropped) == (2, 0)


async def test_a_repeat_of_what_was_sent_raises_its_count(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(answer(status=201), answer())
    events = recorder(client)
    async with running(events):
        pending(events)
        await events.drain(PATIENCE_SECONDS)
        pending(events)
        pending(events)
        await events.drain(PATIENCE_SECONDS)

    created, patched = scripted.requests
    assert patched.method == "PATCH"
    assert patched.path == f"{created.path}/{created.json()['metadata']['name']}"
    assert patched.json()["series"]["count"] == 3
    assert patched.headers["Content-Type"] == "application/merge-patch+json"


@pytest.mark.parametrize(
    ("seconds_later", "answers", "want_methods"),
    [
        pytest.param(359.0, [answer()], ["POST", "PATCH"], id="within six minutes the count is raised"),
        pytest.param(360.0, [answer()], ["POST", "POST"], id="later it is a new event"),
        pytest.param(
            1.0,
            [refuse(404, "NotFound"), answer()],
            ["POST", "PATCH", "POST"],
            id="an event that has expired on the server is created again",
        ),
    ],
)
async def test_a_repeat_is_counted_or_a_new_event(
    scripted: ScriptedServer,
    client: KubeClient,
    seconds_later: float,
    answers: list[Responder],
    want_methods: list[str],
) -> None:
    now = 0.0
    scripted.will(answer(status=201), *answers)
    events = recorder(client, clock=lambda: now)
    pending(events)
    await send_all(events)

    now = seconds_later
    pending(events)
    await send_all(events)

    assert [request.method for request in scripted.requests] == want_methods
    assert events.sent == 2


async def test_what_finds_no_room_is_dropped_and_counted(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(answer(status=201), answer(status=201))
    events = recorder(client, limits=EventLimits(max_queued=2))
    for number in range(5):
        pending(events, note=f"note {number}")
    pending(events, note="note 0")

    await send_all(events)

    assert [request.json()["note"] for request in scripted.requests] == ["note 0", "note 1"]
    assert scripted.requests[0].json()["series"]["count"] == 2
    assert (events.sent, events.dropped) == (2, 3)


async def test_an_event_that_is_refused_is_dropped_and_the_others_go_on(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(refuse(403, "Forbidden", "namespace is being terminated"), answer(status=201))
    events = recorder(client)
    pending(events, note="first")
    pending(events, note="second")

    await send_all(events)

    assert [request.json()["note"] for request in scripted.requests] == ["first", "second"]
    assert (events.sent, events.dropped) == (1, 1)


@pytest.mark.parametrize(
    ("fault", "want_pause"),
    [
        pytest.param(refuse(429, "TooManyRequests", Retry_After="7"), 7.0, id="as long as the server asks"),
        pytest.param(refuse(503, "ServiceUnavailable"), 1.0, id="a server in trouble"),
        pytest.param(cut, 1.0, id="a lost connection"),
    ],
)
async def test_an_overloaded_server_is_not_asked_and_the_event_is_kept(
    scripted: ScriptedServer,
    client: KubeClient,
    monkeypatch: pytest.MonkeyPatch,
    fault: Responder,
    want_pause: float,
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        pending(events, note="kept")  # reported again meanwhile
        await sleep(0)

    monkeypatch.setattr("api.kube.events.asyncio.sleep", note)
    scripted.will(fault, answer(status=201), answer(status=201))
    events = recorder(client)
    pending(events, note="kept")

    await send_all(events)

    assert pauses == [want_pause]
    assert scripted.requests[1].json()["note"] == "kept"
    assert scripted.requests[1].json()["series"]["count"] == 2
    assert (events.sent, events.dropped) == (1, 0)


async def test_stopping_waits_no_longer_than_its_limit(client: KubeClient) -> None:
    events = recorder(client)
    pending(events)

    async with asyncio.timeout(PATIENCE_SECONDS):
        await events.drain(0.01)

    assert events.sent == 0


async def test_events_make_way_for_decisions(
    scripted: ScriptedServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, pauses = [0.0], list[float]()
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds
        await sleep(0)

    monkeypatch.setattr("api.kube.events.asyncio.sleep", note)
    scripted.will(*(answer(status=201) for _ in range(3)))
    load = WriteLoad()
    load.is_behind = True
    events = recorder(client, load=load, clock=lambda: now[0])
    for number in range(3):
        pending(events, note=f"note {number}")

    await send_all(events)

    # One a second, though a burst of them would be sent in quiet times.
    assert pauses == [1.0, 1.0]
    assert events.sent == 3


async def test_many_notes_of_one_reason_become_one_event(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(*(answer(status=201) for _ in range(MAX_SIMILAR + 2)))
    events = recorder(client)
    for number in range(MAX_SIMILAR + 5):
        pending(events, note=f"note {number}")
    pending(events, QUEUE, note="another object")

    await send_all(events)

    *single, combined, other = (request.json() for request in scripted.requests)
    assert [body["note"] for body in single] == [f"note {number}" for number in range(MAX_SIMILAR)]
    assert (combined["note"], combined["series"]["count"]) == (f"{COMBINED}note {MAX_SIMILAR}", 5)
    assert other["note"] == "another object"


async def test_folded_events_are_one_with_the_first_note(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(answer(status=201))
    events = recorder(client)
    for number in range(3):
        events.record(QUEUE, EventType.NORMAL, "PreemptedWorkload", f"note {number}", is_folded=True)

    await send_all(events)

    (event,) = (request.json() for request in scripted.requests)
    assert (event["note"], event["series"]["count"]) == ("note 0", 3)


async def test_notes_are_single_events_again_after_a_pause(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    now = 0.0
    scripted.will(*(answer(status=201) for _ in range(MAX_SIMILAR + 1)))
    events = recorder(client, clock=lambda: now)
    for number in range(MAX_SIMILAR):
        pending(events, note=f"note {number}")

    now = SIMILAR_SECONDS
    pending(events, note="another note")
    await send_all(events)

    assert scripted.requests[-1].json()["note"] == "another note"


@pytest.mark.parametrize(
    ("note", "want_note"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="what fits stays"),
        pytest.param("x" * 1025, "x" * 1021 + "…", id="one byte too many"),
        pytest.param("é" * 600, "é" * 510 + "…", id="cut between characters"),
    ],
)
def test_a_note_is_cut_at_what_the_api_takes(note: str, want_note: str) -> None:
    assert cut_note(note) == want_note
    assert len(want_note.encode()) <= 1024
