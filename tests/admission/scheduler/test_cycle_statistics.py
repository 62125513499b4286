"""What cycles count by ClusterQueue ends with the ClusterQueue."""

from __future__ import annotations

from api.queueing import ClusterQueue
from tests.builders import World, make_cluster_queue, make_workload


def test_the_counts_of_a_deleted_cluster_queue_are_forgotten() -> None:
    world = World().put(
        make_cluster_queue("gone", quota=1),
        make_cluster_queue("kept", quota=1),
        make_workload("a", queue="gone", gpus=2),
        make_workload("b", queue="kept", gpus=2),
    )
    world.settle()
    tally = world.engine.tally
    tally.recomputations.update([("gone", "found"), ("kept", "found")])
    assert set(tally.skips) == {"gone", "kept"}

    world.remove(ClusterQueue, "gone")
    world.settle()

    assert set(tally.skips) == {"kept"}
    assert dict(tally.recomputations) == {("kept", "found"): 1}
