"""What reports and annotations make of a checkpoint: its time goes forward, never into the future."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.reconcile.checkpoints import (
    measured_costs,
    newest,
    progress,
    refusal,
    rejection_reason,
    taken_over,
)
from api.keys import CHECKPOINT_MEASURED as MEASURED
from api.keys import CHECKPOINT_STEP as STEP
from api.keys import CHECKPOINT_TIME as TIME
from api.keys import EXPECTED_COMPLETION_TIME
from api.parsing.times import to_rfc3339, to_seconds
from api.wire.checkpoint_report import Report

NOW = 1_769_860_800.0


def saved(ago: float, step: int = 1, save_seconds: float | None = None) -> Report:
    return Report(saved_at=NOW - ago, step=step, save_seconds=save_seconds)


def reported(ago: float, step: str = "1") -> dict[str, str]:
    return {TIME: to_rfc3339(NOW - ago), STEP: step}


def written(present: Mapping[str, str], *reports: Report, started: float | None = None) -> dict[str, str]:
    """Return what the reports change on the Workload of a group, which keeps progress and costs."""
    found = progress(present, reports, now=NOW)
    return found.annotations | measured_costs(present, reports, found.saved, started_at=started)


@pytest.mark.parametrize(
    ("present", "reports", "want"),
    [
        pytest.param({}, [saved(60, 5)], reported(60, "5"), id="the first checkpoint"),
        pytest.param(reported(60), [saved(30, 9)], reported(30, "9"), id="a newer one"),
        pytest.param(reported(60), [saved(60, 1)], {}, id="the same again changes nothing"),
        pytest.param(reported(60), [saved(90, 1)], {}, id="an older one changes nothing"),
        pytest.param(reported(60, "9"), [saved(30, 2)], reported(30, "2"), id="the step may go down"),
        pytest.param({}, [saved(30, 9), saved(60, 5)], reported(30, "9"), id="of several the newest"),
        pytest.param(
            reported(-9000), [saved(30, 9)], reported(30, "9"), id="a known one of the future is none"
        ),
        pytest.param({TIME: "noon"}, [saved(30, 9)], reported(30, "9"), id="nor is one that cannot be read"),
    ],
)
def test_the_newest_checkpoint_counts(
    present: dict[str, str], reports: list[Report], want: dict[str, str]
) -> None:
    assert written(present, *reports) == want


@pytest.mark.parametrize(
    ("known", "reports", "want"),
    [
        pytest.param(None, [3600], 3600, id="the first"),
        pytest.param(3600, [1800], 1800, id="another"),
        pytest.param(3600, [9, 1800], 1800, id="of several the last"),
        pytest.param(3600, [3630], None, id="not one that differs by less than a minute"),
        pytest.param(36_000, [37_000], None, id="nor by less than a twentieth of what remains"),
        pytest.param(0, [61], 61, id="one that is due, by a minute"),
        pytest.param(40, [90], 90, id="a later one where the known end is near"),
        pytest.param(-1, [54], 54, id="or has just passed"),
        pytest.param(40, [44], None, id="not one that is later by what ending takes"),
        pytest.param(50, [10], None, id="nor an earlier one by less than a minute"),
        pytest.param(130, [185], None, id="nor a later one that can still be reported in time"),
    ],
)
def test_the_end_that_a_job_reports_is_stored(
    known: int | None, reports: list[int], want: int | None
) -> None:
    present = {} if known is None else {EXPECTED_COMPLETION_TIME: to_rfc3339(NOW + known)}

    found = progress(present, [Report(completes_at=NOW + one) for one in reports], now=NOW)

    stored = {} if want is None else {EXPECTED_COMPLETION_TIME: to_rfc3339(NOW + want)}
    assert (found.annotations, found.is_outdated) == (stored, False)


def test_a_report_older_than_the_known_checkpoint_is_outdated() -> None:
    resumed = Report(saved_at=NOW - 90, step=1, resumed_at=NOW - 5)

    assert progress(reported(60), [saved(90)], now=NOW).is_outdated
    assert not progress(reported(60), [saved(60)], now=NOW).is_outdated
    assert not progress(reported(60), [resumed], now=NOW).is_outdated


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.randoms())
def test_the_order_of_reports_does_not_matter(agos: list[int], random: object) -> None:
    reports = [saved(ago, step=ago) for ago in agos]
    one_by_one: dict[str, str] = {}
    for report in reports:
        one_by_one |= written(one_by_one, report)

    assert one_by_one[TIME] == written({}, *reports)[TIME] == to_rfc3339(NOW - min(agos))


def test_the_last_five_savings_are_kept() -> None:
    present: dict[str, str] = {}
    for number in range(7):
        present |= written(present, saved(100 - number, save_seconds=number))

    assert msgspec.json.decode(present[MEASURED]) == {"save": [2, 3, 4, 5, 6]}


def test_a_restart_is_measured_once_an_attempt() -> None:
    first = written({}, Report(resumed_at=NOW - 30), started=NOW - 100)
    again = written(first, Report(resumed_at=NOW - 10), started=NOW - 100)
    next_attempt = written(first, Report(resumed_at=NOW), started=NOW - 50)

    assert msgspec.json.decode(first[MEASURED])["restart"] == [70.0]
    assert again == {}
    assert msgspec.json.decode(next_attempt[MEASURED])["restart"] == [70.0, 50.0]


@pytest.mark.parametrize(
    ("job", "workload", "want", "want_refusal"),
    [
        pytest.param(reported(60), {}, reported(60), "", id="the first is taken over"),
        pytest.param(reported(30), reported(60), {TIME: reported(30)[TIME]}, "", id="a newer one too"),
        pytest.param(reported(90), reported(60), {}, "the last one known", id="an older one is not"),
        pytest.param(reported(-120), {}, {}, "in the future", id="nor one of the future"),
        pytest.param(
            reported(30), reported(-120), {TIME: reported(30)[TIME]}, "", id="which is mended by a good one"
        ),
        pytest.param({TIME: "noon"}, reported(60), {}, "no RFC 3339", id="nor what is no time"),
        pytest.param(reported(60), reported(60), {}, "", id="the same is not written again"),
        pytest.param({MEASURED: "x"}, {}, {}, "", id="what its author says was measured does not"),
    ],
)
def test_what_a_workload_takes_over(
    job: dict[str, str], workload: dict[str, str], want: dict[str, str], want_refusal: str
) -> None:
    assert taken_over(job, workload, now=NOW) == want
    said = refusal(job, workload, now=NOW)
    assert (want_refusal in said) if said is not None else want_refusal == ""


def test_a_clock_that_is_a_little_ahead_is_believed() -> None:
    assert to_seconds(taken_over(reported(-50), {}, now=NOW)[TIME]) == NOW + 50


@pytest.mark.parametrize(
    ("members", "want"),
    [
        pytest.param([], {}, id="of no pods none"),
        pytest.param([reported(90), reported(30), {}], reported(30), id="the newest"),
        pytest.param(
            [reported(90), reported(-9000), {TIME: "noon"}], reported(90), id="that can be believed"
        ),
        pytest.param([{}, {STEP: "3"}], {}, id="none where no pod reports one"),
    ],
)
def test_the_checkpoint_of_a_group(members: list[dict[str, str]], want: dict[str, str]) -> None:
    assert newest(members, now=NOW) == want


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, "", id="none"),
        pytest.param(reported(9000), "", id="however old"),
        pytest.param(reported(-9000), "is in the future", id="of the future"),
        pytest.param({TIME: "noon"}, "is no RFC 3339 time", id="unreadable"),
    ],
)
def test_a_checkpoint_is_not_believed(annotations: dict[str, str], want: str) -> None:
    said = rejection_reason(annotations, now=NOW)

    assert (said is not None) == bool(want)
    assert want in (said or "")
