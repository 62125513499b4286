"""Inference without GPUs of its own: what its pods use of GPU memory decides where the next ones go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import convert, structs

from api.node import NodeInfo, PodUsage, to_pod_usage
from api.objects.cluster import PodObject
from api.objects.common import Meta
from api.queueing import Preemption, PreemptionPolicy
from api.workload import PodSet, Workload
from tests.admission.flavors.worlds import fill
from tests.admission.timed import TimedWorld, make_policy
from tests.builders import (
    World,
    admits,
    evicts,
    finished,
    make_template,
    make_workload,
    messages,
    waits,
)

HOST, MEMORY, TYPE = "kubernetes.io/hostname", "berth.dev/gpu-memory-mib", "berth.dev/workload-type"
INFERENCE = {TYPE: "inference", MEMORY: "16384"}
# The scheduler name whose pods the filter InferenceMemory binds.
AI = "ai-scheduler"


ROOM = {"nvidia.com/gpu.memory": "16384"}
# A quota that nothing waits for.
ENOUGH = {"cpu": 1_000_000}


def make_node(labels: Mapping[str, str] = ROOM, *, name: str = "n") -> NodeInfo:
    """Return a node that offers two GPUs, as a rule of 16 GB."""
    return NodeInfo(
        name=name,
        labels={HOST: name, **labels},
        allocatable={"nvidia.com/gpu": 2, "cpu": 64_000, "pods": 110},
    )


def make_world(*nodes: NodeInfo, **queue: Any) -> World:
    return fill(World(), *nodes, amounts=ENOUGH, **queue)


def make_serving(
    name: str,
    keys: Mapping[str, str] = INFERENCE,
    *,
    job: Mapping[str, str] | None = None,
    pods: int = 1,
    scheduler: str = AI,
    at: float = 0,
    priority: int = 0,
) -> Workload:
    template = make_template({"cpu": 1})
    assert template.spec is not None
    template = structs.replace(
        template,
        spec=structs.replace(template.spec, scheduler_name=scheduler),
        metadata=Meta(annotations=dict(keys)),
    )
    main = PodSet(name="main", count=pods, template=template)
    return make_workload(name, pod_sets=(main,), annotations=dict(job or {}), at=at, priority=priority)


def test_inference_waits_until_other_inference_gives_gpu_memory_back() -> None:
    world = make_world(make_node())
    world.put(make_serving("a", at=1), make_serving("b", at=2), make_serving("c", at=3))
    decisions = world.settle()

    assert admits(decisions) == ["a", "b"]
    assert "excluded: GPU memory for inference: 1" in messages(decisions)["c"]
    world.confirm(decisions)
    world.put(finished(world.get("a")))
    assert admits(world.settle()) == ["c"]


def test_pods_of_one_gang_go_where_each_finds_gpu_memory() -> None:
    world = make_world(make_node(), make_node(name="o")).put(make_serving("gang", pods=4, at=1))
    decisions = world.settle()
    world.confirm(decisions)

    assert admits(decisions) == ["gang"]
    assert admits(world.put(make_serving("one more", at=2)).settle()) == []


@pytest.mark.parametrize(
    ("there", "want"),
    [
        pytest.param(make_serving("there", pods=2), [], id="inference counts"),
        pytest.param(make_serving("there", pods=2, scheduler=""), [], id="also without the rule"),
        pytest.param(
            make_serving("there", {}, job=INFERENCE, pods=2), [], id="also where its Job alone says so"
        ),
        pytest.param(
            make_serving("there", {"workload-type": "inference", MEMORY: "16384"}, pods=2),
            [],
            id="also by the alias on its pods",
        ),
        pytest.param(make_serving("there", INFERENCE | {TYPE: "training"}, pods=2), ["w"], id="not training"),
        pytest.param(make_serving("there", {TYPE: "inference"}, pods=2), ["w"], id="not without an amount"),
    ],
)
def test_what_is_placed(there: Workload, want: list[str]) -> None:
    world = make_world(make_node()).put(there)
    world.confirm(world.settle())

    assert admits(world.put(make_serving("w", at=1)).settle()) == want


@pytest.mark.parametrize(
    ("labels", "scheduler", "want"),
    [
        pytest.param(ROOM, AI, ["a", "b"], id="as much as the GPUs have"),
        pytest.param(ROOM | {"nvidia.com/gpu.replicas": "2"}, AI, ["a"], id="each GPU once, by time-slicing"),
        pytest.param(ROOM, "", ["a", "b"], id="whatever their scheduler"),
        pytest.param({}, AI, ["a", "b", "c", "d"], id="without limit where it is not known"),
    ],
)
def test_room_on_a_node(labels: Mapping[str, str], scheduler: str, want: list[str]) -> None:
    asking = [make_serving(name, scheduler=scheduler, at=at) for at, name in enumerate("abcd")]

    assert admits(make_world(make_node(labels)).put(*asking).settle()) == want


def test_pods_that_others_placed_count_while_they_run() -> None:
    pod = convert(
        {
            "metadata": {"namespace": "other", "name": "p", "annotations": INFERENCE | {MEMORY: "20000"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Running"},
        },
        PodObject,
    )
    world = make_world(make_node()).put(to_pod_usage(pod), make_serving("w"))

    assert admits(world.settle()) == []
    world.remove(PodUsage, ("other", "p"))
    assert admits(world.settle()) == ["w"]


def test_inference_of_a_higher_priority_preempts_what_uses_the_gpu_memory() -> None:
    preempting = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = make_world(make_node(), preemption=preempting)
    world.put(make_serving("training", INFERENCE | {TYPE: "training"}), make_serving("served", pods=2, at=1))
    world.confirm(world.settle())

    assert list(evicts(world.put(make_serving("urgent", at=2, priority=1)).settle())) == ["served"]


@pytest.mark.parametrize("scheduler", ["", AI])
def test_more_gpu_memory_than_any_node_has_is_misconfigured(scheduler: str) -> None:
    asking = make_serving("w", INFERENCE | {MEMORY: "33000"}, scheduler=scheduler)
    decisions = make_world(make_node()).put(asking).settle()

    assert waits(decisions) == {"w": "Misconfigured"}
    reason = "insufficient GPU memory for inference: 33GB more would make 101% of 32GB"
    assert reason in messages(decisions)["w"]


def test_a_start_is_promised_for_the_end_of_what_uses_the_gpu_memory() -> None:
    world = TimedWorld()
    fill(world, make_node(), amounts=ENOUGH).put(make_policy())
    begin = world.now
    world.submit("first", runs=600, pod_sets=make_serving("first", pods=2).pod_sets)
    world.submit("second", runs=60, at=begin + 1, pod_sets=make_serving("second").pod_sets)
    # It runs beside them: no more than GPU memory is lacking.
    world.submit("training", runs=900, at=begin + 2, pod_sets=make_serving("training", {}).pod_sets)
    world.run(until=begin + 10)

    assert world.started.keys() == {"first", "training"}
    assert world.promised("second") == [begin + 600]
    world.run()
    assert world.started["second"] == begin + 600
