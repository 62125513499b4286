"""The figures of a simulation as a table, the same on a terminal and in the HTML report."""

from __future__ import annotations

from collections.abc import Mapping

from admission.cli.summary import percent_text, seconds_text
from admission.cli.tables import make_console, make_table, print_table
from admission.simulation.figures import Figures
from admission.simulation.report_page import Table

_NUMBERS = (
    "MEAN WAIT",
    "P50",
    "P90",
    "P99",
    "GANGS",
    "STRICT",
    "SLOWDOWN",
    "BUSY",
    "LOST",
    "EVICTIONS",
    "BROKEN",
    "TOOK",
)
_NOTES = (
    "GANGS: mean wait of the Jobs of 8 GPUs and more. STRICT: of those that may evict others, where a policy",
    "preempts. SLOWDOWN: mean of (wait + run) ÷ run, runs of less than 10 min counted as 10 min.",
    "BUSY: useful GPU time while Jobs came. LOST: GPU-hours not kept.",
    "BROKEN: promised starts that were not kept, of all that were made.",
)
# A column only where Jobs of the trace name reservations.
_RESERVED = "RESERVED"
_RESERVED_NOTE = (
    "RESERVED: mean time to a Job's start from when it and its reservation are there; missed: no use of it."
)


def to_table(figures: Mapping[str, Figures]) -> Table:
    """Return a row a policy, rounded for people."""
    rows = [_to_row(name, one) for name, one in figures.items()]
    headings: tuple[str, ...] = ("POLICY", *_NUMBERS)
    notes = " ".join(_NOTES)
    if any(one.reserved is not None for one in figures.values()):
        headings, notes = (*headings, _RESERVED), f"{notes} {_RESERVED_NOTE}"
        rows = [(*row, _reserved_text(one)) for row, one in zip(rows, figures.values(), strict=True)]
    return Table(headings=headings, rows=rows, notes=notes)


def print_figures(figures: Mapping[str, Figures]) -> None:
    """Write the table to stdout, and under it what the headings mean."""
    shown = to_table(figures)
    table = make_table(*shown.headings, right=shown.headings[1:])
    for row in shown.rows:
        table.add_row(*row)
    console = make_console()
    print_table(console, table)
    console.print()
    for note in _NOTES:
        console.print(note)
    if _RESERVED in shown.headings:
        console.print(_RESERVED_NOTE)


def _reserved_text(one: Figures) -> str:
    if one.reserved is None:
        return "–"
    late = seconds_text(one.reserved.mean_late_seconds)
    return late if not one.reserved.missed else f"{late}, {one.reserved.missed:,} missed"


def _to_row(name: str, one: Figures) -> tuple[str, ...]:
    waits = (one.mean_wait_seconds, one.p50_wait_seconds, one.p90_wait_seconds, one.p99_wait_seconds)
    return (
        name,
        *(seconds_text(wait) for wait in waits),
        seconds_text(one.gangs.mean_wait_seconds),
        seconds_text(one.strict.mean_wait_seconds) if one.strict is not None else "–",
        f"{one.mean_bounded_slowdown:.1f}",
        percent_text(one.utilisation),
        f"{one.gpu_hours_lost:,.0f} h",
        f"{one.evictions:,}",
        f"{one.promises_broken}/{one.promises}",
        f"{one.run_seconds:.0f}s",
    )
