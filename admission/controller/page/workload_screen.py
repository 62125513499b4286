"""One Workload: its time line, from its creation to its end or to what is expected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from admission.answers.items import PromiseItem, WorkloadItem
from admission.controller.page.bars import Drawing, Span, drawing
from admission.controller.page.queue_screen import spans
from api.parsing.times import to_seconds


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened or is expected at an instant (RFC 3339)."""

    at: str
    text: str


def time_line(one: WorkloadItem, *, now: float) -> Drawing:
    """Return the Workload's wait, then its run, as one row of bars. `now` is in Unix seconds."""
    return drawing([(_wait(one, now), *spans(one, now=now))], now=now)


def _wait(one: WorkloadItem, now: float) -> Span:
    created = to_seconds(one.created_at)
    until = one.started_at or one.finished_at or (one.expected_start if one.can_start else None)
    return Span(created, max(created, to_seconds(until) if until else now), "wait")


def moments(one: WorkloadItem, promise: PromiseItem | None) -> tuple[Moment, ...]:
    """Return what happened to the Workload and what is expected, in the order of time."""
    return tuple(sorted(_moments(one, promise), key=lambda each: to_seconds(each.at)))


def _moments(one: WorkloadItem, promise: PromiseItem | None) -> Iterator[Moment]:
    yield Moment(one.created_at, "created")
    if promise is not None:
        yield Moment(promise.made_at, "promised a start")
        if promise.moves:
            yield Moment(promise.first_start_at, "start as promised first")
    if one.started_at:
        yield Moment(one.started_at, "started")
    elif one.expected_start and one.can_start:
        yield Moment(one.expected_start, "start as promised" if one.is_promised else "start as expected")
    if one.finished_at:
        yield Moment(one.finished_at, "finished")
    elif one.expected_end:
        yield Moment(one.expected_end, "end as expected")


def mood(one: WorkloadItem) -> str:
    """Return the class that colours the verdict."""
    if one.status == "pending":
        return "warn" if one.can_start else "bad"
    return "bad" if one.status == "deactivated" else "good"
