"""The report's arithmetic."""

from __future__ import annotations

import pytest

from admission.cli.views.report import JobResult, WaitShares, summarise


def make_result(
    *,
    tenant: str = "a",
    gpus: int = 1,
    submitted_at: float = 0.0,
    duration_seconds: float = 10.0,
    finished_at: float | None = 10.0,
    has_failed: bool = False,
    quota_wait_seconds: float = 0.0,
    node_wait_seconds: float = 0.0,
) -> JobResult:
    return JobResult(
        tenant=tenant,
        gpus=gpus,
        submitted_at=submitted_at,
        duration_seconds=duration_seconds,
        finished_at=finished_at,
        has_failed=has_failed,
        quota_wait_seconds=quota_wait_seconds,
        node_wait_seconds=node_wait_seconds,
    )


@pytest.mark.parametrize(
    ("results", "exceeded", "want", "want_good"),
    [
        pytest.param(
            [make_result()] * 2,
            0,
            "jobs 2 finished 2 failed 0 lost 0 quota-exceeded 0",
            True,
            id="all finished",
        ),
        pytest.param(
            [make_result(), make_result(has_failed=True)],
            0,
            "jobs 2 finished 1 failed 1 lost 0 quota-exceeded 0",
            False,
            id="one failed",
        ),
        pytest.param(
            [make_result(), make_result(finished_at=None)],
            0,
            "jobs 2 finished 1 failed 0 lost 1 quota-exceeded 0",
            False,
            id="one never ended",
        ),
        pytest.param(
            [make_result()],
            3,
            "jobs 1 finished 1 failed 0 lost 0 quota-exceeded 3",
            False,
            id="quota was exceeded",
        ),
    ],
)
def test_the_last_line(results: list[JobResult], exceeded: int, want: str, want_good: bool) -> None:
    totals = summarise(results, gpus=8, exceeded=exceeded).totals

    assert str(totals) == want
    assert totals.is_good is want_good


def test_waits_are_the_time_between_submit_and_end_besides_the_work() -> None:
    report = summarise(
        [
            make_result(finished_at=10),
            make_result(finished_at=40),
            make_result(finished_at=None),
            make_result(tenant="b", submitted_at=5, finished_at=20),
        ],
        gpus=8,
        exceeded=0,
    )

    a = report.tenants["a"]
    assert (a.jobs, a.mean_wait_seconds, a.p50_wait_seconds, a.p90_wait_seconds) == (3, 15.0, 0.0, 30.0)
    assert report.tenants["b"].longest_wait_seconds == 5.0
    assert report.everyone.mean_wait_seconds == pytest.approx(35 / 3)


def test_a_clock_a_little_ahead_makes_no_negative_wait() -> None:
    assert make_result(finished_at=9.99).wait_seconds == 0.0


def test_the_waits_are_split_into_quota_nodes_and_the_machine() -> None:
    report = summarise(
        [
            make_result(finished_at=50, quota_wait_seconds=20, node_wait_seconds=10),
            make_result(finished_at=20, quota_wait_seconds=99),
            make_result(finished_at=10, node_wait_seconds=5),
        ],
        gpus=8,
        exceeded=0,
    )

    shares = report.shares
    assert (shares.quota, shares.nodes, shares.machine) == pytest.approx((0.6, 0.2, 0.2))


def test_where_no_job_waited_there_are_no_shares() -> None:
    assert summarise([make_result()], gpus=8, exceeded=0).shares == WaitShares(quota=0, nodes=0, machine=0)


def test_utilisation_counts_useful_time_only() -> None:
    report = summarise(
        [
            make_result(gpus=4, finished_at=20),
            make_result(gpus=4, submitted_at=20, finished_at=40),
            make_result(gpus=8, finished_at=40, has_failed=True),
        ],
        gpus=8,
        exceeded=0,
    )

    assert report.utilisation == pytest.approx(80 / 320)
    assert report.utilisation_while_submitting == pytest.approx(40 / 160)


def test_without_gpus_nothing_is_utilised() -> None:
    assert summarise([make_result(gpus=0)], gpus=0, exceeded=0).utilisation == 0.0
