"""The figures of a simulation as a table, with the same columns on a terminal and in the HTML report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from admission.cli.views.summary import percent_text
from admission.cli.views.tables import make_console, make_table, print_table
from admission.simulation.figures import Figures
from admission.simulation.report.page import Table
from api.parsing.durations import seconds_text

_NUMBERS = (
    "MEAN WAIT",
    "P50",
    "P90",
    "P99",
    "GANGS",
    "SLOWDOWN",
    "BUSY",
    "LOST",
    "EVICTIONS",
    "BROKEN",
    "TOOK",
)
_NOTES = (
    "GANGS: mean wait of Jobs with 8 GPUs or more. SLOWDOWN: mean of (wait + run) ÷ run, runs of less",
    "than 10 min counted as 10 min. BUSY: useful GPU time while Jobs arrived. LOST: GPU-hours not kept.",
    "BROKEN: promised starts that were not kept, of all that were made.",
)


def _reserved_text(one: Figures) -> str:
    if one.reserved is None:
        return "–"
    late = seconds_text(one.reserved.mean_late_seconds)
    return late if not one.reserved.missed else f"{late}, {one.reserved.missed:,} missed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column that is shown if any policy has a value for it."""

    heading: str
    note: str
    is_known: Callable[[Figures], bool]
    text: Callable[[Figures], str]


_OPTIONAL = (
    _Column(
        heading="STRICT",
        note="STRICT: mean wait of Jobs that may preempt others, for policies that preempt.",
        is_known=lambda one: one.strict is not None,
        text=lambda one: seconds_text(one.strict.mean_wait_seconds) if one.strict is not None else "–",
    ),
    _Column(
        heading="RESERVED",
        note="RESERVED: mean time to a Job's start from when the Job and its reservation exist;"
        " missed: Jobs that could not use it.",
        is_known=lambda one: one.reserved is not None,
        text=_reserved_text,
    ),
    _Column(
        heading="PAID",
        note="PAID: the cost of all GPU-hours that Jobs held, by the prices of --flavors.",
        is_known=lambda one: one.cost is not None,
        text=lambda one: f"{one.cost or 0:,.0f}",
    ),
    _Column(
        heading="COST",
        note="COST: the cost of the lost GPU-hours.",
        is_known=lambda one: one.cost_lost is not None,
        text=lambda one: f"{one.cost_lost or 0:,.0f}",
    ),
)


def to_table(figures: Mapping[str, Figures]) -> Table:
    """Return a table with one row per policy and rounded figures."""
    rows = [_to_row(name, one) for name, one in figures.items()]
    headings: tuple[str, ...] = ("POLICY", *_NUMBERS)
    notes = " ".join(_NOTES)
    for column in _columns(figures.values()):
        headings, notes = (*headings, column.heading), f"{notes} {column.note}"
        rows = [(*row, column.text(one)) for row, one in zip(rows, figures.values(), strict=True)]
    return Table(headings=headings, rows=rows, notes=notes)


def print_figures(figures: Mapping[str, Figures]) -> None:
    """Write the table to stdout, and the meaning of its headings below it."""
    shown = to_table(figures)
    table = make_table(*shown.headings, right=shown.headings[1:])
    for row in shown.rows:
        table.add_row(*row)
    console = make_console()
    print_table(console, table)
    console.print()
    for note in (*_NOTES, *(column.note for column in _columns(figures.values()))):
        console.print(note)


def _columns(figures: Iterable[Figures]) -> Iterator[_Column]:
    every = tuple(figures)
    return (column for column in _OPTIONAL if any(column.is_known(one) for one in every))


def _to_row(name: str, one: Figures) -> tuple[str, ...]:
    waits = (one.mean_wait_seconds, one.p50_wait_seconds, one.p90_wait_seconds, one.p99_wait_seconds)
    return (
        name,
        *(seconds_text(wait) for wait in waits),
        seconds_text(one.gangs.mean_wait_seconds),
        f"{one.mean_bounded_slowdown:.1f}",
        percent_text(one.utilisation),
        f"{one.gpu_hours_lost:,.0f} h",
        f"{one.evictions:,}",
        f"{one.promises_broken:,}/{one.promises:,}" if one.promises else "–",
        f"{one.run_seconds:.0f}s",
    )
