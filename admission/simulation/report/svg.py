"""The building blocks of the report's charts: elements as text, scales and axes.

The charts are SVG inside the page, written without a charting library, which the page would have to contain
or fetch. So the file can be mailed, archived and opened without a network. The output is well-formed XML for
any names of tenants and Jobs. Lengths are in units of the viewBox; the page scales them.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

WIDTH = 900.0
# Characters that neither XML nor HTML can contain, not even as references.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LETTER_WIDTH = 6.2
# Distances between the marks of a time axis: the smallest one that gives at most `_MOST_MARKS` marks is used.
_STEPS_SECONDS = (60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400)
_MOST_MARKS = 10
_DAY_SECONDS = 86400
_UNITS = ((_DAY_SECONDS, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_WAIT_MARKS = (
    *((number, f"{number} s") for number in (1, 2, 5, 10, 20, 30)),
    *((number * 60, f"{number} min") for number in (1, 2, 5, 10, 20, 30)),
    *((number * 3600, f"{number} h") for number in (1, 2, 5, 10)),
    *(
        (number * _DAY_SECONDS, f"{number:,} d")
        for number in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000)
    ),
)


def escaped(text: str) -> str:
    """Return text that is safe in elements and quoted attributes. Characters invalid in XML become U+FFFD."""
    return html.escape(_FORBIDDEN.sub("\ufffd", text))


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters, the last of them an ellipsis if the text is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def element(name: str, *children: str, **attributes: str | float) -> str:
    """Return an element around markup; `class_` is class, other underscores are hyphens."""
    pairs = "".join(f' {_key(key)}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{pairs}>{''.join(children)}</{name}>"


def _key(key: str) -> str:
    return key.rstrip("_") if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    # A tenth of a unit is finer than a screen shows. The rounding halves the size of the file.
    return escaped(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, *, kind: str = "label", anchor: str = "start") -> str:
    """Return a line of text that begins, ends (`end`) or is centred (`middle`) at x."""
    return element("text", escaped(text), x=x, y=y, class_=kind, text_anchor=anchor)


def line(begin: tuple[float, float], end: tuple[float, float], *, kind: str) -> str:
    """Return a straight line."""
    return element("line", x1=begin[0], y1=begin[1], x2=end[0], y2=end[1], class_=kind)


def bar(x: float, y: float, *, width: float, height: float, kind: str) -> str:
    """Return a rectangle at least one unit wide, so that it is visible."""
    return element("rect", x=x, y=y, width=max(1.0, width), height=height, class_=kind)


def area(points: Iterable[tuple[float, float]], *, kind: str) -> str:
    """Return a filled shape."""
    return element("polygon", points=" ".join(f"{_value(x)},{_value(y)}" for x, y in points), class_=kind)


def titled(title: str, *children: str) -> str:
    """Return marks that show `title` on hover and to screen readers."""
    return element("g", element("title", escaped(title)), *children)


def chart(*children: str, height: float, about: str) -> str:
    """Return the whole drawing; `about` is its text description."""
    drawing = element("svg", *children, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=about)
    # On a narrow screen the drawing scrolls instead of becoming too small to read.
    return element("div", drawing, class_="wide")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeScale:
    """Virtual seconds from `begin` to `end`, drawn from `left` to `right`."""

    begin: float
    end: float
    left: float
    right: float = WIDTH - 10

    def at(self, seconds: float) -> float:
        """Return the x coordinate of a time."""
        span = max(1.0, self.end - self.begin)
        return self.left + (seconds - self.begin) / span * (self.right - self.left)

    def axis(self, top: float, bottom: float) -> str:
        """Return grid lines from top to bottom, labelled with the time since the first submit."""
        span = self.end - self.begin
        step = next((step for step in _STEPS_SECONDS if span / step <= _MOST_MARKS), None)
        # For a trace of years, use a multiple of the largest step.
        step = step or _STEPS_SECONDS[-1] * math.ceil(span / _STEPS_SECONDS[-1] / _MOST_MARKS)
        first = math.ceil(self.begin / step)
        marks = range(first, math.floor(self.end / step) + 1)
        return "".join(
            _mark(self.at(number * step), top, bottom, _instant_text(number * step)) for number in marks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitScale:
    """Waits on a logarithmic scale up to `longest` seconds, from the mark below `shortest` on.

    Shorter waits, including 0, are drawn at the left end.
    """

    shortest: float
    longest: float
    left: float
    right: float = WIDTH - 30

    @property
    def begin(self) -> float:
        """Return the wait at the left end, in seconds."""
        # Keep at least a factor of ten between the ends.
        most = max(self.shortest, 1.0) if self.shortest * 10 <= self.longest else self.longest / 10
        return max((seconds for seconds, _ in _WAIT_MARKS if seconds <= most), default=1)

    def at(self, seconds: float) -> float:
        """Return the x coordinate of a wait."""
        begin = self.begin
        span = math.log(max(10.0, self.longest / begin))
        return self.left + math.log(max(1.0, seconds / begin)) / span * (self.right - self.left)

    def axis(self, top: float, bottom: float) -> str:
        """Return grid lines from top to bottom, labelled with the wait."""
        shown = [one for one in _WAIT_MARKS if self.begin <= one[0] <= max(10.0 * self.begin, self.longest)]
        # Start at the left end, so that it has a label.
        shown = shown[:: math.ceil(len(shown) / _MOST_MARKS)]
        return "".join(_mark(self.at(seconds), top, bottom, text) for seconds, text in shown)


def legend(*entries: tuple[str, str]) -> str:
    """Return the legend of a chart. Entries are pairs of a mark's kind and its meaning."""
    items = [element("span", element("i", "", class_=kind), escaped(words)) for kind, words in entries]
    return element("div", *items, class_="legend")


def text_width(texts: Iterable[str]) -> float:
    """Return the approximate width of the widest text, without measuring a font."""
    return max((len(text) * _LETTER_WIDTH for text in texts), default=0.0)


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: 45 s, 12 min 30 s, 3 h 5 min, 2 d 4 h."""
    whole = round(seconds)
    for size, name, part_size, part_name in _UNITS:
        if whole >= size:
            count, rest = divmod(whole, size)
            parts = rest // part_size
            return f"{count:,} {name} {parts} {part_name}" if parts else f"{count:,} {name}"
    return f"{whole} s"


def _mark(x: float, top: float, bottom: float, text: str) -> str:
    return line((x, top), (x, bottom), kind="grid") + label(x, bottom + 14, text, anchor="middle")


def _instant_text(seconds: float) -> str:
    """Return a time in the largest unit that gives a whole number: 2 d, 6 h, 15 min."""
    if seconds == 0:
        return "0"
    if seconds % _DAY_SECONDS == 0:
        return f"{seconds / _DAY_SECONDS:.0f} d"
    return f"{seconds / 3600:.0f} h" if seconds % 3600 == 0 else f"{seconds / 60:.0f} min"
