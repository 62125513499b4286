"""Least attained service: devices, levels, and when they are looked at."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues.pending.least_attained import devices, leaves_level_at, level_of, next_look

ENDS = (3600.0, 36_000.0, 360_000.0)


@pytest.mark.parametrize(
    ("amounts", "want"),
    [
        pytest.param({"nvidia.com/gpu": 8, "cpu": 64_000}, 8, id="GPUs count, CPUs do not"),
        pytest.param({"nvidia.com/gpu": 4, "rdma/hca": 4}, 4, id="a GPU and its network card are one device"),
        pytest.param({"cpu": 4000, "memory": 1 << 30}, 0, id="without a device there is none"),
        pytest.param({"requests.kubernetes.io/x": 3}, 0, id="Kubernetes' own names are no devices"),
    ],
)
def test_devices(amounts: dict[str, int], want: int) -> None:
    assert devices(amounts) == want


@pytest.mark.parametrize(("received", "want"), [(0.0, 0), (3599.9, 0), (3600.0, 1), (36_000.0, 2), (1e9, 3)])
def test_levels_begin_at_their_lower_end(received: float, want: int) -> None:
    assert level_of(received, ENDS) == want


@given(received=st.floats(0, 1e6), count=st.integers(1, 64))
def test_the_next_level_is_reached_at_the_predicted_time(received: float, count: int) -> None:
    at = leaves_level_at(received, count, ENDS, now=100.0)

    if level_of(received, ENDS) == len(ENDS):
        assert at == inf
    else:
        assert level_of(received + count * (at - 100.0) + 1e-3, ENDS) == level_of(received, ENDS) + 1


def test_without_devices_no_level_is_ever_left() -> None:
    assert leaves_level_at(0.0, 0, ENDS, now=0.0) == inf


@pytest.mark.parametrize(
    ("least", "want"),
    [
        pytest.param(600, 120.0, id="once a minute"),
        pytest.param(100, 70.0, id="ten times a minimum run time where that is short"),
        pytest.param(0, 62.0, id="at most once a second"),
    ],
)
def test_levels_are_looked_at(least: int, want: float) -> None:
    assert next_look(61.5, minimum_runtime_seconds=least) == want
