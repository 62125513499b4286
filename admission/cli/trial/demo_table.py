"""The demo's live board: usage of every quota, borrowing, and the positions of waiting Workloads.

It is built from watch events, and shown as a table on a terminal and as one line elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from admission.cli.common.job_manifests import GPU
from admission.cli.trial.recorder import Recorder
from admission.cli.views.queue_view import QuotaRow
from admission.cli.views.tables import make_table, quota_text, starts_text
from admission.cli.views.workload_view import WorkloadRow, workload_rows
from queues.quota.resources import FlavorResource

# How many waiting Workloads the screen lists, so that the board fits a small window.
_WAITING_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """The current state of one ClusterQueue. `running` counts Workloads that hold quota."""

    name: str
    cohort: str
    quota: QuotaRow
    running: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Everything that the board shows at `now` (Unix seconds)."""

    elapsed_seconds: float
    jobs: int
    submitted: int
    finished: int
    failed: int
    queues: tuple[QueueLine, ...]
    waiting: tuple[WorkloadRow, ...]
    now: float = 0.0


def read_board(recorder: Recorder, *, elapsed_seconds: float, jobs: int, submitted: int, now: float) -> Board:
    """Return the board for the current state; `now` is in Unix seconds."""
    workloads = recorder.wanted_workloads()
    rows = workload_rows(workloads, recorder.local_queues, now=now)
    # Count Jobs instead of Workloads: those are deleted with their Jobs, and some Jobs never had one.
    ended = [times for times in recorder.jobs.values() if times.finished_at is not None]
    return Board(
        elapsed_seconds=elapsed_seconds,
        jobs=jobs,
        submitted=submitted,
        finished=sum(not times.has_failed for times in ended),
        failed=sum(times.has_failed for times in ended),
        queues=_queue_lines(recorder, rows),
        # Include all of them: the line below the table says how many are not listed.
        waiting=tuple(row for row in rows if row.status == "pending"),
        now=now,
    )


def to_table(board: Board) -> RenderableType:
    """Return the board as a table for a terminal."""
    queues = make_table(
        *("QUEUE", "COHORT", "FLAVOR", "GPUS IN USE", "RUNNING", "WAITING"), right=("RUNNING", "WAITING")
    )
    for line in board.queues:
        queues.add_row(
            *(line.name, line.cohort or "-", line.quota.flavor),
            quota_text(line.quota, is_plain=False),
            *(str(line.running), str(line.pending)),
        )
    waiting = make_table(
        *("PLACE", "QUEUE", "WAITING JOB", "STARTS", "WHY", "MESSAGE"), right=("PLACE",), is_cut=True
    )
    for row in board.waiting[:_WAITING_LINES]:
        starts = starts_text(row, now=board.now)
        waiting.add_row(
            *(str(row.position or "-"), row.cluster_queue, row.job, starts, row.reason, row.message)
        )
    more = len(board.waiting) - _WAITING_LINES
    return Group(
        Text(_headline(board), style="bold"),
        Text(),
        queues,
        Text(),
        waiting if board.waiting else Text("no job waits", style="dim"),
        Text(f"and {more} more" if more > 0 else "", style="dim"),
    )


def to_line(board: Board) -> str:
    """Return the board as one line."""
    queues = ", ".join(_queue_words(line) for line in board.queues)
    return f"{_headline(board)} | {queues}"


def _headline(board: Board) -> str:
    minutes, seconds = divmod(int(board.elapsed_seconds), 60)
    failed = f", {board.failed} failed" if board.failed else ""
    return (
        f"{minutes:02}:{seconds:02}  {board.submitted} of {board.jobs} jobs submitted,"
        f" {board.finished} finished{failed}"
    )


def _queue_words(line: QueueLine) -> str:
    waiting = f" and {line.pending} wait" if line.pending else ""
    return f"{line.name} {quota_text(line.quota, is_plain=True)} GPUs{waiting}"


def _queue_lines(recorder: Recorder, rows: Sequence[WorkloadRow]) -> tuple[QueueLine, ...]:
    lines: list[QueueLine] = []
    for queue in recorder.cluster_queues.store.values():
        name = queue.metadata.name
        own = [row for row in rows if row.cluster_queue == name]
        lines.extend(
            QueueLine(
                name=name,
                cohort=queue.spec.cohort_name or "",
                quota=_quota(recorder, name, pair, nominal),
                running=sum(row.status in ("admitted", "quotaReserved") for row in own),
                pending=sum(row.status == "pending" for row in own),
            )
            for pair, nominal in recorder.ledger.nominal(name).items()
            # Omit CPUs: they would double the number of lines without adding information.
            if pair.resource == GPU
        )
    # List queues of one cohort next to each other, so that borrowing between them is visible.
    return tuple(sorted(lines, key=lambda line: (line.cohort == "", line.cohort, line.name)))


def _quota(recorder: Recorder, name: str, pair: FlavorResource, nominal: int) -> QuotaRow:
    return QuotaRow(
        flavor=pair.flavor,
        resource=pair.resource,
        # Use the sum over the Workloads, because the status of a ClusterQueue is written with a delay.
        used=recorder.ledger.used(name).get(pair, 0),
        nominal=nominal,
        borrowing_limit=None,
    )
