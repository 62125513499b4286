"""The demo's output: a line where there is no screen, a table where there is one."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from admission.cli.trial.demo_table import Board, QueueLine, to_line, to_table
from admission.cli.views.queue_view import QuotaRow
from admission.cli.views.tables import duration_text, quota_bar, quota_text
from admission.cli.views.workload_view import WorkloadRow

GPU = "nvidia.com/gpu"


def make_quota(used: int, nominal: int = 8) -> QuotaRow:
    return QuotaRow(flavor="a100", resource=GPU, used=used, nominal=nominal, borrowing_limit=None)


def make_waiting(name: str, position: int) -> WorkloadRow:
    return WorkloadRow(
        namespace="speech",
        name=f"job-{name}",
        job=name,
        queue="speech",
        cluster_queue="speech",
        status="pending",
        position=position,
        priority=0,
        reason="WaitingForQuota",
        message="[3 more] needed",
        age_seconds=1.0,
        expected_start="1970-01-01T00:01:50Z",
        is_promised=position == 1,
    )


BOARD = Board(
    elapsed_seconds=75.0,
    jobs=20,
    submitted=12,
    finished=3,
    failed=1,
    queues=(
        QueueLine(name="speech", cohort="research", quota=make_quota(10), running=4, pending=2),
        QueueLine(name="web", cohort="", quota=make_quota(0), running=0, pending=0),
    ),
    waiting=tuple(make_waiting(f"eval-{place}", place) for place in range(1, 11)),
    now=100.0,
)


def test_a_line_says_all_that_counts() -> None:
    assert to_line(BOARD) == (
        "01:15  12 of 20 jobs submitted, 3 finished, 1 failed | "
        "speech 10/8 (+2 borrowed) GPUs and 2 wait, web 0/8 GPUs"
    )


def test_a_table_shows_the_first_pending_workloads_and_counts_the_others() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, markup=False)
    with console.capture() as captured:
        console.print(to_table(BOARD))

    shown = captured.get()
    assert "eval-8" in shown
    assert "eval-9" not in shown
    assert "and 2 more" in shown
    # Only the first of them is promised its start.
    assert (shown.count("in 10s*"), shown.count("in 10s")) == (1, 8)
    # A message may have brackets, which are not markup.
    assert "[3 more]" in shown


@pytest.mark.parametrize(
    ("quota", "want"),
    [
        pytest.param(make_quota(0), "░" * 12, id="nothing is used"),
        pytest.param(make_quota(4), "█" * 6 + "░" * 6, id="a half is used"),
        pytest.param(make_quota(8), "█" * 12, id="all is used"),
        pytest.param(make_quota(16), "█" * 12, id="as much again is borrowed"),
        pytest.param(make_quota(0, nominal=0), "·" * 12, id="there is no quota"),
    ],
)
def test_a_bar_has_always_the_same_length(quota: QuotaRow, want: str) -> None:
    assert quota_bar(quota).plain == want


def test_even_a_little_borrowing_is_seen() -> None:
    bar = quota_bar(make_quota(1001, nominal=1000))

    assert [(span.start, span.end, str(span.style)) for span in bar.spans if span.style == "yellow"] == [
        (11, 12, "yellow")
    ]


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0.4, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (12_000, "3h20m"), (172_800, "2d")],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: float, want: str) -> None:
    assert duration_text(seconds) == want


@pytest.mark.parametrize(
    ("quota", "want"),
    [
        pytest.param(make_quota(5), "5/8", id="own quota"),
        pytest.param(make_quota(10), "10/8 (+2 borrowed)", id="borrowed quota"),
        pytest.param(
            make_quota(0, -5), "0/-5 (the quota must not be negative)", id="no queue borrows from below 0"
        ),
        pytest.param(
            replace(make_quota(10), in_force=4, window="night", until="2027-01-12T05:00:00Z"),
            "10/4 (+6 borrowed) (night until 2027-01-12T05:00:00Z, instead of 8)",
            id="a quota window",
        ),
    ],
)
def test_the_use_of_a_quota_is_said_in_one_line(quota: QuotaRow, want: str) -> None:
    assert quota_text(quota, is_plain=True).plain == want
    assert len(quota_bar(quota)) == 12
