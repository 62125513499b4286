"""Scales and texts of the report's charts."""

from __future__ import annotations

import re

import pytest

from admission.simulation.report.svg import WaitScale, duration_text


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (3 * 3600 + 5 * 60, "3 h 5 min"),
        (86_400 + 3599, "1 d"),
        (1_000 * 86_400 + 7_200, "1,000 d 2 h"),
    ],
)
def test_durations_are_written_in_their_two_largest_units(seconds: float, want: str) -> None:
    assert duration_text(seconds) == want


@pytest.mark.parametrize(
    ("shortest", "longest", "want"),
    [
        pytest.param(1, 0, 1, id="no Job waits"),
        pytest.param(1, 100_000, 1, id="from a second on"),
        pytest.param(7 * 3600, 80 * 3600, 5 * 3600, id="from the mark below the shortest"),
        pytest.param(70 * 3600, 80 * 3600, 5 * 3600, id="a decade at least"),
        pytest.param(1, 40 * 365 * 86_400, 1, id="for decades of years"),
    ],
)
def test_where_a_scale_of_waits_begins(shortest: float, longest: float, want: float) -> None:
    scale = WaitScale(shortest=shortest, longest=longest, left=100)

    assert scale.begin == want
    assert scale.at(0) == scale.at(want) == 100
    assert scale.at(max(longest, want * 10)) == pytest.approx(scale.right)
    marks = [float(x) for x in re.findall(r'x1="([\d.]+)"', scale.axis(0, 10))]
    assert marks[0] == 100
    assert 2 <= len(marks) <= 10
    assert marks == sorted(set(marks))
    assert marks[-1] <= scale.right
