"""A slice of an elastic Job takes over the quota of the slice that it replaces, and never more than there is.

Source: Kueue, pkg/workloadslicing and pkg/scheduler (replaceWorkloadSlice).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.decisions.decision import Admit
from api import keys
from api.policy import BackfillMode
from api.queueing import Preemption, PreemptionPolicy, ResourceFlavor
from api.workload import Workload, WorkloadKey
from queues.quota.resources import FlavorResource
from tests.admission.timed import TimedWorld, make_policy
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    evicts,
    finished,
    make_cluster_queue,
    make_condition,
    make_group,
    make_pod_set,
    make_workload,
    messages,
    reserved,
    with_conditions,
)

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)


def make_slice(
    name: str, pods: int, *, of: str = "", chain: str = "", owner: str | None = "job", **fields: Any
) -> Workload:
    """Return a slice of `pods` pods of one GPU each, which replaces the slice `of` in a chain."""
    marks = {keys.ELASTIC_JOB: "true", keys.SLICE_NAME: chain or of or name}
    if of:
        marks[keys.SLICE_REPLACEMENT_FOR] = f"{NAMESPACE}/{of}"
    return make_workload(
        name, pod_sets=(make_pod_set(count=pods),), annotations=marks, owner_uid=owner, **fields
    )


def used(world: World, flavor: str = "default") -> int:
    return world.engine._cache.queues["queue"].node.cell(FlavorResource(flavor, "gpu")).usage


def make_world(*values: Any, quota: int = 4, **fields: Any) -> World:
    """Return a world in which the first slice, of two pods, holds quota."""
    world = World().put(make_cluster_queue(quota=quota, **fields), *values)
    return world.put(reserved(make_slice("old", 2)))


@pytest.mark.parametrize(
    ("pods", "others", "want"),
    [
        pytest.param(4, 0, 4, id="all of the quota"),
        pytest.param(3, 1, 3, id="what others leave and it has already"),
        pytest.param(4, 1, None, id="no more than others leave"),
        pytest.param(5, 0, None, id="no more than there is"),
    ],
)
def test_a_slice_is_admitted_with(pods: int, others: int, want: int | None) -> None:
    world = make_world()
    if others:
        world.put(reserved(make_workload("other", gpus=others)))
    world.put(make_slice("new", pods, of="old"))

    decisions = world.settle()

    assert admits(decisions) == ([] if want is None else ["new"])
    assert used(world) == others + (want or 2)
    # The pods go on in the new slice: only one of the two is counted.
    assert ("old" in world.holding()) is (want is None)


def test_a_slice_that_does_not_fit_lacks_only_what_it_needs_beyond_the_one_it_replaces() -> None:
    world = make_world().put(reserved(make_workload("other", gpus=1)), make_slice("new", 4, of="old"))

    assert (
        "insufficient unused quota for gpu in flavor default, 1 more needed"
        in (messages(world.settle())["new"])
    )


def test_a_slice_whose_write_failed_gives_the_quota_back() -> None:
    world = make_world().put(make_slice("new", 4, of="old"))
    (admit,) = [one for one in world.settle() if isinstance(one, Admit)]

    world.engine.forget(admit.key, admit.uid, now=world.now)

    world.engine.validate()
    assert (world.holding(), used(world)) == ({"old": "queue"}, 2)


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")], ids=" before ".join)
def test_after_a_restart_each_pod_is_counted_once(order: tuple[str, str]) -> None:
    shown = {"old": reserved(make_slice("old", 2)), "new": reserved(make_slice("new", 4, of="old"))}

    world = World().put(make_cluster_queue(quota=4), *(shown[name] for name in order))

    assert (world.holding(), used(world)) == ({"new": "queue"}, 4)
    assert [key.name for key, _ in world.engine.workloads.replaced()] == ["old"]
    successor = world.engine.workloads.successor(WorkloadKey(NAMESPACE, "old"))
    assert successor is not None
    assert successor.key.name == "new"
    world.put(finished(shown["old"]))
    assert list(world.engine.workloads.replaced()) == []
    assert (world.holding(), used(world)) == ({"new": "queue"}, 4)


def test_a_third_slice_takes_over_from_the_second() -> None:
    world = make_world().put(make_slice("new", 3, of="old"))
    world.confirm(world.settle())
    world.put(make_slice("third", 4, of="new", chain="old"))

    world.confirm(world.settle())

    # The first has not been finished by then.
    assert (world.holding(), used(world)) == ({"third": "queue"}, 4)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"owner": "another"}, id="of another Job"),
        pytest.param({"owner": None}, id="of a Job, which it is not of"),
        pytest.param({"chain": "another"}, id="of another chain"),
        pytest.param({"namespace": "elsewhere"}, id="of another namespace"),
    ],
)
def test_a_slice_takes_nothing_from_a_workload(change: dict[str, Any]) -> None:
    world = World().put(make_cluster_queue(quota=4), reserved(make_slice("old", 2)))
    new = make_slice("new", 4, of="old", owner=change.get("owner", "job"), chain=change.get("chain", "old"))
    if "namespace" in change:
        new = replace(new, annotations={**new.annotations, keys.SLICE_REPLACEMENT_FOR: "elsewhere/old"})

    assert admits(world.put(new).settle()) == []
    assert world.holding() == {"old": "queue"}


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")], ids=" before ".join)
@pytest.mark.parametrize("is_elastic", [False, True], ids=["by name alone", "as slices"])
def test_of_workloads_without_an_owner_one_takes_over_from_that_it_names(
    order: tuple[str, str], is_elastic: bool
) -> None:
    """Source: Kueue, test/integration/singlecluster/scheduler, Workload slicing with multiple podSets."""
    marks = {keys.ELASTIC_JOB: "true"} if is_elastic else {}
    old = make_workload("old", gpus=2, annotations=marks)
    new = make_workload("new", gpus=4, annotations={**marks, keys.SLICE_REPLACEMENT_FOR: f"{NAMESPACE}/old"})
    shown = {"old": reserved(old), "new": reserved(new)}

    world = World().put(make_cluster_queue(quota=4), reserved(old), new)
    decisions = world.settle()
    restarted = World().put(make_cluster_queue(quota=4), *(shown[name] for name in order))

    assert admits(decisions) == ["new"]
    assert (world.holding(), used(world)) == ({"new": "queue"}, 4)
    assert (restarted.holding(), used(restarted)) == ({"new": "queue"}, 4)
    successor = restarted.engine.workloads.successor(WorkloadKey(NAMESPACE, "old"))
    assert successor is not None
    assert successor.key.name == "new"


@pytest.mark.parametrize("order", [("big", "tiny"), ("tiny", "big")], ids=" before ".join)
def test_a_workload_of_a_job_that_is_no_slice_is_replaced_by_none(order: tuple[str, str]) -> None:
    owner = "job"
    marks = {keys.SLICE_REPLACEMENT_FOR: f"{NAMESPACE}/big"}
    made = {
        "big": make_workload("big", gpus=3, owner_uid=owner),
        "tiny": make_workload("tiny", gpus=1, owner_uid=owner, annotations=marks),
    }
    world = World().put(make_cluster_queue(quota=4))
    for name in order:
        world.put(made[name])
        world.confirm(world.settle())

    world.engine.forget_all(now=world.now)

    world.engine.validate()
    assert (world.holding(), used(world)) == ({"big": "queue", "tiny": "queue"}, 4)


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")], ids=" before ".join)
def test_a_smaller_slice_frees_the_rest_once_the_former_has_finished(order: tuple[str, str]) -> None:
    shown = {"old": reserved(make_slice("old", 4)), "new": reserved(make_slice("new", 1, of="old"))}
    world = World().put(make_cluster_queue(quota=4), *(shown[name] for name in order))
    world.put(make_workload("next", gpus=3, at=9))

    before = used(world), admits(world.settle())
    world.engine.validate()
    world.put(finished(shown["old"]))

    assert before == (4, [])
    assert (used(world), admits(world.settle())) == (1, ["next"])


def test_a_smaller_slice_takes_over_before_the_former_is_seen() -> None:
    """Its decision is not taken back with those that no object shows."""
    world = World().put(make_cluster_queue(quota=4)).put(make_slice("new", 1, of="old"))
    world.confirm(world.settle())
    world.put(make_slice("old", 3))
    world.confirm(world.settle())

    world.engine.forget_all(now=world.now)

    world.engine.validate()
    assert used(world) == 3


def test_a_slice_keeps_the_flavor_of_the_one_it_replaces() -> None:
    group = make_group("default", "spare", default=2, spare=8)
    world = World().put(
        ResourceFlavor(name="spare"),
        make_cluster_queue(groups=(group,)),
        reserved(make_slice("old", 2)),
    )

    found = messages(world.put(make_slice("new", 3, of="old")).settle())

    default, spare = world.engine.workloads.explanation(world.get("new"))[0].flavors
    assert (default.quota[0].wanted, default.quota[0].free) == (3, 2)
    assert spare.refusal == "could not assign spare flavor since the original workload is assigned: default"
    assert "could not assign spare flavor since the original workload is assigned: default" in found["new"]


def test_a_slice_preempts_others_and_not_the_one_it_replaces() -> None:
    world = make_world(preemption=LOWER)
    world.put(reserved(make_workload("low", gpus=2, priority=-1), at=5))

    decisions = world.put(make_slice("new", 4, of="old", at=9)).settle()

    assert evicts(decisions) == {"low": "InClusterQueue"}
    assert world.holding() == {"low": "queue", "old": "queue"}
    world.carry_out(tuple(decisions))
    assert admits(world.settle()) == ["new"]
    assert (world.holding(), used(world)) == ({"new": "queue"}, 4)


def test_a_slice_of_an_evicted_one_waits_until_that_is_gone() -> None:
    world = World().put(make_cluster_queue(quota=4, preemption=LOWER), reserved(make_slice("old", 3)))
    world.put(make_workload("high", gpus=2, priority=9), make_slice("new", 4, of="old"))

    decisions = world.settle()

    assert (evicts(decisions), admits(decisions)) == ({"old": "InClusterQueue"}, [])


def test_no_slice_is_admitted_elsewhere_while_the_evicted_one_has_not_stopped() -> None:
    group = make_group("default", "spare", default=4, spare=8)
    world = World().put(ResourceFlavor(name="spare"), make_cluster_queue(groups=(group,)))
    old = reserved(make_slice("old", 4))
    evicted = make_condition("Evicted", True, reason="Preempted")
    world.put(with_conditions(old, *old.conditions.values(), evicted), make_slice("new", 6, of="old"))

    decisions = world.settle()

    assert (admits(decisions), used(world), used(world, "spare")) == ([], 4, 0)
    waits = "Workload team/old, which this one replaces, is evicted and has not stopped yet"
    assert messages(decisions)["new"] == waits
    world.put(finished(old))
    assert admits(world.settle()) == ["new"]


def test_fewer_pods_free_their_quota_at_once() -> None:
    world = make_world(quota=2).put(make_workload("waits", gpus=1))
    assert admits(world.settle()) == []
    old = world.get("old")

    world.put(replace(old, pod_sets=(make_pod_set(count=1),), generation=2))

    assert (used(world), admits(world.settle())) == (1, ["waits"])


def test_others_of_the_same_cycle_find_what_a_slice_leaves() -> None:
    world = World().put(
        make_cluster_queue(quota=3, cohort="all"), make_cluster_queue("beta", quota=1, cohort="all")
    )
    world.put(reserved(make_slice("old", 2)))

    world.put(make_slice("new", 3, of="old", priority=9), make_workload("other", queue="beta"))

    assert admits(world.cycle()) == ["new", "other"]


def test_a_group_without_pods_gets_some() -> None:
    def cluster(name: str, workers: int, of: str = "") -> Workload:
        pod_sets = (make_pod_set("head"), make_pod_set("workers", count=workers))
        return replace(make_slice(name, 1, of=of), pod_sets=pod_sets)

    world = World().put(make_cluster_queue(quota=3), cluster("old", 0))
    world.confirm(world.settle())

    world.put(cluster("new", 2, of="old"))

    assert admits(world.settle()) == ["new"]
    assert used(world) == 3


@pytest.mark.parametrize(
    ("others", "is_adopted"),
    [pytest.param(1, True, id="there is room"), pytest.param(2, False, id="others have taken it")],
)
def test_a_new_leader_replays_the_reservation_of_a_slice_where(others: int, is_adopted: bool) -> None:
    """Its predecessor died between the store and the API server."""
    world = make_world().put(reserved(make_workload("other", gpus=others)), make_slice("new", 3, of="old"))

    found = world.engine.adopt(reserved(world.get("new")), now=world.now)

    world.engine.validate()
    assert (found is not None) is is_adopted
    assert used(world) == others + (3 if is_adopted else 2)


@pytest.mark.parametrize("mode", [BackfillMode.EASY, BackfillMode.CONSERVATIVE])
def test_a_slice_grows_beside_a_promise_that_finds_room_beside_it(mode: BackfillMode) -> None:
    """What it runs on already is counted once, in the plan as well."""
    world = TimedWorld(now=0)
    world.put(make_cluster_queue(quota=5), make_policy(mode))
    marks = {keys.ELASTIC_JOB: "true", keys.SLICE_NAME: "old"}
    world.submit("old", 2, runs=300, annotations=marks, owner_uid="job")
    world.submit("runs", 2, runs=100)
    world.submit("promised", 2, runs=50, at=1)
    replacement = {**marks, keys.SLICE_REPLACEMENT_FOR: f"{NAMESPACE}/old"}
    world.submit("new", 3, runs=300, at=10, annotations=replacement, owner_uid="job")

    world.run(until=200)

    assert world.started["new"] == 10
    assert (world.promised("promised"), world.started["promised"]) == ([100], 100)


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param(make_workload("other", gpus=2, at=-1.0), {"other"}, id="others of lower priority go"),
        pytest.param(make_workload("other", gpus=2, priority=9), set(), id="without any it waits"),
    ],
)
def test_a_slice_of_higher_priority_does_not_preempt_the_slice_that_it_replaces(
    other: Workload, want: set[str]
) -> None:
    world = make_world(preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY))
    world.put(reserved(other), make_slice("new", 4, of="old", priority=5))

    assert evicts(world.settle()).keys() == want
