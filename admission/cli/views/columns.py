"""Tables that stay legible on a narrow terminal: columns leave in a fixed order, and none that stays is cut.

kubectl's tables are wider than 80 columns, and a terminal then breaks each line somewhere. Here a table that
is too wide loses whole columns, the least important first, until the others fit. A column of sentences takes
what the others leave, and continues in the next line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from admission.cli.views.tables import make_console, print_table

Row = TypeVar("Row")
# Blanks between two columns.
_GAP = 3
# A column of sentences that is narrower is hard to read.
_LEAST_SENTENCE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """A column: its heading and the cell of a row.

    `leaves` is the order in which columns leave a table that is too wide, 0 for those that never do.
    `is_sentence`: its cells continue in the next line. `is_wide`: it is shown with -o wide only.
    """

    heading: str
    cell: Callable[[Row], str | Text]
    leaves: int = 0
    is_right: bool = False
    is_sentence: bool = False
    is_wide: bool = False


def print_rows(rows: Sequence[Row], columns: Iterable[Column[Row]], *, is_wide: bool = False) -> None:
    """Print the rows on stdout: on a terminal what fits, with `is_wide` and elsewhere all columns."""
    shown = [column for column in columns if is_wide or not column.is_wide]
    console = make_console()
    cells = {column.heading: [column.cell(row) for row in rows] for column in shown}
    widths = {heading: _width(heading, own) for heading, own in cells.items()}
    if console.is_terminal and not is_wide:
        shown = _fitting(shown, widths, console.width)
    own = [widths[column.heading] for column in shown if is_wide or not column.is_sentence]
    # What never leaves may be wider than the terminal, which then breaks the line and cuts nothing.
    needed = sum(own) + _GAP * len(shown)
    if console.is_terminal and needed > console.width:
        console = make_console(width=needed)
    print_table(console, _table(shown, cells, widths, is_wide=is_wide))


def _fitting(columns: list[Column[Row]], widths: dict[str, int], width: int) -> list[Column[Row]]:
    """Return the columns that fit into `width`, the least important having left first."""
    shown = list(columns)
    for column in sorted((one for one in columns if one.leaves), key=lambda one: one.leaves):
        if _needed(shown, widths) <= width:
            break
        shown.remove(column)
    return shown


def _needed(columns: Sequence[Column[Row]], widths: dict[str, int]) -> int:
    own = (
        min(widths[column.heading], _LEAST_SENTENCE) if column.is_sentence else widths[column.heading]
        for column in columns
    )
    return sum(own) + _GAP * (len(columns) - 1)


def _table(
    columns: Sequence[Column[Row]],
    cells: dict[str, list[str | Text]],
    widths: dict[str, int],
    *,
    is_wide: bool,
) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column in columns:
        folds = column.is_sentence and not is_wide
        table.add_column(
            column.heading,
            justify="right" if column.is_right else "left",
            no_wrap=not folds,
            overflow="fold",
            min_width=None if folds else widths[column.heading],
        )
    for line in zip(*(cells[column.heading] for column in columns), strict=True):
        table.add_row(*line)
    return table


def _width(heading: str, cells: Iterable[str | Text]) -> int:
    return max(cell_len(heading), *(cell_len(str(cell)) for cell in cells), 0)
