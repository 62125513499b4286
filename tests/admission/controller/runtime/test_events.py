"""Which Events of the controller are sent again, and which are counted as warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.events import REPEAT_SECONDS, SAME_WARNING_SECONDS, EventReporter
from admission.decisions.api_writes import Event
from api.object_events import EventType, ObjectRef
from tests.admission.controller.fakes import FakeClock, FakeRecorder

JOB = ObjectRef(kind="Job", api_version="batch/v1", namespace="team", name="j", uid="uid-j")
EVENT = Event(regarding=JOB, type=EventType.NORMAL, reason="Started", note="now", action="Start")


@pytest.mark.parametrize(
    ("seconds", "other", "want"),
    [
        pytest.param(REPEAT_SECONDS - 1, EVENT, 1, id="at once it is not repeated"),
        pytest.param(REPEAT_SECONDS, EVENT, 2, id="after a while it is"),
        pytest.param(0, replace(EVENT, note="then"), 2, id="other words are news"),
        pytest.param(0, replace(EVENT, regarding=replace(JOB, uid="new")), 2, id="and so is another object"),
    ],
)
def test_an_event_that_is_repeated_is_sent_now_and_then(seconds: float, other: Event, want: int) -> None:
    clock, recorder = FakeClock(), FakeRecorder()
    events = EventReporter(recorder, monotonic=clock.monotonic)
    events.send(EVENT)
    clock.at += seconds

    events.send(other)

    assert len(recorder.events) == want


WARNING = replace(EVENT, type=EventType.WARNING)


@pytest.mark.parametrize(
    ("event", "seconds", "want"),
    [
        pytest.param(WARNING, SAME_WARNING_SECONDS - 1, 1, id="a warning of several writes is sent once"),
        pytest.param(WARNING, SAME_WARNING_SECONDS, 2, id="and again after a while"),
        pytest.param(EVENT, 0, 2, id="any other Event is another occurrence"),
    ],
)
def test_events_of_writes(event: Event, seconds: float, want: int) -> None:
    clock, recorder = FakeClock(), FakeRecorder()
    events = EventReporter(recorder, monotonic=clock.monotonic)
    events.send(event, is_once=False)
    clock.at += seconds

    events.send(event, is_once=False)

    assert len(recorder.events) == want


def test_warnings_are_counted_by_their_reason_and_each_once() -> None:
    metrics = Metrics(version="test")
    events = EventReporter(FakeRecorder(), monotonic=FakeClock().monotonic, observe=metrics.count_warning)
    warning = replace(EVENT, type=EventType.WARNING, reason="InvalidAnnotation")
    waiting = replace(warning, reason="WaitingForQuota")

    for event in (warning, warning, replace(warning, note="another"), EVENT, waiting):
        events.send(event)

    lines = [
        line for line in metrics.render().decode().splitlines() if line.startswith("berth_warnings_total")
    ]
    assert lines == ['berth_warnings_total{reason="InvalidAnnotation",replica_role="follower"} 2.0']
