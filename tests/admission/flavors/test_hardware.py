"""Hardware at admission: a flavor none of whose nodes fits is refused, and holds up no other Workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from admission.decisions.decision import Admit, Evict, Wait
from admission.flavors.topology_assigner import placed_pod_sets
from admission.hardware.rules import HardwareRules
from api.node import NodeInfo
from api.objects.common import Meta
from api.policy import AdmissionPolicy, Aliases, Backfill, BackfillMode
from api.queueing import Preemption, PreemptionPolicy, QueueingStrategy, ResourceFlavor, Topology
from api.reasons import PendingReason
from api.workload import PodSet, Workload
from tests.builders import World, make_cluster_queue, make_group, make_template, make_workload

GPU, HOST = "nvidia.com/gpu", "kubernetes.io/hostname"
MODEL = "accelerator.sched.io/gpu-model"
TOPOLOGY = Topology(name="hosts", levels=(HOST,))


def node(name: str, model: str, **labels: str) -> NodeInfo:
    return NodeInfo(
        name=name,
        labels={HOST: name, "nvidia.com/gpu.product": model, **labels},
        allocatable={GPU: 8, "cpu": 64_000, "pods": 110},
    )


def world(
    *nodes: NodeInfo,
    has_topology: bool = True,
    flavors: Mapping[str, str] | None = None,
    **queue: Any,
) -> World:
    world = World().put(TOPOLOGY, *nodes)
    names = flavors or {"gpu": ""}
    for name, pool in names.items():
        world.put(
            ResourceFlavor(
                name=name,
                topology_name="hosts" if has_topology else None,
                node_labels={"pool": pool} if pool else {},
            )
        )
    group = make_group(*names, resource=GPU, **dict.fromkeys(names, 64))
    strict = QueueingStrategy.STRICT_FIFO
    return world.put(make_cluster_queue("queue", groups=(group,), queueing_strategy=strict, **queue))


def workload(
    name: str,
    keys: Mapping[str, str] | None = None,
    *,
    job: Mapping[str, str] | None = None,
    gpus: int = 4,
    scheduler_name: str | None = None,
    **fields: Any,
) -> Workload:
    template = make_template({GPU: gpus})
    assert template.spec is not None
    template = msgspec.structs.replace(
        template,
        metadata=Meta(annotations=dict(keys or {})),
        spec=msgspec.structs.replace(template.spec, scheduler_name=scheduler_name),
    )
    pods = PodSet(name="main", count=1, template=template)
    return make_workload(name, pod_sets=(pods,), annotations=dict(job or {}), **fields)


def hosts(decision: object) -> list[str]:
    assert isinstance(decision, Admit)
    (pod_set,) = decision.admission.pod_sets
    assert pod_set.topology is not None
    return [domain.values[-1] for domain in pod_set.topology.domains]


@pytest.mark.parametrize("is_of_job", [True, False], ids=["on the Job", "on the pod template"])
def test_a_pod_is_placed_on_the_model_that_it_asks_for(is_of_job: bool) -> None:
    keys = {MODEL: "A100"}
    asking = workload("w", job=keys) if is_of_job else workload("w", keys)
    (decision,) = world(node("n1", "V100"), node("n2", "A100"), node("n3", "V100")).put(asking).settle()

    assert hosts(decision) == ["n2"]


@pytest.mark.parametrize("has_topology", [True, False], ids=["with a topology", "without"])
def test_what_no_node_can_run_is_misconfigured_and_holds_up_nothing(has_topology: bool) -> None:
    here = world(node("n1", "V100"), node("n2", "V100"), has_topology=has_topology)
    first, second = here.put(workload("no", {MODEL: "A100"}), workload("next", at=1)).settle()

    assert isinstance(first, Wait)
    assert first.reason is PendingReason.MISCONFIGURED
    assert first.message == (
        "couldn't assign flavors to pod set main: flavor gpu: none of 2 nodes has the hardware that its pods "
        "need: 2 × GPU model mismatch (need A100, has V100)"
    )
    assert isinstance(second, Admit)
    assert here.active() == []


@pytest.mark.parametrize("has_topology", [True, False], ids=["with a topology", "without"])
def test_it_is_tried_again_when_such_a_node_comes(has_topology: bool) -> None:
    here = world(node("n1", "V100"), has_topology=has_topology).put(workload("w", {MODEL: "A100"}))
    here.settle()
    assert here.put(node("n3", "V100")).settle() == []

    (decision,) = here.put(node("n2", "A100")).settle()
    assert isinstance(decision, Admit)


@pytest.mark.parametrize("has_topology", [True, False], ids=["with topologies", "without"])
def test_the_flavor_with_the_hardware_is_chosen(has_topology: bool) -> None:
    nodes = node("n1", "V100", pool="old"), node("n2", "A100", pool="new")
    here = world(*nodes, has_topology=has_topology, flavors={"old": "old", "new": "new"})
    (decision,) = here.put(workload("w", {MODEL: "A100"})).settle()

    assert isinstance(decision, Admit)
    assert decision.admission.pod_sets[0].flavors == {GPU: "new"}


def test_a_flavor_without_known_nodes_is_not_judged() -> None:
    (decision,) = world(has_topology=False).put(workload("w", {MODEL: "A100"})).settle()

    assert isinstance(decision, Admit)


def test_an_answer_is_not_shared_by_what_asks_for_other_hardware() -> None:
    here = world(node("n1", "V100"), has_topology=False)
    decisions = here.put(workload("v", {MODEL: "V100"}), workload("a", {MODEL: "A100"}, at=1)).settle()

    assert [type(one) for one in decisions] == [Admit, Wait]


def test_an_alias_on_the_job_counts_under_a_policy_that_reads_aliases() -> None:
    asking = workload("w", job={"workload-type": "GPU-intensive"}, gpus=0)
    cpu_node = NodeInfo(name="n", labels={HOST: "n"}, allocatable={"cpu": 64_000, "pods": 110})
    without, reading = (world(cpu_node).put(*policy) for policy in ((), (ALIASES,)))

    assert isinstance(without.put(asking).settle()[0], Admit)
    assert isinstance(reading.put(asking).settle()[0], Wait)


ALIASES = AdmissionPolicy(name="articles", aliases=Aliases.ARTICLES)


def test_it_is_promised_no_start_and_the_next_one_is() -> None:
    easy = AdmissionPolicy(name="easy", backfill=Backfill(mode=BackfillMode.EASY))
    runs = {"berth.dev/expected-runtime-seconds": "600"}
    here = world(node("n1", "V100")).put(easy, workload("running", job=runs, gpus=8))
    here.confirm(here.settle())
    impossible, waiting = (
        workload("no", job={**runs, MODEL: "A100"}, gpus=8, at=1),
        workload("next", job={**runs, MODEL: "V100"}, gpus=8, at=2),
    )
    here.put(impossible, waiting).settle()

    promises = here.engine.promises
    assert promises.planned(impossible.key) is None
    assert promises.expected_start(impossible.key) is None
    assert promises.planned(waiting.key) is not None


@pytest.mark.parametrize("model", ["A100", "V100"])
def test_only_what_runs_on_the_hardware_is_evicted_for_it(model: str) -> None:
    preemption = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    here = world(node("n1", "V100"), node("n2", "A100"), preemption=preemption)
    for name, asked in (("on-v100", "V100"), ("on-a100", "A100")):
        here.put(workload(name, {MODEL: asked}, gpus=8))
        here.confirm(here.settle())

    decisions = here.put(workload("urgent", {MODEL: model}, gpus=8, priority=9, at=1)).cycle()

    assert [one.key.name for one in decisions if isinstance(one, Evict)] == [f"on-{model.lower()}"]


def test_pods_of_a_failed_node_go_where_the_hardware_is() -> None:
    here = world(node("n1", "V100"), node("n2", "A100")).put(workload("w", job={MODEL: "A100"}))
    here.confirm(here.settle())
    cache, key = here.engine._cache, here.get("w").key
    record = here.engine._workload_store.index.records[key]

    (remaining,) = placed_pod_sets(cache.snapshot(), cache.held[key], record.requests)

    assert remaining.request.rules.hardware is not None
    assert remaining.request.rules.hardware.model == "A100"


@pytest.mark.parametrize("has_topology", [True, False], ids=["with a topology", "without"])
def test_a_changed_rule_binds_what_waits_and_frees_what_it_no_longer_binds(has_topology: bool) -> None:
    here = world(node("n1", "A100", **{"gpu-memory-gb": "16"}), has_topology=has_topology)
    here.put(workload("w", scheduler_name="gpu-aware-scheduler"))

    def bind(least_gb: int) -> list[object]:
        rules = HardwareRules(min_gpu_memory_gb=least_gb)
        here.engine.objects.set_hardware_rules(rules, now=here.now)
        here.engine.validate()
        return list(here.settle())

    (waits,) = bind(24)
    assert isinstance(waits, Wait)
    assert "insufficient GPU memory: need 24GB, available 16GB" in waits.message
    assert bind(24) == []
    (decision,) = bind(16)
    assert isinstance(decision, Admit)


ISLAND = "berth.dev/nvlink-island."
LINKED = {"berth.dev/parallelism": "ddp"}


@pytest.mark.parametrize(
    ("now", "asks", "want"),
    [
        pytest.param({"nvidia.com/gpu.product": "V100"}, {MODEL: "A100"}, "GPU model", id="the model"),
        pytest.param({f"{ISLAND}0": "0-1"}, LINKED, "in unified NVLink island", id="an island, smaller"),
        pytest.param({f"{ISLAND}0": "all"}, LINKED, "in unified NVLink island", id="an island, unreadable"),
        pytest.param(
            {"gpu-memory-gb": "many"}, {"berth.dev/gpu-memory-mib": "4096"}, "GPU memory", id="the memory"
        ),
        pytest.param(
            {"nvidia.com/gpu.replicas": "4"}, LINKED, "shared or partitioned", id="whole GPUs, now slices"
        ),
    ],
)
def test_a_label_that_changes_under_running_work_binds_later_work_alone(
    now: dict[str, str], asks: dict[str, str], want: str
) -> None:
    labels = {"gpu-memory-gb": "80", f"{ISLAND}0": "0-3", f"{ISLAND}1": "4-7"}
    here = world(node("n1", "A100", **labels)).put(workload("runs", asks))
    here.confirm(here.settle())

    changed = {"nvidia.com/gpu.product": "A100", **labels, f"{ISLAND}1": "", **now}
    kept = {key: value for key, value in changed.items() if value}
    here.put(node("n1", kept.pop("nvidia.com/gpu.product"), **kept))
    # What runs stays where it is: its pods are bound, and no label ends them.
    assert here.settle() == []
    assert here.get("runs").admission is not None

    (waits,) = here.put(workload("next", asks, at=1)).settle()
    assert isinstance(waits, Wait)
    assert want in waits.message
    # A Workload that asks for nothing of the kind is not concerned.
    (decision,) = here.put(workload("other", at=2)).settle()
    assert isinstance(decision, Admit)
    # As before the change: nothing of it is kept.
    here.put(node("n1", "A100", **labels))
    here.remove(Workload, here.get("runs").key)
    assert [type(one) for one in here.settle()] == [Admit]
