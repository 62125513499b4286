"""The demo's live picture: who uses how much of which quota, who borrows, who waits at which place.

Made from what the watches have delivered; as a table on a terminal, as one line elsewhere.
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
from admission.simulation.ledger import FlavorResource

# Lines of waiting Workloads on the screen; the whole picture fits a small window.
_WAITING_LINES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """One ClusterQueue now. `running` counts Workloads that hold quota."""

    name: str
    cohort: str
    quota: QuotaRow
    running: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All that the picture shows of the moment `now` (Unix seconds)."""

    elapsed_seconds: float
    jobs: int
    submitted: int
    finished: int
    failed: int
    queues: tuple[QueueLine, ...]
    waiting: tuple[WorkloadRow, ...]
    now: float = 0.0


def picture(recorder: Recorder, *, elapsed_seconds: float, jobs: int, submitted: int, now: float) -> Board:
    """Return the picture of this moment; `now` is in Unix seconds."""
    workloads = recorder.wanted_workloads()
    rows = workload_rows(workloads, recorder.local_queues, now=now)
    # Jobs are counted by the Jobs themselves: Workloads are deleted with them, and some never had one.
    ended = [times for times in recorder.jobs.values() if times.finished_at is not None]
    return Board(
        elapsed_seconds=elapsed_seconds,
        jobs=jobs,
        submitted=submitted,
        finished=sum(not times.has_failed for times in ended),
        failed=sum(times.has_failed for times in ended),
        queues=_queue_lines(recorder, rows),
        # All of them: how many are cut off is told below the table.
        waiting=tuple(row for row in rows if row.status == "pending"),
        now=now,
    )


def to_table(board: Board) -> RenderableType:
    """Return the picture for a terminal."""
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
        waiting if board.waiting else Text("nobody waits", style="dim"),
        Text(f"and {more} more" if more > 0 else "", style="dim"),
    )


def to_line(board: Board) -> str:
    """Return the picture in one line."""
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
            # A line of CPUs under each would double the picture and say nothing more.
            if pair.resource == GPU
        )
    # Queues of one cohort side by side, where borrowing shows as one falling and the other rising.
    return tuple(sorted(lines, key=lambda line: (line.cohort == "", line.cohort, line.name)))


def _quota(recorder: Recorder, name: str, pair: FlavorResource, nominal: int) -> QuotaRow:
    return QuotaRow(
        flavor=pair.flavor,
        resource=pair.resource,
        # Summed up from Workloads; the status of a ClusterQueue lags behind by design.
        used=recorder.ledger.used(name).get(pair, 0),
        nominal=nominal,
        borrowing_limit=None,
    )
