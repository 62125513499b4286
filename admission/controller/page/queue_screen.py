"""A ClusterQueue's Workloads with their time as bars: those that run, then those that wait in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from admission.answers.items import WorkloadItem
from admission.controller.page.bars import Bar, Drawing, Span, drawing
from api.parsing.times import to_seconds

# Work whose end is not known is drawn beyond all that is known, by this part of it.
_BEYOND = 0.1
# Where nothing is known, a minute is drawn.
_LEAST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A Workload and its bars."""

    item: WorkloadItem
    bars: tuple[Bar, ...]


def queue_rows(items: Sequence[WorkloadItem], *, now: float) -> tuple[Drawing, tuple[QueueRow, ...]]:
    """Return the common axis and a row for each Workload. `now` is in Unix seconds."""
    until = _horizon(items, now)
    drawn = drawing([tuple(spans(one, now=now, until=until)) for one in items], now=now)
    return drawn, tuple(QueueRow(one, row) for one, row in zip(items, drawn.rows, strict=True))


def _horizon(items: Sequence[WorkloadItem], now: float) -> float:
    """Return until when work of unknown length is drawn (Unix seconds)."""
    known = [
        to_seconds(at) for one in items for at in (one.expected_start, one.expected_end) if at is not None
    ]
    length = max(_LEAST_SECONDS, max(known, default=now) - now)
    return now + length * (1 + _BEYOND)


def spans(one: WorkloadItem, *, now: float, until: float | None = None) -> Iterator[Span]:
    """Yield how long the Workload has run, or what is expected of it; `until` as from `_horizon`."""
    beyond = _horizon([one], now) if until is None else until
    end = to_seconds(one.finished_at or one.expected_end) if one.finished_at or one.expected_end else beyond
    if one.started_at:
        begin = to_seconds(one.started_at)
        yield Span(begin, max(begin, end), "runs")
    elif one.expected_start and one.can_start:
        begin = max(now, to_seconds(one.expected_start))
        yield Span(begin, max(begin, end), "promised" if one.is_promised else "expected")
