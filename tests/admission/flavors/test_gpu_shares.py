"""Workloads whose pods share GPUs: which nodes they get, beside which others, and what they are charged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec import structs

from admission.decisions.decision import Admit
from api.jobs.gpu_share import GpuShare
from api.node import NodeInfo, PodUsage
from api.objects.common import Meta
from api.policy import AdmissionPolicy, PlacementRules, StrategyChoice
from api.workload import PodSet, Workload
from tests.admission.flavors.worlds import fill
from tests.builders import (
    World,
    admits,
    finished,
    make_template,
    make_workload,
    messages,
    waits,
)

GPU, SLICE, MILLI = "nvidia.com/gpu", "nvidia.com/gpu.shared", "berth.dev/gpu-milli"
MEMORY, HOST = "berth.dev/gpu-memory-mib", "kubernetes.io/hostname"


def make_node(
    name: str, gpus: int = 1, *, cpus: int = 64_000, labels: Mapping[str, str] | None = None
) -> NodeInfo:
    """Return a node whose GPUs HAMi offers ten times each."""
    known = {HOST: name, "nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.memory": "40000"}
    return NodeInfo(
        name=name,
        labels={**known, **(labels or {})},
        allocatable={GPU: 10 * gpus, "cpu": cpus, "pods": 110},
    )


def make_world(*nodes: NodeInfo, **quotas: int) -> World:
    named = {name.replace("__", "/"): one for name, one in quotas.items()}
    return fill(World(), *nodes, amounts={GPU: 100, "cpu": 1_000_000, **named})


def make_share(
    name: str, milli: str, *, pods: int = 1, at: float = 0, mib: str = "", gpus: int = 1
) -> Workload:
    keys = {MILLI: milli, **({MEMORY: mib} if mib else {})}
    template = structs.replace(make_template({GPU: gpus, "cpu": 1}), metadata=Meta(annotations=keys))
    return make_workload(name, pod_sets=(PodSet(name="main", count=pods, template=template),), at=at)


def make_whole(name: str, gpus: int, at: float = 0, cpus: int = 1) -> Workload:
    pods = PodSet(name="main", count=1, template=make_template({GPU: gpus, "cpu": cpus}))
    return make_workload(name, pod_sets=(pods,), at=at)


def test_two_pods_share_a_gpu_and_a_third_waits_until_one_ends() -> None:
    world = make_world(make_node("n0"))
    world.put(make_share("a", "600", at=1), make_share("b", "400", at=2), make_share("c", "100", at=3))
    decisions = world.settle()

    assert admits(decisions) == ["a", "b"]
    assert 'excluded: resource "berth.dev/gpu-milli": 1' in messages(decisions)["c"]
    world.confirm(decisions)
    world.put(finished(world.get("b")))
    assert admits(world.settle()) == ["c"]


def test_halves_of_two_gpus_are_no_larger_share() -> None:
    world = make_world(make_node("n0", 2)).put(make_share("a", "600", pods=2, at=1))
    world.confirm(world.settle())
    decisions = world.put(make_share("b", "500", at=2)).settle()

    assert admits(decisions) == []
    assert "excluded: fragmented GPU shares: 1" in messages(decisions)["b"]


def test_work_with_whole_gpus_runs_beside_shares_on_other_gpus() -> None:
    world = make_world(make_node("n0", 3)).put(make_share("a", "300", pods=2, at=1))
    world.confirm(world.settle())
    decisions = world.put(make_whole("b", 2, at=2), make_whole("c", 1, at=3)).settle()

    assert admits(decisions) == ["b"]
    assert "fragmented GPU shares: 1" in messages(decisions)["c"]
    world.confirm(decisions)
    # The GPU that is shared still has room, the others have none.
    assert admits(world.put(make_share("d", "401", at=4), make_share("e", "400", at=5)).settle()) == ["e"]


def test_pods_that_others_placed_count() -> None:
    world = make_world(make_node("n0", 2))
    pod = PodUsage(
        namespace="other",
        name="served",
        node="n0",
        requests={GPU: 1, MILLI: 700, "pods": 1},
    )
    world.put(pod)
    decisions = world.put(make_share("a", "400", pods=2, at=1)).settle()
    assert admits(decisions) == ["a"]
    world.confirm(decisions)
    assert admits(world.put(make_share("b", "300", pods=1, at=2)).settle()) == ["b"]
    assert admits(world.put(make_share("c", "300", pods=1, at=3)).settle()) == []

    world.remove(PodUsage, ("other", "served"))
    assert admits(world.settle()) == ["c"]


def make_record(name: str, gpu: int, milli: int = 500) -> PodUsage:
    """Return a pod that Berth has placed and that has recorded its GPU."""
    return PodUsage(namespace="team", name=name, gpu_node="n0", gpu_ids=(gpu,), share=GpuShare(milli))


def test_a_gpu_that_comes_free_with_a_pod_after_its_workload_wakes_what_waits_for_it() -> None:
    world = make_world(make_node("n0", 2)).put(*(make_share(name, "500", at=1) for name in "abc"))
    world.confirm(world.settle())
    world.put(make_record("a", 1), make_record("b", 1), make_record("c", 0), make_whole("waits", 1, at=2))
    assert admits(world.settle()) == []
    # Which of the three pods ends is not known until the pod itself is gone.
    world.put(finished(world.get("c")))
    assert admits(world.settle()) == []

    world.remove(PodUsage, ("team", "c"))

    assert admits(world.settle()) == ["waits"]


def test_pods_that_share_fewer_gpus_than_was_assumed_wake_what_waits_for_one() -> None:
    shares = {"a": 500, "b": 400, "c": 300, "d": 300, "e": 250, "f": 250}
    world = make_world(make_node("n0", 3))
    world.put(*(make_share(name, str(milli), at=1) for name, milli in shares.items()))
    world.confirm(world.settle())
    # The largest first, a and b are together, so that the others need two more GPUs.
    assert admits(world.put(make_whole("waits", 1, at=2)).settle()) == []

    for name, milli in shares.items():
        world.put(make_record(name, int(name in "bcd"), milli))

    assert admits(world.settle()) == ["waits"]


def test_records_that_leave_as_much_of_each_gpu_wake_nothing() -> None:
    world = make_world(make_node("n0", 2)).put(*(make_share(name, "500", at=1) for name in "abc"))
    world.confirm(world.settle())
    assert admits(world.put(make_whole("waits", 1, at=2)).settle()) == []

    world.put(make_record("a", 1), make_record("b", 1), make_record("c", 0))

    assert not world.engine.wake_heads(now=world.now)


def test_whole_gpus_are_those_that_a_node_has_and_not_as_often_as_it_offers_them() -> None:
    """Also where nothing is shared anywhere: a node with one GPU that HAMi offers ten times."""
    world = make_world(make_node("n0", 1), make_node("n1", 2))
    decisions = world.put(
        make_whole("a", 2, at=1), make_whole("b", 1, at=2), make_whole("c", 1, at=3)
    ).settle()

    assert admits(decisions) == ["a", "b"]


def test_a_pod_of_others_that_becomes_a_share_leaves_room_for_another() -> None:
    world, whole = make_world(make_node("n0", 1)), {GPU: 1, "pods": 1}
    pod = PodUsage(namespace="other", name="served", node="n0", requests=whole)
    assert admits(world.put(pod, make_share("a", "400")).settle()) == []

    world.put(replace(pod, requests={**whole, MILLI: 600}))

    assert admits(world.settle()) == ["a"]


def test_shares_count_in_the_quota_of_a_queue_that_covers_them() -> None:
    world = make_world(make_node("n0", 4), **{"berth.dev__gpu-milli": 1_000})
    decisions = world.put(make_share("a", "700", at=1), make_share("b", "700", at=2)).settle()

    assert admits(decisions) == ["a"]
    assert "insufficient unused quota for berth.dev/gpu-milli in flavor only" in messages(decisions)["b"]


def test_a_queue_that_does_not_cover_them_charges_what_the_pods_mount() -> None:
    world = make_world(make_node("n0", 4)).put(make_share("a", "700"))
    (decision,) = world.settle()
    assert isinstance(decision, Admit)
    (pod_set,) = decision.admission.pod_sets
    assert dict(pod_set.usage) == {GPU: 1, "cpu": 1000}


def test_memory_of_a_gpu_limits_its_shares() -> None:
    world = make_world(make_node("n0"))
    world.put(make_share("a", "100", mib="30000", at=1), make_share("b", "100", mib="20000", at=2))
    assert admits(world.settle()) == ["a"]


def test_a_key_that_cannot_be_read_and_one_with_several_gpus_ask_for_nothing() -> None:
    world = make_world(make_node("n0", 4))
    world.put(make_share("a", "half", at=1), make_share("b", "0", at=2), make_share("c", "500", gpus=2, at=3))
    assert admits(world.settle()) == ["a", "b", "c"]
    # As any pod without a share, they have their GPUs to themselves.
    assert admits(world.put(make_whole("d", 1, at=4)).settle()) == []


def test_gpus_under_mig_are_not_shared() -> None:
    mig = {
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
    }
    decisions = make_world(make_node("n0", 8, labels=mig)).put(make_share("a", "500")).settle()

    assert waits(decisions) == {"a": "Misconfigured"}
    assert "1 × Node has no GPU to share (its GPUs: partitioned by MIG)" in messages(decisions)["a"]


def test_linked_gpus_are_whole_ones() -> None:
    node = make_node("n0", 8, labels={"nvidia.com/gpu-topology": "nvswitch", "nvidia.com/gpu.replicas": "10"})
    template = structs.replace(
        make_template({GPU: 2}), metadata=Meta(annotations={"berth.dev/parallelism": "ddp"})
    )
    workload = make_workload("a", pod_sets=(PodSet(name="main", count=1, template=template),))
    decisions = make_world(node).put(workload).settle()

    assert "GPUs of the node are shared or partitioned" in messages(decisions)["a"]


@pytest.mark.parametrize("strategy", [StrategyChoice.PACKED, StrategyChoice.BALANCED])
def test_the_policy_or_the_job_asks_for_packing(strategy: StrategyChoice) -> None:
    keys = {} if strategy is StrategyChoice.PACKED else {"berth.dev/placement-strategy": "packed"}
    world = make_world(make_node("n0", 8, cpus=64_000), make_node("n1", 2, cpus=96_000))
    world.put(AdmissionPolicy(name="packed", placement=PlacementRules(strategy=strategy)))
    world.put(replace(make_whole("a", 1, cpus=4, at=1), annotations=keys))
    world.confirm(world.settle())
    # It takes the CPU of eight GPUs, and n1 has fewer GPUs to lose.
    (decision,) = world.put(replace(make_whole("b", 1, cpus=60, at=2), annotations=keys)).settle()

    assert isinstance(decision, Admit)
    (pod_set,) = decision.admission.pod_sets
    assert pod_set.topology is not None
    assert pod_set.topology.domains[0].values == ("n1",)


def test_an_engine_built_again_from_the_same_objects_counts_the_same() -> None:
    world = make_world(make_node("n0", 2)).put(make_share("a", "600", pods=2))
    world.confirm(world.settle())
    held = world.get("a")

    again = make_world(make_node("n0", 2)).put(
        held, make_share("b", "500", at=2), make_share("c", "400", at=3)
    )
    assert admits(again.settle()) == ["c"]
