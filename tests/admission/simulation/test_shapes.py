"""How gangs are cut into pods, and how fast a replay runs by default."""

from __future__ import annotations

import pytest

from admission.simulation.shapes import FASTEST, GangShape, default_speed, estimated_end, gang_shape
from admission.simulation.traces import TraceJob


def make_job(*, gpus: int = 1, submitted_at: float = 0.0, duration_seconds: float = 60.0) -> TraceJob:
    return TraceJob(
        id=f"{gpus}-{submitted_at}-{duration_seconds}",
        tenant="a",
        gpus=gpus,
        submitted_at=submitted_at,
        duration_seconds=duration_seconds,
    )


@pytest.mark.parametrize(
    ("gpus", "want"),
    [
        pytest.param(0, GangShape(pods=1, gpus_per_pod=0), id="no GPU is one pod without any"),
        pytest.param(1, GangShape(pods=1, gpus_per_pod=1), id="one GPU is one pod"),
        pytest.param(8, GangShape(pods=1, gpus_per_pod=8), id="eight still fit one pod"),
        pytest.param(12, GangShape(pods=2, gpus_per_pod=6, whole_nodes=True), id="twelve are two of six"),
        pytest.param(16, GangShape(pods=2, gpus_per_pod=8, whole_nodes=True), id="sixteen are two of eight"),
        pytest.param(20, GangShape(pods=4, gpus_per_pod=5, whole_nodes=True), id="twenty are four of five"),
        pytest.param(11, GangShape(pods=11, gpus_per_pod=1, whole_nodes=True), id="a prime is pods of one"),
    ],
)
def test_a_gang_is_cut_into_pods(gpus: int, want: GangShape) -> None:
    assert gang_shape(gpus) == want


def test_smaller_nodes_cut_a_gang_smaller() -> None:
    assert gang_shape(8, most_per_pod=4) == GangShape(pods=2, gpus_per_pod=4, whole_nodes=True)


@pytest.mark.parametrize(
    ("jobs", "want"),
    [
        pytest.param([], 0.0, id="nothing ends at once"),
        pytest.param([make_job(gpus=8)] * 2, 120.0, id="two whole pools run one after the other"),
        pytest.param([make_job(gpus=4)] * 2, 60.0, id="two halves run side by side"),
        pytest.param(
            [make_job(gpus=6), make_job(gpus=6, submitted_at=1), make_job(gpus=2, submitted_at=2)],
            120.0,
            id="what fits goes past what does not",
        ),
        pytest.param([make_job(gpus=9, duration_seconds=999)], 0.0, id="what never fits is left out"),
    ],
)
def test_the_end_of_a_replay_is_estimated(jobs: list[TraceJob], want: float) -> None:
    assert estimated_end(jobs, gpus=8) == want


@pytest.mark.parametrize(
    ("jobs", "want"),
    [
        pytest.param([make_job(duration_seconds=40_000)], 100.0, id="slow enough to end in time"),
        pytest.param([make_job(duration_seconds=1e9)], FASTEST, id="never faster than the cap"),
        pytest.param([make_job(duration_seconds=1)], 1.0, id="never slower than the clock"),
        pytest.param(
            [make_job(submitted_at=at, duration_seconds=1) for at in range(0, 3000, 30)],
            594.0,
            id="a thin trace runs faster, up to twenty Jobs a second",
        ),
    ],
)
def test_the_default_speed(jobs: list[TraceJob], want: float) -> None:
    assert default_speed(jobs, gpus=8) == want
