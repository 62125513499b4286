"""Cycles are spaced out while the API server owes answers."""

from __future__ import annotations

import pytest

from admission.controller.loop.cycle_pace import CyclePace
from tests.admission.controller.fakes import FakeClock


@pytest.mark.parametrize(
    ("queues", "is_behind", "want"),
    [
        pytest.param(30, False, 0.0, id="with every answer there, a cycle follows at once"),
        pytest.param(0, True, 0.0, id="where nothing waits, what comes is tried at once"),
        pytest.param(1, True, 0.0, id="the only queue with Workloads is not held up"),
        pytest.param(2, True, 0.01, id="two queues wait a moment for each other's events"),
        pytest.param(6, True, 0.05, id="more queues wait longer, as a cycle admits one Workload of each"),
        pytest.param(1000, True, 0.1, id="a thousand queues wait a tenth of a second"),
    ],
)
def test_the_next_cycle_begins(queues: int, is_behind: bool, want: float) -> None:
    clock = FakeClock()
    pace = CyclePace(clock)

    pace.note_cycle(queues)

    if want:
        assert not pace.may_begin(is_behind=is_behind)
        assert pace.put_off_until == pytest.approx(clock.at + want)
        clock.at += 0.9 * want
        assert not pace.may_begin(is_behind=is_behind)
        clock.at += 0.2 * want
    assert pace.may_begin(is_behind=is_behind)
    assert pace.put_off_until is None


def test_a_cycle_that_was_put_off_begins_with_the_last_answer() -> None:
    pace = CyclePace(FakeClock())
    pace.note_cycle(30)
    assert not pace.may_begin(is_behind=True)

    assert pace.may_begin(is_behind=False)


def test_the_first_cycle_begins_at_once() -> None:
    assert CyclePace(FakeClock()).may_begin(is_behind=True)
