"""How many reports are sent in quiet times and under load."""

from __future__ import annotations

import pytest

from api.kube.report_budget import ReportBudget, WriteLoad


def make_budget(load: WriteLoad | None = None, per_second: float = 8.0) -> ReportBudget:
    """Return a full budget of two reports at once."""
    budget = ReportBudget(load or WriteLoad(), per_second=per_second, burst=2.0)
    budget.seconds_to_next(100.0)
    return budget


def sent(budget: ReportBudget, at: float) -> int:
    """Send all reports that the budget allows at this time, and return how many these are."""
    number = 0
    while budget.seconds_to_next(at) == 0:
        budget.take(at)
        number += 1
    return number


def test_in_quiet_times_a_burst_is_sent_and_then_the_rate() -> None:
    budget = make_budget()

    assert sent(budget, 100.0) == 2
    assert budget.seconds_to_next(100.0) == 0.125
    assert sent(budget, 100.125) == 1
    assert sent(budget, 1000.0) == 2


def test_decisions_take_what_reports_would_have_used() -> None:
    load = WriteLoad()
    budget = make_budget(load)
    assert sent(budget, 100.0) == 2

    load.decided += 6

    assert sent(budget, 100.75) == 0
    assert sent(budget, 101.0) == 2


def test_the_budget_does_not_fill_while_decisions_wait_for_their_answers() -> None:
    load = WriteLoad()
    budget = make_budget(load)
    assert sent(budget, 100.0) == 2
    load.is_behind = True

    assert [sent(budget, at) for at in (100.9, 101.0, 101.9, 102.0)] == [0, 1, 0, 1]

    load.is_behind = False
    assert sent(budget, 102.25) == 2


def test_a_full_budget_waits_too_while_decisions_wait_for_their_answers() -> None:
    load = WriteLoad()
    load.is_behind = True

    assert sent(make_budget(load), 100.0) == 1


@pytest.mark.parametrize(
    ("per_second", "want"),
    [
        pytest.param(8.0, 60, id="one a second where the rate is higher"),
        pytest.param(0.1, 6, id="the rate where that is lower"),
    ],
)
def test_under_a_load_without_end_reports_are_few(per_second: float, want: int) -> None:
    load = WriteLoad()
    budget = make_budget(load, per_second)
    reports = 0
    for second in range(60):
        for tenth in range(10):
            load.decided += 10
            reports += sent(budget, 100 + second + tenth / 10)

    assert reports == want
