"""Groups that somebody keeps up: those of StatefulSets and LeaderWorkerSets."""

from __future__ import annotations

from typing import Any

import pytest

from admission.pods import UnitFacts, reconcile_empty_group
from api import keys
from tests.admission.podworld import (
    PodWorld,
    admitted,
    member_object,
    said,
    warnings,
)
from tests.admission.world import Object, purposes


def test_a_serving_group_lets_its_dead_go_at_once_and_never_finishes() -> None:
    serving = {keys.POD_GROUP_SERVING: "true", keys.POD_GROUP_FAST_ADMISSION: "true"}
    world = admitted(member_object("a", annotations=serving), member_object("b", annotations=serving))

    world.end("a")
    world.end("b", "Failed")
    world.settle()

    assert not any(world.pod(name).has_finalizer for name in ("a", "b"))
    assert "Finished" not in said(world)


SERVING = {
    keys.POD_GROUP_SERVING: "true",
    keys.POD_GROUP_FAST_ADMISSION: "true",
}


def shard(name: str, total: int = 3, **fields: Any) -> Object:
    """Return a pod of a group that serves."""
    return member_object(name, total, annotations=SERVING, **fields)


def serving_world(*pods: Object, replicas: int) -> PodWorld:
    """Return a world in which these pods of a group of so many serve."""
    world = PodWorld()
    world.facts = UnitFacts(replicas=replicas)
    for pod in pods:
        world.add(pod)
    world.settle()
    world.admit("g")
    world.settle()
    world.run()
    world.settle()
    return world


def test_a_serving_group_is_as_large_as_its_keeper_says() -> None:
    world = serving_world(shard("a", 1), shard("b", 2, created=1), replicas=2)

    assert world.workload("g")[0].pod_sets[0].count == 2
    assert not any(world.pod(name).is_gated for name in ("a", "b"))


def test_a_serving_group_scaled_down_gives_back_what_it_was_scaled_down_by() -> None:
    world = serving_world(shard("a"), shard("b"), shard("c"), replicas=3)
    world.facts = UnitFacts(replicas=2)
    world.delete("Pod", "c")
    world.run_kubelet()

    world.settle()

    assert list(world.workload("g")[0].reclaimable.values()) == [1]
    assert said(world)["PodsReady"] == "Started"
    assert world.pods() == ["a", "b"]


def test_pods_that_a_serving_group_is_scaled_up_by_wait_and_are_told_why() -> None:
    world = serving_world(shard("a"), shard("b"), replicas=2)
    world.facts = UnitFacts(replicas=3)
    world.add(shard("c", created=1))

    world.settle()

    assert world.pods() == ["a", "b", "c"]
    assert world.pod("c").is_gated
    assert "scale it to 0" in warnings(world)[-1]


@pytest.mark.parametrize(
    ("replicas", "want"),
    [(0, ["delete-workload"]), (2, []), (None, [])],
    ids=["that is to have none is over", "that is being made anew goes on", "that nobody keeps is collected"],
)
def test_a_group_without_pods(replicas: int | None, want: list[str]) -> None:
    world = serving_world(shard("a"), replicas=1)

    assert purposes(reconcile_empty_group(world.workload("g")[0], replicas=replicas)) == want


def test_an_evicted_group_of_a_leader_worker_set_begins_anew_with_its_new_pods() -> None:
    of_set = {keys.LEADER_WORKER_SET: "big"}
    serving = {keys.POD_GROUP_SERVING: "true"}

    def make(name: str, cpu: str) -> Object:
        return member_object(name, labels=of_set, annotations=serving, cpu=cpu)

    world = admitted(make("big-0", "2"), make("big-0-1", "1"))
    before = world.workload("g")[0].uid
    world.evict("g")
    world.settle()
    world.run_kubelet()
    world.settle()
    # Their names are free again, which their controller waits for.
    assert world.pods() == []

    for pod in (make("big-0", "2"), make("big-0-1", "1")):
        world.add(pod)
    world.settle()

    assert world.workload("g")[0].uid != before
    world.admit("g")
    world.settle()
    assert not world.pod("big-0-1").is_gated
