"""The report of a simulation as one HTML page that needs nothing else.

    settings ── table ── GPUs over time ── waits by tenant, by size ── promises ── the figures as JSON

The page is well-formed XML too, so that programs can read it, and it holds the JSON report: who gets the page
mailed has the exact figures beside the rounded ones. Colours follow what the reader's system prefers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admission.simulation.report_pictures import (
    MOST_PROMISES,
    Courses,
    promises_picture,
    usage_picture,
    waits_picture,
)
from admission.simulation.report_series import MOST_TENANTS, waits_by_size, waits_by_tenant
from admission.simulation.report_svg import element, escaped

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
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.2rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
text { fill: var(--faint); font-size: 11px; } text.name { fill: var(--ink); font-weight: 600; }
.useful { fill: var(--useful); } .held { fill: var(--held); } .broken { fill: var(--broken); }
line { stroke: var(--faint); } .grid { stroke: var(--rule); } .now { stroke-dasharray: 4 3; }
.promise { stroke: var(--promise); stroke-width: 2; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as texts: headings, rows, and the sentences that explain it."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: str


def html_page(report: Mapping[str, Any], table: Table, courses: Courses, *, gpus: int) -> str:
    """Return the page. `report` is the JSON report, `courses` all Jobs by policy, on `gpus` GPUs."""
    title = "berth simulate"
    head = element("head", '<meta charset="utf-8"/>', element("title", title), element("style", _STYLE))
    body = element(
        "body",
        element("h1", title),
        _settings(report["settings"]),
        _section("Policies", table.notes, _table(table)),
        _usage(courses, gpus),
        *_waits(courses),
        *_promises(courses),
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


def _setting_text(value: object) -> str:
    return "none" if value is None else str(value)


def _table(table: Table) -> str:
    head = element("tr", *(element("th", escaped(text)) for text in table.headings))
    rows = [element("tr", *(element("td", escaped(text)) for text in row)) for row in table.rows]
    whole = element("table", element("thead", head), element("tbody", *rows))
    return element("div", whole, class_="wide")


def _usage(courses: Courses, gpus: int) -> str:
    note = (
        "Strong: GPUs doing work that was kept. Faint: held besides, for saving, restarting and work that was"
        " lost. The dashed line is the last submit, after which queues only drain. Times are since the first."
    )
    return _section("GPUs over time", note, usage_picture(courses, gpus=gpus))


def _waits(courses: Courses) -> tuple[str, str]:
    note = "Dot: median. Bar: to P90. Line: to P99. Waits of a second or less are at the left end."
    tenants = {name: waits_by_tenant(one) for name, one in courses.items()}
    sizes = {name: waits_by_size(one) for name, one in courses.items()}
    all_tenants = len({course.job.tenant for course in next(iter(courses.values()))})
    bounded = f" The {MOST_TENANTS} of {all_tenants:,} tenants with most Jobs."
    return (
        _section(
            "Waits by tenant",
            note + (bounded if all_tenants > MOST_TENANTS else ""),
            waits_picture(tenants, about="waits by tenant and policy"),
        ),
        _section("Waits by size", note, waits_picture(sizes, about="waits by size of the Job and policy")),
    )


def _promises(courses: Courses) -> list[str]:
    """Return a section for each policy that promised a start."""
    sections = []
    for name, of_policy in courses.items():
        promises = sum(course.promised_at is not None for course in of_policy)
        if promises:
            note = (
                "Line: waiting. Tick: the first promised start. Bar: from the first start until done, red"
                f" where that is later than promised. {_promises_shown(promises)}"
            )
            picture = promises_picture(of_policy, policy=name)
            sections.append(_section(f"Promises of {name}", note, picture))
    return sections


def _promises_shown(promises: int) -> str:
    if promises <= MOST_PROMISES:
        return f"All {promises} promised Jobs, by submit time."
    return (
        f"{MOST_PROMISES} of {promises:,} promised Jobs, those that started furthest from their promise,"
        " by submit time."
    )


def _figures(report: Mapping[str, Any]) -> str:
    # Escapes of JSON, not of HTML: a script's text is taken as it stands by HTML and parsed by XML.
    text = json.dumps(report)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", text, type="application/json", id="figures")
