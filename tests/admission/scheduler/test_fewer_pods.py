"""A Workload held back for a promise that may run with fewer pods starts with as many as the promise leaves.

Kueue's partial admission admits as many pods as can start now; what is promised to others is not there.
"""

from __future__ import annotations

from typing import Any

import pytest

from api.policy import BackfillMode
from tests.admission.timed import TimedWorld, make_policy, template
from tests.builders import make_cluster_queue, make_pod_set


def pods(count: int, least: int | None = None) -> dict[str, Any]:
    """Return the pods of a gang of one GPU each, of which `least` will do."""
    return {"pod_sets": (make_pod_set(count=count, template=template(1), min_count=least),)}


def started_with(world: TimedWorld, name: str) -> int:
    """Return with how many pods it was admitted last."""
    admission = world.get(name).admission
    assert admission is not None
    return admission.pod_sets[0].count


def make_world(*, quota: int, mode: BackfillMode = BackfillMode.EASY) -> TimedWorld:
    """Return a world in which two GPUs are free until 100, and from then all but one are promised."""
    world = TimedWorld(now=0)
    world.put(make_cluster_queue(quota=quota), make_policy(mode))
    world.submit("runs", runs=100, **pods(quota - 2))
    world.submit("promised", runs=50, at=1, **pods(quota - 1))
    return world


@pytest.mark.parametrize("mode", [BackfillMode.EASY, BackfillMode.CONSERVATIVE])
@pytest.mark.parametrize(
    ("count", "least", "runs", "want"),
    [
        pytest.param(2, 1, 300, (2, 1), id="as many pods as the promise leaves"),
        pytest.param(2, 1, 60, (2, 2), id="all pods where they end before the promise"),
        pytest.param(4, 1, 300, (2, 1), id="fewer pods than are free"),
        pytest.param(2, None, 300, (150, 2), id="all pods behind the promise where it needs all"),
        pytest.param(3, 2, 300, (150, 3), id="all pods behind the promise where what is left is too few"),
    ],
)
def test_a_workload_beside_a_promise_starts_with(
    count: int, least: int | None, runs: float, want: tuple[int, int], mode: BackfillMode
) -> None:
    world = make_world(quota=4, mode=mode)
    world.submit("elastic", runs=runs, at=2, **pods(count, least))

    world.run(until=200)

    assert (world.started["elastic"], started_with(world, "elastic")) == want
    # The law of backfill: no Workload that was promised a start is late for it.
    assert world.promised("promised") == [100]
    assert world.started["promised"] == 100
