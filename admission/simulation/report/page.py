"""The report of a simulation as one HTML page without external resources.

    table ── GPUs over time ── waits by tenant, by size ── promises ── settings ── the figures as JSON

The page is also well-formed XML, so that programs can read it. It contains the JSON report, so that a reader
of the page has the exact figures as well as the rounded ones. Colours follow the reader's system preference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admission.simulation.figures import span_of
from admission.simulation.report.charts import (
    MOST_PROMISES,
    Courses,
    promises_chart,
    usage_chart,
    waits_chart,
)
from admission.simulation.report.series import MOST_TENANTS, waits_by_size, waits_by_tenant
from admission.simulation.report.svg import duration_text, element, escaped, legend

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2128; --faint: #5b6470; --rule: #d8dee4;
  --useful: #0b5cad; --held: #9ec5ee; --broken: #c4321c; --promise: #111; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e4e8ec; --faint: #9aa4af;
  --rule: #333b44; --useful: #6cb2ff; --held: #2d5580; --broken: #ff7a63; --promise: #fff; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; }
p { color: var(--faint); max-width: 50rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { color: var(--faint); font-size: .75rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, max-content) minmax(5rem, 1fr));
  gap: .1rem 1.2rem; font-size: .9rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
svg { display: block; width: 100%; min-width: 44rem; height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; font-size: .85rem; margin-bottom: .6rem; }
.legend span { display: inline-flex; align-items: center; gap: .4rem; }
.legend i { width: 1.1rem; height: .6rem; background: currentColor; }
.legend .useful { background: var(--useful); } .legend .held { background: var(--held); }
.legend .broken { background: var(--broken); } .legend .dot { width: .6rem; border-radius: 50%; }
.legend .stroke { height: 1px; background: var(--faint); }
.legend .tick { width: 2px; height: .9rem; background: var(--promise); }
text { fill: var(--faint); font-size: 11px; } text.name { fill: var(--ink); font-weight: 600; }
.useful { fill: var(--useful); } .held { fill: var(--held); } .broken { fill: var(--broken); }
line { stroke: var(--faint); } .grid { stroke: var(--rule); }
.now { stroke: var(--ink); stroke-dasharray: 4 3; } text.over { fill: var(--ink); }
.promise { stroke: var(--promise); stroke-width: 2; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as text: headings, rows, and sentences that explain it."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: str


def html_page(report: Mapping[str, Any], table: Table, courses: Courses, *, gpus: int) -> str:
    """Return the page. `report` is the JSON report, `courses` are all Jobs by policy, on `gpus` GPUs."""
    title = "berth simulate"
    head = element("head", '<meta charset="utf-8"/>', element("title", title), element("style", _STYLE))
    body = element(
        "body",
        element("h1", title),
        element("p", escaped(_subject(report["settings"], courses, gpus))),
        _section("Policies", table.notes, _table(table)),
        _usage(courses, gpus),
        *_waits(courses),
        *_promises(courses),
        _settings(report["settings"]),
        _figures(report),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _section(title: str, note: str, *children: str) -> str:
    return element(
        "section", element("h2", escaped(title)), element("p", escaped(note)), "\n", *children, "\n"
    )


def _settings(settings: Mapping[str, object]) -> str:
    pairs = [
        element("dt", escaped(name.replace("_", " "))) + element("dd", escaped(_setting_text(value)))
        for name, value in settings.items()
    ]
    return element("section", element("h2", "Settings"), element("dl", *pairs))


def _subject(settings: Mapping[str, Any], courses: Courses, gpus: int) -> str:
    jobs = next(iter(courses.values()))
    begin, end = span_of(jobs)
    came, cluster = duration_text(end - begin), f"{settings['nodes']} = {gpus:,} GPUs"
    policies = "one policy" if len(courses) == 1 else f"{len(courses)} policies side by side"
    return f"{len(jobs):,} Jobs submitted in {came}, on {cluster}, under {policies}. From {settings['jobs']}."


def _setting_text(value: object) -> str:
    match value:
        case None:
            return "none"
        case float():
            return f"{value:g}"
        case (float() as low, float() as high):
            return f"{low:g}-{high:g}"
        case _:
            return str(value)


def _table(table: Table) -> str:
    head = element("tr", *(element("th", escaped(text)) for text in table.headings))
    rows = [element("tr", *(element("td", escaped(text)) for text in row)) for row in table.rows]
    whole = element("table", element("thead", head), element("tbody", *rows))
    return element("div", whole, class_="wide")


def _usage(courses: Courses, gpus: int) -> str:
    note = "After the last submit queues only drain. Times are since the first submit."
    marks = legend(
        ("useful", "doing work that was kept"),
        ("held", "held besides: saving, restarting, work that was lost"),
    )
    return _section("GPUs over time", note, marks, usage_chart(courses, gpus=gpus))


def _waits(courses: Courses) -> tuple[str, str]:
    note = "On a logarithmic scale; shorter waits are drawn at its left end."
    marks = legend(("dot useful", "median"), ("held", "to P90"), ("stroke", "to P99"))
    tenants = {name: waits_by_tenant(one) for name, one in courses.items()}
    sizes = {name: waits_by_size(one) for name, one in courses.items()}
    all_tenants = len({course.job.tenant for course in next(iter(courses.values()))})
    bounded = f" The {MOST_TENANTS} of {all_tenants:,} tenants with most Jobs."
    return (
        _section(
            "Waits by tenant",
            note + (bounded if all_tenants > MOST_TENANTS else ""),
            marks,
            waits_chart(tenants, about="waits by tenant and policy"),
        ),
        _section(
            "Waits by size", note, marks, waits_chart(sizes, about="waits by size of the Job and policy")
        ),
    )


def _promises(courses: Courses) -> list[str]:
    """Return a section for each policy that made promises."""
    sections = []
    for name, of_policy in courses.items():
        promises = sum(course.promised_at is not None for course in of_policy)
        if promises:
            marks = legend(
                ("stroke", "waiting"),
                ("tick", "first promised start"),
                ("held", "from the first start until done"),
                ("broken", "started later than promised"),
            )
            chart = promises_chart(of_policy, policy=name)
            sections.append(_section(f"Promises of {name}", _promises_shown(promises), marks, chart))
    return sections


def _promises_shown(promises: int) -> str:
    if promises <= MOST_PROMISES:
        return f"All {promises} promised Jobs, by submit time."
    return (
        f"{MOST_PROMISES} of {promises:,} promised Jobs, those that differ most from their promise,"
        " by submit time."
    )


def _figures(report: Mapping[str, Any]) -> str:
    # Use escapes of JSON instead of HTML: HTML takes the text of a script literally, while XML parses it.
    text = json.dumps(report)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", text, type="application/json", id="figures")
