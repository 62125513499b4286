"""Shows the progress of a replay on stderr: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from admission.cli.views.tables import make_console
from api.parsing.durations import seconds_text

_REDRAW_SECONDS = 0.25
_LINE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """The progress of a replay. `trace_seconds` is how much of the trace has passed."""

    jobs: int
    submitted: int
    waiting: int
    ended: int
    trace_seconds: float

    def __str__(self) -> str:
        running = self.submitted - self.waiting - self.ended
        return (
            f"{self.submitted} submitted, {self.waiting} waiting, {max(0, running)} running,"
            f" {self.ended} ended of {self.jobs}; {seconds_text(self.trace_seconds)} of the trace"
        )


async def show_progress(look: Callable[[], JobCounts]) -> None:
    """Show the progress until cancelled; `look` returns the current counts."""
    if sys.stderr.isatty():
        await _draw_bar(look)
    else:
        await _print_lines(look)


async def _draw_bar(look: Callable[[], JobCounts]) -> None:
    columns = (BarColumn(), TextColumn("{task.percentage:3.0f}%"), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.description}"), console=make_console(sys.stderr), auto_refresh=False
    ) as progress:
        task = progress.add_task("", total=look().jobs)
        while True:
            counts = look()
            progress.update(task, completed=counts.ended, description=str(counts), refresh=True)
            await asyncio.sleep(_REDRAW_SECONDS)


async def _print_lines(look: Callable[[], JobCounts]) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(_LINE_SECONDS)
        print(f"{time.monotonic() - began:4.0f} s: {look()}", file=sys.stderr, flush=True)
