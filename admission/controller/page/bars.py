"""Times as bars: where each begins and ends on a common axis.

A row is a drawing of its own, `WIDTH` wide, which a browser stretches. Colours come from classes, since
the page allows no style within a document. What a bar shows is also said in words beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from admission.controller.page.texts import relative_text

WIDTH = 1000.0
# The least that can be seen.
_LEAST_WIDTH = 4.0
_MOST_TICKS = 8
_STEPS = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400, 172800, 604800, 2592000, 31536000),
)


@dataclass(frozen=True, slots=True)
class Span:
    """What lasts from one instant to another (Unix seconds): a bar of the class `kind`."""

    begins_at: float
    ends_at: float
    kind: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A span in the drawing."""

    x: float
    width: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Rows of bars with their axis: lines at round distances from `now_x`, and how far both ends are."""

    width: float
    rows: tuple[tuple[Bar, ...], ...]
    ticks: tuple[float, ...]
    now_x: float
    begin: str
    end: str


def drawing(rows: Sequence[Iterable[Span]], *, now: float) -> Drawing:
    """Return the drawing of these rows, from the first begin (or now, Unix seconds) to the last end."""
    known = [tuple(row) for row in rows]
    spans = [span for row in known for span in row]
    begin = min([now, *(span.begins_at for span in spans)])
    end = max([now + 1, *(span.ends_at for span in spans)])
    scale = WIDTH / (end - begin)

    def bar(span: Span) -> Bar:
        width = max(_LEAST_WIDTH, (span.ends_at - span.begins_at) * scale)
        return Bar(round((span.begins_at - begin) * scale, 1), round(width, 1), span.kind)

    return Drawing(
        width=WIDTH,
        rows=tuple(tuple(map(bar, row)) for row in known),
        ticks=tuple(round((at - begin) * scale, 1) for at in _ticks(begin, end, now)),
        now_x=round((now - begin) * scale, 1),
        begin=relative_text(begin, now),
        end=relative_text(end, now),
    )


def _ticks(begin: float, end: float, now: float) -> Iterable[float]:
    """Yield the instants at round distances from now."""
    step = next((one for one in _STEPS if (end - begin) / one <= _MOST_TICKS), _STEPS[-1])
    first = -int((now - begin) // step)
    return (now + number * step for number in range(first, int((end - now) // step) + 1) if number)
