"""Durations are parsed as in Go."""

from __future__ import annotations

import pytest

from api.parsing.durations import DurationError, parse_duration


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("15s", 15.0, id="seconds"),
        pytest.param("1h30m", 5400.0, id="parts add up"),
        pytest.param("1.5s", 1.5, id="a fraction"),
        pytest.param(".5m", 30.0, id="no digit before the point"),
        pytest.param("250ms", 0.25, id="milliseconds are no minutes"),
        pytest.param("2µs", 2e-6, id="microseconds"),
        pytest.param("0", 0.0, id="zero needs no unit"),
        pytest.param("0s", 0.0, id="zero seconds"),
        pytest.param("-2m", -120.0, id="negative"),
    ],
)
def test_a_duration_is_its_seconds(text: str, want: float) -> None:
    assert parse_duration(text) == want


@pytest.mark.parametrize("text", ["", "5", "5 s", "s", "5d", "5m5", "1h-5m", "٥s", "5s\n"])
def test_what_is_no_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(DurationError) as refused:
        parse_duration(text)

    assert repr(text) in str(refused.value)
