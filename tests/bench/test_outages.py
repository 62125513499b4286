"""The figures of outages."""

from __future__ import annotations

import pytest

from bench.outages import Figures, figures


@pytest.mark.parametrize(
    ("seconds", "p50", "p99"),
    [
        pytest.param([1.0], 1.0, 1.0, id="one trial"),
        pytest.param([3.0, 1.0, 2.0], 2.0, 3.0, id="an odd number"),
        pytest.param([4.0, 3.0, 1.0, 2.0], 2.0, 4.0, id="an even number: the lower one of the middle"),
        pytest.param([float(n) for n in range(200)], 99.0, 198.0, id="the second longest of two hundred"),
    ],
)
def test_percentiles_are_seconds_that_were_measured(seconds: list[float], p50: float, p99: float) -> None:
    found = figures("redis", seconds)

    assert found == Figures(outage="redis", trials=len(seconds), p50=p50, p99=p99, longest=max(seconds))
