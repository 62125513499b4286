"""What queued pods report of their checkpoints, and what their Workload makes of it."""

from __future__ import annotations

from api import keys
from api.jobs.checkpoint_annotations import checkpoint_facts
from api.parsing.times import to_rfc3339
from tests.admission.podworld import PodWorld, admitted, make_world, member_object, pod_object, warnings
from tests.admission.world import Object


def saved(world: PodWorld, ago: float, step: int = 1) -> Object:
    """Return the annotations of a checkpoint `ago` seconds ago."""
    return {keys.CHECKPOINT_TIME: to_rfc3339(world.now - ago), keys.CHECKPOINT_STEP: str(step)}


def annotate(world: PodWorld, name: str, annotations: Object) -> None:
    """Change a pod's annotations, and let Berth look."""

    def change(pod: Object) -> None:
        pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), **annotations}

    world.edit("Pod", name, change)
    world.settle()


def known(world: PodWorld) -> tuple[float | None, int | None]:
    """Return how long ago the only Workload saved, and at which step."""
    facts = checkpoint_facts(world.workload(world.only_workload())[0])
    return (None if facts.saved_at is None else world.now - facts.saved_at), facts.step


def test_a_pods_checkpoint_reaches_its_workload() -> None:
    world = admitted(pod_object())

    annotate(world, "p", saved(world, 30, 7))

    assert known(world) == (30, 7)


def test_a_pods_checkpoint_that_goes_back_is_passed_over_and_named() -> None:
    world = admitted(pod_object())
    annotate(world, "p", saved(world, 30, 7))

    annotate(world, "p", saved(world, 90, 3))

    assert known(world) == (30, 7)
    assert "the last one known" in warnings(world)[-1]


def test_of_a_group_the_newest_checkpoint_counts_and_an_older_one_is_nothing_wrong() -> None:
    world = admitted(member_object("a"), member_object("b"))
    annotate(world, "a", saved(world, 30, 7))

    annotate(world, "b", saved(world, 90, 3))
    assert known(world) == (30, 7)
    assert warnings(world) == []

    annotate(world, "b", saved(world, 10, 9))
    assert known(world) == (10, 9)


def test_a_members_checkpoint_of_the_future_is_named_and_hides_no_other() -> None:
    world = admitted(member_object("a"), member_object("b"))

    annotate(world, "a", saved(world, -9000, 7))
    annotate(world, "b", saved(world, 30, 5))

    assert known(world) == (30, 5)
    assert "Pod team/a" in warnings(world)[-1]
    assert "is in the future" in warnings(world)[-1]


def test_a_groups_checkpoint_outlasts_its_pods() -> None:
    world = admitted(member_object("a"), member_object("b"))
    annotate(world, "a", saved(world, 30, 7))
    world.evict("g")
    world.settle()
    world.run_kubelet()

    for name in ("c", "d"):
        world.add(member_object(name, created=1))
    world.settle()

    assert world.pods() == ["c", "d"]
    assert known(world) == (30, 7)


def test_absurd_costs_are_named_and_keep_no_pod_from_its_queue() -> None:
    world = make_world(pod_object(annotations={keys.CHECKPOINT_SAVE_SECONDS: "1e12"}))

    assert checkpoint_facts(world.workload(world.only_workload())[0]).save_seconds is None
    assert "seconds from 0 to 86400" in warnings(world)[-1]
