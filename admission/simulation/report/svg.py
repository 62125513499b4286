"""The few marks that the report's pictures are made of: elements as text, scales, axes.

Everything is written out by hand as SVG inside the page, so that the file can be mailed, archived and opened
without a network: a charting library would have to be shipped in it or fetched. The output is well-formed XML
whatever a trace calls its tenants and Jobs. Lengths are units of the viewBox; the page scales them.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

WIDTH = 900.0
# Characters that neither XML nor HTML can hold, even as references.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LETTER_WIDTH = 6.2
# Instants that an axis of virtual time is marked at: the finest of these that gives at most so many marks.
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
    """Return text that is safe inside elements and quoted attributes; what XML cannot hold becomes U+FFFD."""
    return html.escape(_FORBIDDEN.sub("\ufffd", text))


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters, the last an ellipsis where some are left out."""
    return text if len(text) <= most else text[: most - 1] + "…"


def element(name: str, *children: str, **attributes: str | float) -> str:
    """Return an element around markup; `class_` is class, other underscores are hyphens."""
    pairs = "".join(f' {_key(key)}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{pairs}>{''.join(children)}</{name}>"


def _key(key: str) -> str:
    return key.rstrip("_") if key == "viewBox" else key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    # A tenth of a unit is finer than a screen shows and halves the file.
    return escaped(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def label(x: float, y: float, text: str, *, kind: str = "label", anchor: str = "start") -> str:
    """Return a line of text that begins, ends (`end`) or is centred (`middle`) at x."""
    return element("text", escaped(text), x=x, y=y, class_=kind, text_anchor=anchor)


def line(begin: tuple[float, float], end: tuple[float, float], *, kind: str) -> str:
    """Return a straight line."""
    return element("line", x1=begin[0], y1=begin[1], x2=end[0], y2=end[1], class_=kind)


def bar(x: float, y: float, *, width: float, height: float, kind: str) -> str:
    """Return a rectangle; what is shorter than a unit is drawn one unit wide, to be seen at all."""
    return element("rect", x=x, y=y, width=max(1.0, width), height=height, class_=kind)


def area(points: Iterable[tuple[float, float]], *, kind: str) -> str:
    """Return a filled shape."""
    return element("polygon", points=" ".join(f"{_value(x)},{_value(y)}" for x, y in points), class_=kind)


def titled(title: str, *children: str) -> str:
    """Return marks that show `title` under the pointer and to screen readers."""
    return element("g", element("title", escaped(title)), *children)


def picture(*children: str, height: float, about: str) -> str:
    """Return the whole drawing; `about` says in words what it shows."""
    drawing = element("svg", *children, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=about)
    # On a narrow screen it is pushed aside rather than made too small to be read.
    return element("div", drawing, class_="wide")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeScale:
    """Virtual seconds from `begin` to `end`, drawn from `left` to `right`."""

    begin: float
    end: float
    left: float
    right: float = WIDTH - 10

    def at(self, seconds: float) -> float:
        """Return the place of an instant."""
        span = max(1.0, self.end - self.begin)
        return self.left + (seconds - self.begin) / span * (self.right - self.left)

    def axis(self, top: float, bottom: float) -> str:
        """Return marks from top to bottom, and under them the time since the first submit."""
        span = self.end - self.begin
        step = next((step for step in _STEPS_SECONDS if span / step <= _MOST_MARKS), None)
        # Beyond all steps a trace is years long; then whole multiples of the largest.
        step = step or _STEPS_SECONDS[-1] * math.ceil(span / _STEPS_SECONDS[-1] / _MOST_MARKS)
        first = math.ceil(self.begin / step)
        marks = range(first, math.floor(self.end / step) + 1)
        return "".join(
            _mark(self.at(number * step), top, bottom, _instant_text(number * step)) for number in marks
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitScale:
    """Waits on a logarithmic scale up to `longest` seconds, from the mark below `shortest` on.

    What is shorter than that, no wait at all above all, stands at its left end.
    """

    shortest: float
    longest: float
    left: float
    right: float = WIDTH - 30

    @property
    def begin(self) -> float:
        """The wait at the left end, in seconds."""
        # A decade at least stays between the ends.
        most = max(self.shortest, 1.0) if self.shortest * 10 <= self.longest else self.longest / 10
        return max((seconds for seconds, _ in _WAIT_MARKS if seconds <= most), default=1)

    def at(self, seconds: float) -> float:
        """Return the place of a wait."""
        begin = self.begin
        span = math.log(max(10.0, self.longest / begin))
        return self.left + math.log(max(1.0, seconds / begin)) / span * (self.right - self.left)

    def axis(self, top: float, bottom: float) -> str:
        """Return marks from top to bottom, and under them how long that is."""
        shown = [one for one in _WAIT_MARKS if self.begin <= one[0] <= max(10.0 * self.begin, self.longest)]
        # From the left end on, so that what stands there is named.
        shown = shown[:: math.ceil(len(shown) / _MOST_MARKS)]
        return "".join(_mark(self.at(seconds), top, bottom, text) for seconds, text in shown)


def legend(*entries: tuple[str, str]) -> str:
    """Return what marks mean, above a picture: pairs of a mark's kind and words."""
    items = [element("span", element("i", "", class_=kind), escaped(words)) for kind, words in entries]
    return element("div", *items, class_="legend")


def text_width(texts: Iterable[str]) -> float:
    """Return about how wide the widest text is; no font is measured here."""
    return max((len(text) * _LETTER_WIDTH for text in texts), default=0.0)


def duration_text(seconds: float) -> str:
    """Return a length of time for people, in its two largest units: 45 s, 12 min 30 s, 3 h 5 min, 2 d 4 h."""
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
    """Return an instant in its largest unit that keeps it whole: 2 d, 6 h, 15 min."""
    if seconds == 0:
        return "0"
    if seconds % _DAY_SECONDS == 0:
        return f"{seconds / _DAY_SECONDS:.0f} d"
    return f"{seconds / 3600:.0f} h" if seconds % 3600 == 0 else f"{seconds / 60:.0f} min"
