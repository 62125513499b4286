"""Formats tables: with colours on a terminal, the same columns without colours elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from api.parsing.quantities import to_text
from api.parsing.times import to_seconds

if TYPE_CHECKING:
    # Rows of one kind need the texts of decisions, which take longer to import than a list of queues takes.
    from admission.cli.views.queue_view import QuotaRow
    from admission.cli.views.workload_view import WorkloadRow

# Files and pipes have no width. Messages on objects have at most 1024 bytes, and nothing else is long.
_WIDTH_OF_A_FILE = 2000
_BAR_CELLS = 12


class _Console(Console):
    """A console that raises on a closed pipe, for `main` to handle; rich would exit with code 1."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise."""
        raise BrokenPipeError


def make_console(file: IO[str] | None = None, *, width: int | None = None) -> Console:
    """Return a console on `file` (default: stdout), with colours only on a terminal and without NO_COLOR.

    Lines are not wrapped in files and pipes. `width` replaces that of the terminal.
    """
    stream = file or sys.stdout
    width = width if stream.isatty() else _WIDTH_OF_A_FILE
    return _Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def make_table(*headings: str, right: Iterable[str] = (), is_cut: bool = False) -> Table:
    """Return a table without borders, like kubectl's; the columns in `right` are right-aligned.

    A long MESSAGE continues in the next line; with `is_cut` it is truncated to one line.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    to_the_right = set(right)
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in to_the_right else "left",
            overflow="ellipsis" if is_cut else "fold",
            no_wrap=is_cut or heading != "MESSAGE",
        )
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table, in files and pipes without trailing blanks."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(line.rstrip())


def quota_text(row: QuotaRow, *, is_plain: bool) -> Text:
    """Return `████████░░░░ 5/8`, with the borrowed part in another colour and `+2 borrowed` appended."""
    text = Text()
    if not is_plain:
        text.append_text(quota_bar(row))
        text.append(" ")
    used, quota = to_text(row.resource, row.used), to_text(row.resource, row.quota)
    text.append(f"{used}/{quota}")
    if row.borrowed:
        text.append(f" (+{to_text(row.resource, row.borrowed)} borrowed)", style="yellow")
    if row.over:
        text.append(f" ({to_text(row.resource, row.over)} over quota)", style="red")
    if row.quota < 0:
        text.append(" (the quota must not be negative)", style="red")
    if row.in_force is not None:
        until = f" until {row.until}" if row.until else ""
        instead = f"instead of {to_text(row.resource, row.nominal)}"
        text.append(f" ({row.window}{until}, {instead})", style="cyan")
    return text


def quota_bar(row: QuotaRow) -> Text:
    """Return a bar of twelve characters for own quota in use, borrowed and free.

    The whole bar stands for the larger of quota and usage.
    """
    cells, quota = _BAR_CELLS, max(0, row.quota)
    whole = max(quota, row.used)
    if whole == 0:
        return Text("·" * cells, style="dim")
    own = round(min(row.used, quota) * cells / whole)
    borrowed = round(row.borrowed * cells / whole)
    if row.borrowed and not borrowed:
        own, borrowed = cells - 1, 1
    bar = Text("█" * own, style="green")
    bar.append("█" * borrowed, style="yellow")
    return bar.append("░" * (cells - own - borrowed), style="dim")


def names_text(names: Sequence[str], *, most: int, count: int | None = None) -> str:
    """Return the first `most` names, and how many more there are; `count` is the number of all."""
    shown = names[:most]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def duration_text(seconds: float) -> str:
    """Return a duration as kubectl prints ages: 45s, 12m, 3h20m, 4d."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if minutes < 120:
        return f"{minutes}m"
    if hours < 48:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{days}d"


def starts_text(row: WorkloadRow, *, now: float) -> str:
    """Return the time until the expected start, with a star if it is a promise.

    For a Workload behind all those with a known start, return a lower bound; "never" for one that cannot
    start as it is.
    """
    if not row.can_start and row.status == "pending":
        return "never"
    reported = row.expected_start or row.expected_after
    if not reported:
        return ""
    try:
        left = to_seconds(reported) - now
    except ValueError:
        return reported
    if not row.expected_start:
        return f"after {duration_text(left)}" if left > 0 else ""
    text = f"in {duration_text(left)}" if left > 0 else "now"
    return f"{text}*" if row.is_promised else text


def between_text(row: WorkloadRow, *, now: float) -> str:
    """Return the interval of the expected start, such as 10m-2h; "" if it is not known."""
    if not row.earliest_start or not row.latest_start:
        return ""
    earliest, latest = (
        duration_text(max(0.0, to_seconds(text) - now)) for text in (row.earliest_start, row.latest_start)
    )
    return f"{earliest}-{latest}"
