"""Curves on logarithmic scales: the power with which they grow, and their drawing as an SVG file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from admission.simulation.report.svg import WIDTH, element, label, line, titled

_COLUMNS = 2
_HEIGHT, _PLOT_HEIGHT = 190.0, 120.0
_LEFT, _TOP = 60.0, 34.0
# Browsers choose the theme of the page around them.
_STYLE = (
    "text{font:11px sans-serif;fill:#555}.name{font-weight:bold}"
    ".grid{stroke:#8884}.curve{stroke:#1f77b4;stroke-width:2}.dot{fill:#1f77b4}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A curve through points (x, y) in the order of x. Both are above 0."""

    title: str
    points: tuple[tuple[float, float], ...]


def power(points: Sequence[tuple[float, float]]) -> float:
    """Return the p of the curve c * x ** p that fits the points best; 0 for fewer than two points.

    Least squares on the logarithms. A value of 0 counts as a millionth.
    """
    logs = [(math.log(x), math.log(max(y, 1e-6))) for x, y in points]
    if len(logs) < 2:
        return 0.0
    mean_x, mean_y = (sum(pair[axis] for pair in logs) / len(logs) for axis in (0, 1))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def to_svg(curves: Sequence[Curve]) -> str:
    """Return a file with a panel for each curve, two in a row."""
    width = WIDTH / _COLUMNS
    panels = [
        element(
            "g",
            _panel(curve, width - _LEFT - 30),
            transform=f"translate({number % _COLUMNS * width:g} {number // _COLUMNS * _HEIGHT:g})",
        )
        for number, curve in enumerate(curves)
    ]
    height = math.ceil(len(curves) / _COLUMNS) * _HEIGHT
    style = element("style", _STYLE)
    box = f"0 0 {WIDTH:g} {height:g}"
    return element("svg", style, *panels, xmlns="http://www.w3.org/2000/svg", viewBox=box) + "\n"


def _panel(curve: Curve, width: float) -> str:
    xs, ys = ([pair[axis] for pair in curve.points] for axis in (0, 1))
    across = _Scale(least=min(xs), most=max(xs), begin=_LEFT, end=_LEFT + width)
    # Upwards, and over a factor of ten at least, so that a flat curve looks flat.
    up = _Scale(least=min(*ys, max(ys) / 10), most=max(ys), begin=_TOP + _PLOT_HEIGHT, end=_TOP)
    places = [(across.at(x), up.at(y)) for x, y in curve.points]
    grid = [_row(up.at(y), across, f"{y:,.0f}") for y in (up.least, up.most)]
    marks = [label(across.at(x), up.begin + 16, _short(x), anchor="middle") for x in xs]
    lines = [line(a, b, kind="curve") for a, b in pairwise(places)]
    dots = [
        titled(f"{x:,.0f}: {y:,.0f}", element("circle", cx=at[0], cy=at[1], r=3, class_="dot"))
        for (x, y), at in zip(curve.points, places, strict=True)
    ]
    return label(_LEFT, 16, curve.title, kind="name") + "".join((*grid, *marks, *lines, *dots))


def _row(y: float, across: _Scale, text: str) -> str:
    return line((across.begin, y), (across.end, y), kind="grid") + label(_LEFT - 6, y + 4, text, anchor="end")


def _short(number: float) -> str:
    return f"{number / 1000:g}k" if number >= 1000 else f"{number:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """A logarithmic scale from `least` at `begin` to `most` at `end`."""

    least: float
    most: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        span = math.log(self.most / self.least) or 1.0
        return self.begin + math.log(value / self.least) / span * (self.end - self.begin)
