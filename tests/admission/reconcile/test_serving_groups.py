"""Groups that a controller keeps up: those of StatefulSets and LeaderWorkerSets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.decisions.api_writes import Write
from admission.reconcile.pod.reconcile import reconcile_empty_group
from admission.reconcile.pod.view import GroupOwner, UnitFacts
from api import keys
from api.disruption_budget import DisruptionBudget
from api.objects.common import OwnerReference, WireSelector
from api.reasons import ConditionType
from tests.admission.podworld import (
    PodWorld,
    admitted,
    member_object,
    said,
    warnings,
)
from tests.admission.world import Object, purposes


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({keys.LEADER_WORKER_SET: "big"}, [], id="at once if an owner creates its successor"),
        pytest.param({}, ["a", "b"], id="once another has replaced it, without such an owner"),
    ],
)
def test_a_serving_group_never_finishes_and_a_dead_pod_of_it_goes(
    labels: dict[str, str], want: list[str]
) -> None:
    serving = {keys.POD_GROUP_SERVING: "true"}
    pods = [member_object(name, labels=labels, annotations=serving) for name in ("a", "b")]
    world = admitted(*pods)

    world.end("a")
    world.end("b", "Failed")
    world.settle()

    assert [name for name in ("a", "b") if world.pod(name).has_finalizer] == want
    assert "Finished" not in said(world)
    world.add(member_object("c", labels=labels, annotations=serving, created=1))
    world.settle()
    assert [name for name in ("a", "b") if world.pod(name).has_finalizer] == want[1:]


SERVING = {
    keys.POD_GROUP_SERVING: "true",
    keys.POD_GROUP_FAST_ADMISSION: "true",
}


def shard(name: str, total: int = 3, **fields: Any) -> Object:
    """Return a pod of a group that serves."""
    return member_object(name, total, annotations=SERVING, **fields)


def serving_world(*pods: Object, replicas: int) -> PodWorld:
    """Return a world in which these pods of a group of `replicas` serve."""
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


def test_pods_that_a_serving_group_is_scaled_up_by_wait_and_get_a_reason() -> None:
    world = serving_world(shard("a"), shard("b"), replicas=2)
    world.facts = UnitFacts(replicas=3)
    world.add(shard("c", created=1))

    world.settle()

    assert world.pods() == ["a", "b", "c"]
    assert world.pod("c").is_gated
    assert "scale it to 0" in warnings(world)[-1]


def budget(name: str, allowed: int) -> DisruptionBudget:
    """Return a budget over every pod of the namespace."""
    return DisruptionBudget(namespace="team", name=name, selector=WireSelector(), allowed=allowed)


@pytest.mark.parametrize(
    ("budgets", "want", "says"),
    [
        pytest.param((), ["allow-eviction", "evict-pod", "evict-pod"], "allows all", id="goes where none is"),
        pytest.param(
            (budget("b", 2),),
            ["allow-eviction", "evict-pod", "evict-pod"],
            "Every PodDisruptionBudget allows all pods",
            id="goes where its budget lets all go",
        ),
        pytest.param(
            (budget("b", 1),),
            ["allow-eviction"],
            "PodDisruptionBudget team/b allows 1 of the group's 2 ready pods to be evicted",
            id="stays where its budget lets one go",
        ),
        pytest.param(
            (budget("b", 2), budget("a", 2)),
            ["allow-eviction"],
            "Pod team/a falls under 2 PodDisruptionBudgets (a, b)",
            id="stays where the server would evict none of its pods",
        ),
    ],
)
def test_an_evicted_group_of_inference(
    budgets: tuple[DisruptionBudget, ...], want: list[str], says: str
) -> None:
    world = serving_world(shard("a", 2), shard("b", 2, created=1), replicas=2)
    world.facts = UnitFacts(replicas=2, by_eviction=True, budgets=budgets)
    world.evict("g")

    done = []
    while writes := [one for one in world.look() if isinstance(one, Write)]:
        # All of one look, since none waits for another.
        for write in writes:
            world.apply(write)
        done += purposes(tuple(writes))

    assert done == want
    assert says in world.workload("g")[0].conditions[ConditionType.DISRUPTION_ALLOWED].message


@pytest.mark.parametrize(
    ("replicas", "want"),
    [(0, ["delete-workload"]), (2, []), (None, ["remove-finalizer"])],
    ids=[
        "that is to have none is over",
        "that is being created again goes on",
        "that no controller keeps is collected",
    ],
)
def test_a_group_without_pods(replicas: int | None, want: list[str]) -> None:
    world = serving_world(shard("a"), replicas=1)

    assert purposes(reconcile_empty_group(*world.workload("g"), replicas=replicas)) == want


@pytest.mark.parametrize("replicas", [0, 2, None])
def test_a_deleted_group_whose_last_pod_has_gone_gives_its_quota_back(replicas: int | None) -> None:
    workload, raw = serving_world(shard("a"), replicas=1).workload("g")
    deleted = replace(workload, deleted_at=1.0)

    assert purposes(reconcile_empty_group(deleted, raw, replicas=replicas)) == ["remove-finalizer"]
    assert reconcile_empty_group(replace(deleted, has_finalizer=False), raw, replicas=replicas) == ()


@pytest.mark.parametrize(
    ("owner", "want"),
    [
        pytest.param(
            ("apps/v1", "StatefulSet", "shards"), "StatefulSet/shards", id="a StatefulSet's says so"
        ),
        pytest.param(("example.com/v1", "Fleet", "f"), None, id="another's may be any part of it"),
        pytest.param(None, None, id="made by hand it is none"),
    ],
)
def test_of_what_a_serving_group_is_all_replicas(
    owner: tuple[str, str, str] | None, want: str | None
) -> None:
    pod = shard("a", 1)
    if owner is not None:
        version, kind, name = owner
        reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": True}
        pod["metadata"]["ownerReferences"] = [reference]
    world = PodWorld()
    if owner is not None:
        world.objects[owner[1], owner[2]] = {"metadata": {"name": owner[2], "uid": "u"}}
    world.add(pod)

    world.settle()

    assert world.workload("g")[0].annotations.get(keys.REPLICA_OF) == want


# --- LeaderWorkerSets ----------------------------------------------------------------------------

BIG = OwnerReference(
    api_version="leaderworkerset.x-k8s.io/v1", kind="LeaderWorkerSet", name="big", uid="uid-big"
)


def of_big(name: str, cpu: str) -> Object:
    """Return a pod of the first group of the LeaderWorkerSet big."""
    labels = {keys.LEADER_WORKER_SET: "big", keys.LEADER_WORKER_GROUP: "0"}
    return member_object(name, labels=labels, annotations={keys.POD_GROUP_SERVING: "true"}, cpu=cpu)


def group_of_big(world: PodWorld) -> None:
    """Make the pods of the first group of big."""
    for pod in (of_big("big-0", "2"), of_big("big-0-1", "1")):
        world.add(pod)
    world.settle()


def running_big(*, is_known: bool = True) -> PodWorld:
    """Return a world in which the only group of big runs; `is_known`: the set itself is."""
    world = PodWorld()
    if is_known:
        metadata = {"name": "big", "namespace": "team", "uid": "uid-big"}
        world.objects["LeaderWorkerSet", "big"] = {"metadata": metadata}
        world.facts = UnitFacts(keeper=GroupOwner(reference=BIG))
    group_of_big(world)
    world.admit("g")
    world.settle()
    world.run()
    world.settle()
    return world


@pytest.mark.parametrize(
    "is_known",
    [
        pytest.param(True, id="keeps its Workload, which the set owns"),
        pytest.param(False, id="gets another Workload where the set is not known"),
    ],
)
def test_an_evicted_group_of_a_leader_worker_set_queues_again_and(is_known: bool) -> None:
    world = running_big(is_known=is_known)
    before = world.workload("g")[0].uid
    world.evict("g")
    world.settle()
    world.run_kubelet()
    world.settle()
    # Their names are free again, which their controller waits for.
    assert world.pods() == []

    group_of_big(world)

    assert (world.workload("g")[0].uid == before) == is_known
    world.admit("g")
    world.settle()
    assert not world.pod("big-0-1").is_gated


def test_a_group_of_a_leader_worker_set_says_of_what_it_is_a_replica() -> None:
    assert running_big().workload("g")[0].annotations[keys.REPLICA_OF] == "LeaderWorkerSet/big"


def test_a_group_of_a_leader_worker_set_that_its_pods_owned_gets_the_set_as_owner() -> None:
    world = running_big(is_known=False)
    world.objects["LeaderWorkerSet", "big"] = {"metadata": {"name": "big", "uid": "uid-big"}}
    world.facts = UnitFacts(keeper=GroupOwner(reference=BIG))

    world.settle()

    owners = world.objects["Workload", "g"]["metadata"]["ownerReferences"]
    assert [owner["name"] for owner in owners] == ["big-0", "big-0-1", "big"]


@pytest.mark.parametrize(
    ("has_place", "want"),
    [
        pytest.param(True, ["g"], id="keeps its quota while the set creates them again"),
        pytest.param(False, [], id="is over where the set was scaled down by it"),
    ],
)
def test_a_group_of_a_leader_worker_set_whose_pods_were_deleted(has_place: bool, want: list[str]) -> None:
    world = running_big()
    world.facts = UnitFacts(keeper=GroupOwner(reference=BIG, has_place=has_place))

    for name in ("big-0", "big-0-1"):
        world.delete("Pod", name)
    world.run_kubelet()
    world.settle()

    assert world.pods() == []
    assert [workload.key.name for workload, _ in world.workloads()] == want


def test_a_group_that_a_set_was_scaled_down_by_is_over_though_it_was_being_evicted() -> None:
    world = running_big()
    world.evict("g")
    world.settle()
    world.facts = UnitFacts(keeper=GroupOwner(reference=BIG, has_place=False))

    world.run_kubelet()
    world.settle()

    assert world.workloads() == []
