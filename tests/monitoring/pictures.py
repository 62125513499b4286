"""Pictures of the dashboards, drawn from Prometheus' answers; as a program it writes docs/images.

Grafana is not needed: the panels are drawn as SVG, in their places, with the series that they ask for. The
scene is that of the tests, so a picture shows seconds where a cluster shows hours.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from admission.simulation.report.svg import element, label, shortened
from tests.integration.manifests import Object
from tests.integration.waiting import wait_for
from tests.monitoring.panels import DASHBOARDS, Dashboard, Panel
from tests.monitoring.scene import Prometheus, played

FOLDER = Path(__file__).parents[2] / "docs/images"
# What Grafana replaces, for the whole scene.
VARIABLES = {
    "$__rate_interval": "20s",
    "$__range": "5m",
    "$namespace": ".*",
    "$queue": ".*",
    "$resource": "nvidia.com/gpu",
}
SECONDS = 90.0
_COLUMN, _GAP, _HEAD = 40.0, 8.0, 24.0
_LINE_HEIGHT, _NUMBER_HEIGHT = 170.0, 70.0
_COLORS = ("#2f6fde", "#d9822b", "#2a9d5c", "#b0468e", "#6b6f76", "#c23b3b", "#1b9aaa", "#8a6d3b")
_MOST_LEGENDS = 3
_STYLE = """
text{font:11px system-ui,sans-serif;fill:#24292f}.title{font-weight:600;font-size:12px}
.small{fill:#57606a;font-size:10px}
.section{font-weight:600;font-size:14px}.number{font-size:26px;font-weight:600;fill:#2f6fde}
.panel{fill:#fff;stroke:#d0d7de}.page{fill:#f6f8fa}.grid{stroke:#eaeef2}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a panel: its name and its values by time, finite ones alone."""

    name: str
    points: tuple[tuple[float, float], ...]


def answered(query: str) -> str:
    """Return a panel's query or title as Grafana sends it."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def series_of(prometheus: Prometheus, legend: str, query: str) -> list[Series]:
    """Return the series of a query that have a value."""
    found = prometheus.series(answered(query), seconds=SECONDS)
    lines = (
        Series(name=_named(legend, one["metric"]), points=tuple(_finite(one["values"]))) for one in found
    )
    return [line for line in lines if line.points]


def _named(legend: str, labels: Object) -> str:
    for name, value in labels.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    return legend


def _finite(values: Sequence[tuple[float, str]]) -> Iterator[tuple[float, float]]:
    yield from ((at, float(text)) for at, text in values if isfinite(float(text)))


def picture(dashboard: Dashboard, prometheus: Prometheus) -> str:
    """Return the SVG of a dashboard."""
    parts, y = [label(16, 28, dashboard.title, kind="section")], 44.0
    for title, panels in dashboard.sections.items():
        parts.append(label(16, y + 14, title, kind="section"))
        x, y, height = 0, y + _HEAD, 0.0
        for panel in panels:
            if x + panel.width > 24:
                x, y = 0, y + height + _GAP
            height = _NUMBER_HEIGHT if panel.is_number else _LINE_HEIGHT
            lines = [one for entry in panel.queries.items() for one in series_of(prometheus, *entry)]
            parts.append(_panel(panel, lines, at=(16 + x * _COLUMN, y), height=height))
            x += panel.width
        y += height + _GAP
    width = 24 * _COLUMN + 32
    page = element("rect", x=0, y=0, width=width, height=y + 8, class_="page")
    style = element("style", _STYLE)
    attributes: dict[str, str | float] = {"viewBox": f"0 0 {width:g} {y + 8:g}", "role": "img"}
    namespace = 'xmlns="http://www.w3.org/2000/svg"'
    drawing = element("svg", style, page, *parts, aria_label=dashboard.title, **attributes)
    return drawing.replace("<svg", f"<svg {namespace}", 1) + "\n"


def _panel(panel: Panel, lines: Sequence[Series], *, at: tuple[float, float], height: float) -> str:
    (x, y), width = at, panel.width * _COLUMN - _GAP
    frame = element("rect", x=x, y=y, width=width, height=height, rx=4, class_="panel")
    title = label(x + 8, y + 17, shortened(answered(panel.title), int(width / 8)), kind="title")
    if panel.is_number:
        value = _text(lines[0].points[-1][1], panel.unit)
        return frame + title + label(x + 8, y + 54, value, kind="number")
    return frame + title + _chart(panel, lines, left=x + 52, right=x + width - 10, top=y + 28)


def _chart(panel: Panel, lines: Sequence[Series], *, left: float, right: float, top: float) -> str:
    bottom = top + 84
    every = [point for line in lines for point in line.points]
    begin, end = min(at for at, _ in every), max(at for at, _ in every)
    most = max((value for _, value in every), default=0) or 1.0
    grid = "".join(
        element("line", x1=left, x2=right, y1=y, y2=y, class_="grid")
        + label(left - 4, y + 4, _text(most * share, panel.unit), kind="small", anchor="end")
        for share, y in ((0, bottom), (0.5, (top + bottom) / 2), (1, top))
    )

    def place(point: tuple[float, float]) -> str:
        x = left + (point[0] - begin) / max(1.0, end - begin) * (right - left)
        return f"{x:.0f},{bottom - point[1] / most * (bottom - top):.1f}"

    drawn = "".join(
        element(
            "polyline",
            points=" ".join(map(place, line.points)),
            fill="none",
            stroke=_COLORS[number % len(_COLORS)],
            stroke_width=1.6,
        )
        for number, line in enumerate(lines)
    )
    return grid + drawn + _legends(lines, left=left - 40, top=bottom + 16)


def _legends(lines: Sequence[Series], *, left: float, top: float) -> str:
    shown = [line.name for line in lines[:_MOST_LEGENDS]]
    rest = len(lines) - len(shown)
    rows = [
        f'<rect x="{left:g}" y="{top + 14 * number - 8:g}" width="10" height="3" fill="{_COLORS[number]}"/>'
        + label(left + 16, top + 14 * number - 3, shortened(name, 44), kind="small")
        for number, name in enumerate(shown)
    ]
    more = label(left + 250, top + 25, f"and {rest} more", kind="small", anchor="end") if rest else ""
    return "".join(rows) + more


def _text(value: float, unit: str) -> str:
    match unit:
        case "percentunit":
            return f"{value:.0%}"
        case "percent":
            return f"{value:.0f}%"
        case "bytes":
            return f"{value / 2**20:.0f} MiB"
        case "s":
            return f"{value / 3600:.3g} h" if value >= 3600 else f"{value:.3g} s"
        case _:
            return f"{value:.3g}"


def silent(prometheus: Prometheus) -> list[str]:
    """Return the queries of all panels that have no series."""
    queries = (entry for one in DASHBOARDS for panel in one.panels for entry in panel.queries.items())
    return [query for legend, query in queries if not series_of(prometheus, legend, query)]


def main() -> None:
    """Play the scene and write a picture of each dashboard."""
    with tempfile.TemporaryDirectory() as folder, played(Path(folder)) as prometheus:
        wait_for(lambda: not silent(prometheus), lambda: f"series of {silent(prometheus)}")
        for dashboard in DASHBOARDS:
            (FOLDER / f"dashboard-{dashboard.name}.svg").write_text(picture(dashboard, prometheus))


if __name__ == "__main__":
    main()
