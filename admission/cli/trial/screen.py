"""Shows the board during a run: a live table on a terminal, a line at intervals elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from admission.cli.trial.demo_table import Board, to_line, to_table

# How often the table is redrawn.
_REDRAW_SECONDS = 0.25
_LINE_SECONDS = 2.0


async def show_live(read_board: Callable[[], Board], console: Console) -> None:
    """Show the current board until cancelled; the last one remains visible."""
    if console.is_terminal:
        await _redraw(read_board, console)
    else:
        await _print_lines(read_board, console)


async def _redraw(read_board: Callable[[], Board], console: Console) -> None:
    with Live(console=console, auto_refresh=False, transient=False) as live:
        try:
            while True:
                live.update(to_table(read_board()), refresh=True)
                await asyncio.sleep(_REDRAW_SECONDS)
        finally:
            live.update(to_table(read_board()), refresh=True)


async def _print_lines(read_board: Callable[[], Board], console: Console) -> None:
    try:
        while True:
            await asyncio.sleep(_LINE_SECONDS)
            console.print(to_line(read_board()))
    finally:
        console.print(to_line(read_board()))
