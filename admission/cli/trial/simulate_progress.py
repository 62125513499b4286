"""Shows a simulation's progress on stderr: a bar per policy on a terminal, lines at intervals elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from admission.cli.views.tables import make_console
from admission.simulation.virtual_run import Progress as OnProgress
from api.parsing.durations import seconds_text

_REDRAW_SECONDS = 0.25
_LINE_SECONDS = 10.0


class Shown(Protocol):
    """A display of the progress of each policy."""

    def of(self, policy: str) -> OnProgress:
        """Return the progress callback for the run of a policy."""
        ...


@contextmanager
def make_progress(jobs: int, policies: Sequence[str]) -> Iterator[Shown]:
    """Show the progress while the `with` block runs."""
    if not sys.stderr.isatty():
        yield _Lines(jobs)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f}%"))
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TextColumn("{task.fields[clock]}"),
        console=make_console(sys.stderr),
        auto_refresh=False,
    ) as progress:
        yield _Bars(progress, jobs, policies)


class _Bars:
    def __init__(self, progress: Progress, jobs: int, policies: Sequence[str]) -> None:
        self._progress = progress
        self._jobs = jobs
        width = max(len(name) for name in policies)
        self._tasks = {
            name: progress.add_task(name.ljust(width), total=jobs, start=False, clock="") for name in policies
        }

    def of(self, policy: str) -> OnProgress:
        task = self._tasks[policy]
        self._progress.start_task(task)
        due = _Due(_REDRAW_SECONDS)

        def show(ended: int, now: float) -> None:
            if ended == self._jobs or due.is_due():
                self._draw(task, ended, now)

        return show

    def _draw(self, task: TaskID, ended: int, now: float) -> None:
        clock = f"{seconds_text(now)} of the trace"
        self._progress.update(task, completed=ended, clock=clock, refresh=True)


class _Lines:
    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def of(self, policy: str) -> OnProgress:
        due = _Due(_LINE_SECONDS)

        def show(ended: int, now: float) -> None:
            if due.is_due():
                print(
                    f"{policy}: {ended} of {self._jobs} Jobs ended, {seconds_text(now)} of the trace",
                    file=sys.stderr,
                    flush=True,
                )

        return show


class _Due:
    """Reports whether an interval has passed since it last reported so. Cheap, because it is called often."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True
