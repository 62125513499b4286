"""Laws of hardware, for any nodes and any pods.

- whatever node admission assigns, the scheduler extender does not refuse it when the pods come one by one,
  in whatever order those of several Workloads come that were admitted at once;
- what no node can ever run is Misconfigured, and nothing else is;
- Workloads of equal shape need the same hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from admission.decisions.decision import Admit, Evict, Wait
from admission.extender.book import NodeBook
from admission.extender.facts import PodFacts
from admission.extender.profiles import refusals
from admission.flavors.hardware_needs import hardware_need
from admission.hardware.fit import HardwareRequest, misfit, request_of
from admission.hardware.gpu_shares import can_hold
from admission.hardware.node_hardware import node_hardware
from admission.hardware.rules import BUILT_IN, HardwareRules
from api.jobs.resource_requests import gpus_of, pod_requests, pod_set_requests
from api.keys import ALIASES, HARDWARE_KEYS
from api.node import NodeInfo, PodUsage
from api.objects.common import Meta
from api.queueing import (
    FlavorQuotas,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from api.reasons import PendingReason
from api.workload import PodSet, TopologyRequest, Workload
from queues.pending.shape import shape_of
from tests.builders import World, finished, make_cluster_queue, make_template, make_workload

GPU, HOST = "nvidia.com/gpu", "kubernetes.io/hostname"
# A cycle tries one head of each ClusterQueue: this many Workloads may get places on the same snapshot.
QUEUES = ("queue", "second", "third", "fourth")
RULES = HardwareRules()
NODE_LABELS: dict[str, tuple[str, ...]] = {
    "nvidia.com/gpu.product": ("A100", "V100"),
    "nvidia.com/gpu.memory": ("16160", "81559", "odd"),
    "nvidia.com/gpu-topology": ("nvlink", "nvswitch", "pcie"),
    "gpu-interconnect": ("nvlink", "pcie"),
    "gpu-generation": ("v100", "a100", "?"),
}
ISLANDS: tuple[dict[str, str], ...] = (
    {},
    {"berth.dev/nvlink-island.0": "0-3", "berth.dev/nvlink-island.1": "4-7"},
    {f"berth.dev/nvlink-island.{one}": "2" for one in range(4)},
    {"berth.dev/nvlink-island.0": "0-1", "berth.dev/nvlink-island.1": "2-7"},
    {"berth.dev/nvlink-island.0": "0-2", "berth.dev/nvlink-island.1": "2_4-6"},
    {"berth.dev/nvlink-island.0": "0-4", "berth.dev/nvlink-island.1": "5-8"},
)
ASKED: dict[str, tuple[str, ...]] = {
    "accelerator.sched.io/gpu-model": ("a100", "V100", "H100"),
    "berth.dev/gpu-memory-mib": ("15000", "30000", "160000", "much"),
    "berth.dev/gpu-milli": ("250", "400", "600", "1000", "0", "half"),
    "berth.dev/gpu-generation": ("ampere", "7", "h100"),
    "berth.dev/gpu-interconnect": ("nvlink", "nvswitch"),
    "berth.dev/parallelism": ("ddp", "tensor", "none"),
    "berth.dev/workload-type": ("training", "inference"),
    "workload-type": ("CPU-intensive", "GPU-intensive", "inference"),
}


def some(values: dict[str, tuple[str, ...]], least: int = 0) -> st.SearchStrategy[dict[str, str]]:
    """Return a strategy for some of the keys, each with one of its values."""
    keys = st.sets(st.sampled_from(sorted(values)), min_size=least, max_size=3 if least == 0 else None)
    return keys.flatmap(
        lambda chosen: st.fixed_dictionaries({key: st.sampled_from(values[key]) for key in sorted(chosen)})
    )


@st.composite
def nodes(draw: st.DrawFn) -> list[NodeInfo]:
    found = []
    for index in range(draw(st.integers(1, 4))):
        labels = {HOST: f"n{index}", **draw(some(NODE_LABELS, least=3)), **draw(st.sampled_from(ISLANDS))}
        amounts = {GPU: 8, "cpu": draw(st.sampled_from([1000, 64_000])), "pods": 110}
        found.append(NodeInfo(name=f"n{index}", labels=labels, allocatable=amounts))
    return found


@st.composite
def workloads(draw: st.DrawFn) -> list[Workload]:
    found = []
    for index in range(draw(st.integers(1, 6))):
        gpus = draw(st.sampled_from([1, 2, 3, 4, 8]))
        template = make_template({GPU: gpus})
        assert template.spec is not None
        spec = msgspec.structs.replace(
            template.spec, scheduler_name=draw(st.sampled_from(["", "other", *BUILT_IN]))
        )
        meta = Meta(annotations=draw(some(ASKED)), labels=draw(some(ASKED)))
        pods = PodSet(
            name="main",
            count=draw(st.integers(1, 4)),
            template=msgspec.structs.replace(template, spec=spec, metadata=meta),
        )
        job = draw(some(ASKED)) if draw(st.booleans()) else {}
        found.append(make_workload(f"w{index}", pod_sets=(pods,), annotations=job, at=index))
    return found


def cluster(fleet: Sequence[NodeInfo]) -> World:
    world = World().put(Topology(name="hosts", levels=(HOST,)), *fleet)
    world.put(ResourceFlavor(name="gpu", topology_name="hosts"))
    quota = {name: ResourceQuota(nominal=10_000) for name in (GPU, "nvidia.com/gpu.shared")}
    quota["cpu"] = ResourceQuota(nominal=10_000_000)
    group = ResourceGroup(
        covered_resources=tuple(quota), flavors=(FlavorQuotas(name="gpu", resources=quota),)
    )
    return world.put(*(make_cluster_queue(name, groups=(group,)) for name in QUEUES))


def as_pod(workload: Workload, number: int) -> PodFacts:
    """Return a pod of the Workload as kube-scheduler sends it to the extender."""
    template = workload.pod_sets[0].template
    assert template.metadata is not None
    assert template.spec is not None
    own, labels = template.metadata.annotations or {}, template.metadata.labels or {}
    said = own.keys() | labels.keys()
    # As the start of a Job writes it: what the Job alone asks.
    of_job = {
        key: value
        for key, value in workload.annotations.items()
        if key in HARDWARE_KEYS and key not in ALIASES.values() and not said & {key, ALIASES.get(key)}
    }
    return PodFacts(
        namespace="team",
        name=f"{workload.key.name}-{number}",
        annotations={**own, **of_job},
        labels=labels,
        requests=pod_requests(template.spec),
    )


def need_of(workload: Workload, pod: PodFacts) -> HardwareRequest | None:
    spec = workload.pod_sets[0].template.spec
    assert spec is not None
    return request_of(pod.hardware, pod.gpus, RULES, spec.scheduler_name or "")


def placed(decision: Admit) -> Iterator[str]:
    (pod_set,) = decision.admission.pod_sets
    assert pod_set.topology is not None
    for domain in pod_set.topology.domains:
        yield from [domain.values[-1]] * domain.count


@given(nodes(), workloads(), st.data())
def test_no_pod_is_refused_where_it_was_sent(
    fleet: list[NodeInfo], asking: list[Workload], data: st.DataObject
) -> None:
    send(fleet, asking, data)


@given(
    st.sampled_from(ISLANDS[1:]),
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=4, max_size=6),
    st.data(),
)
def test_no_linked_pod_is_refused_where_it_was_sent(
    islands: dict[str, str], sizes: list[tuple[int, bool]], data: st.DataObject
) -> None:
    # Small pods of several sizes break up islands before the node is full.
    send([eight_gpus(islands)], linked_or_not(sizes), data)


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([(3, True), (3, True), (2, True)], id="of three linked pods the last finds no island"),
        pytest.param(
            [(2, True), (3, False), (3, False)], id="a pod would break the island of one that comes later"
        ),
        pytest.param([(3, True), (2, False), (3, True)], id="as if the linked pods came last"),
    ],
)
def test_islands_are_given_once_in_one_instant(sizes: list[tuple[int, bool]]) -> None:
    world = cluster([eight_gpus(ISLANDS[1])])
    for queue, workload in zip(QUEUES, linked_or_not(sizes), strict=False):
        world.put(replace(workload, queue_name=queue))
    world.settle()

    assert world.holding().keys() == {"w0", "w1"}


@pytest.mark.parametrize("is_recorded", [False, True], ids=["by number", "by the GPUs that pods record"])
def test_a_linked_pod_preempts_what_uses_its_island(is_recorded: bool) -> None:
    world = cluster([eight_gpus(ISLANDS[1])])
    preempting = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world.put(replace(world.engine._cache.queues["queue"].spec, preemption=preempting))
    *running, first = linked_or_not([(4, True), (4, True), (4, True)])
    for place, workload in enumerate(running):
        world.put(replace(workload, queue_name="queue"))
        world.confirm(world.settle())
        if is_recorded:
            ids = tuple(range(4 * place, 4 * place + 4))
            world.put(PodUsage(namespace="team", name=f"p{place}", gpu_node="n", gpu_ids=ids, gpus=4))
    decisions = world.put(replace(first, queue_name="queue", priority=1)).settle()

    assert len([one for one in decisions if isinstance(one, Evict)]) == 1


@pytest.mark.parametrize(
    ("workers", "leader", "model"),
    [
        pytest.param((3, True), (2, False), "", id="a leader that would break the workers' islands"),
        pytest.param((3, False), (2, True), "", id="a leader that finds no island beside the workers"),
        pytest.param((1, True), (5, True), "", id="a leader that no island holds"),
        pytest.param((1, True), (1, False), "A100", id="a leader that needs another model"),
    ],
)
def test_a_group_starts_where_its_leader_has_the_gpus_that_it_needs(
    workers: tuple[int, bool], leader: tuple[int, bool], model: str
) -> None:
    first = eight_gpus(ISLANDS[1] | {"nvidia.com/gpu.product": "V100"})
    other = eight_gpus({"nvidia.com/gpu-topology": "nvswitch", "nvidia.com/gpu.product": "A100"})
    # Both have as much free, and then the first by name is taken.
    world = cluster([first, replace(other, name="o", labels={**other.labels, HOST: "o"})])
    sets = [one.pod_sets[0] for one in linked_or_not([workers, leader])]
    asked = sets[1].template.metadata
    assert asked is not None
    asked = Meta(annotations={**(asked.annotations or {}), "accelerator.sched.io/gpu-model": model})
    topology = TopologyRequest(required=HOST, pod_set_group="gang")
    pod_sets = (
        replace(sets[0], name="workers", count=2, topology_request=topology),
        replace(
            sets[1],
            name="leader",
            topology_request=topology,
            template=msgspec.structs.replace(sets[1].template, metadata=asked),
        ),
    )
    (decision,) = world.put(make_workload("gang", pod_sets=pod_sets)).settle()

    assert isinstance(decision, Admit)
    places = [one.topology for one in decision.admission.pod_sets]
    assert {domain.values[-1] for place in places if place for domain in place.domains} == {"o"}


def eight_gpus(islands: dict[str, str]) -> NodeInfo:
    amounts = {GPU: 8, "cpu": 64_000, "pods": 110}
    return NodeInfo(name="n", labels={HOST: "n", **islands}, allocatable=amounts)


def linked_or_not(sizes: Sequence[tuple[int, bool]]) -> list[Workload]:
    """Return a Workload with one pod for each number of GPUs, linked or not."""
    found = []
    for index, (gpus, is_linked) in enumerate(sizes):
        keys = {"berth.dev/parallelism": "ddp"} if is_linked else {}
        template = msgspec.structs.replace(make_template({GPU: gpus}), metadata=Meta(annotations=keys))
        found.append(make_workload(f"w{index}", pod_sets=(PodSet(name="main", count=1, template=template),)))
    return found


@given(
    st.sampled_from([{}, {"nvidia.com/gpu.memory": "40000"}, *ISLANDS[1:]]),
    st.lists(
        st.tuples(st.sampled_from([1, 2, 3]), st.integers(0, 1000), st.sampled_from(["", "15000", "30000"])),
        min_size=6,
        max_size=14,
    ),
    st.data(),
)
def test_no_share_is_refused_where_it_was_sent(
    labels: dict[str, str], sizes: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    node = NodeInfo(name="n", labels={HOST: "n", **labels}, allocatable={GPU: 4, "cpu": 64_000, "pods": 110})
    slots = {**node.allocatable, "nvidia.com/gpu.shared": 40, GPU: 4}
    asking = []
    for index, (gpus, milli, mib) in enumerate(sizes):
        keys = {"berth.dev/gpu-milli": str(milli), "berth.dev/gpu-memory-mib": mib} if milli else {}
        asked = {"nvidia.com/gpu.shared": 1} if milli else {GPU: gpus}
        template = msgspec.structs.replace(make_template(asked), metadata=Meta(annotations=keys))
        asking.append(make_workload(f"w{index}", pod_sets=(PodSet(name="main", count=1, template=template),)))
    count = {"nvidia.com/gpu.count": "4"}
    send([replace(node, labels={**node.labels, **count}, allocatable=slots)], asking, data)


@given(
    st.sampled_from([{"nvidia.com/gpu.memory": "16384"}, {"nvidia.com/gpu.memory": "40960"}, {}]),
    st.lists(
        st.tuples(
            st.sampled_from([0, 0, 0, 1]),
            st.sampled_from(["16384", "30000", "8000"]),
            st.sampled_from(["inference", "inference", "training"]),
            st.sampled_from(["ai-scheduler", "ai-scheduler", ""]),
        ),
        min_size=6,
        max_size=10,
    ),
    st.data(),
)
def test_no_inference_is_refused_where_it_was_sent(
    labels: dict[str, str], asked: list[tuple[int, str, str, str]], data: st.DataObject
) -> None:
    amounts = {GPU: 2, "cpu": 64_000, "pods": 110}
    fleet = [NodeInfo(name="n", labels={HOST: "n", **labels}, allocatable=amounts)]
    send(fleet, [serving(f"w{index}", *one) for index, one in enumerate(asked)], data)


def serving(name: str, gpus: int, mib: str, kind: str, scheduler: str = "ai-scheduler") -> Workload:
    """Return a Workload of one pod that uses GPU memory, and may request no GPU."""
    template = make_template({GPU: gpus} if gpus else {"cpu": 1})
    assert template.spec is not None
    template = msgspec.structs.replace(
        template,
        spec=msgspec.structs.replace(template.spec, scheduler_name=scheduler),
        metadata=Meta(annotations={"berth.dev/gpu-memory-mib": mib, "berth.dev/workload-type": kind}),
    )
    return make_workload(name, pod_sets=(PodSet(name="main", count=1, template=template),))


def send(fleet: list[NodeInfo], asking: list[Workload], data: st.DataObject) -> None:
    """Admit the Workloads, up to four at an instant, and bind their pods where the extender is asked."""
    world, book = cluster(fleet), NodeBook()
    for node in fleet:
        book.put_node(node)
    of_workload: dict[str, list[PodFacts]] = {}
    left = [*asking]
    while left:
        together = [left.pop(0) for _ in range(min(len(left), data.draw(st.integers(1, len(QUEUES)))))]
        for queue, workload in zip(QUEUES, together, strict=False):
            world.put(replace(workload, queue_name=queue))
        decisions = world.settle()
        world.confirm(decisions)
        # The Jobs start in any order, and so do their pods.
        sent = [
            (world.get(decision.key.name), number, host)
            for decision in decisions
            if isinstance(decision, Admit)
            for number, host in enumerate(placed(decision))
        ]
        for workload, number, host in data.draw(st.permutations(sent)):
            pod = as_pod(workload, number)
            need = need_of(workload, pod)
            refused = {} if need is None else refusals(need, {host: book.view(host)})
            assert refused == {}, (workload.key.name, number, refused)
            book.bind(pod, host)
            assert holds(book, host), (host, "has more shares than its GPUs hold")
            of_workload.setdefault(workload.key.name, []).append(pod)
        record_gpus(world, book, data)
        done = data.draw(st.sampled_from(["", *sorted(of_workload)]))
        if done:
            for pod in of_workload.pop(done):
                book.release((pod.namespace, pod.name))
                world.remove(PodUsage, (pod.namespace, pod.name))
            world.put(finished(world.get(done)))


def record_gpus(world: World, book: NodeBook, data: st.DataObject) -> None:
    """Let some pods record which GPUs of their node they have, as the node agent writes it."""
    for host, pods in [(host, list(pods.values())) for host, pods in book._pods.items()]:
        view = book.view(host)
        assert view is not None
        taken = {one for pod in pods for one in pod.gpu_ids}
        free = [one for one in range(view.hardware.gpus) if one not in taken]
        for pod in pods:
            if pod.gpu_ids or pod.on_gpus.share or not data.draw(st.booleans()):
                continue
            # Some record GPUs that others have recorded already.
            some = free if data.draw(st.booleans()) else range(view.hardware.gpus)
            ids = tuple(data.draw(st.permutations(some))[: pod.gpus])
            free = [one for one in free if one not in ids]
            known = replace(
                pod, annotations={**pod.annotations, "berth.dev/gpu-ids": ",".join(map(str, ids))}
            )
            book.bind(known, host)
            world.put(
                PodUsage(namespace="team", name=pod.name, gpu_node=host, gpu_ids=ids, gpus=known.on_gpus.gpus)
            )


def holds(book: NodeBook, host: str) -> bool:
    """Return whether there is any way to give the pods of a node their GPUs."""
    view = book.view(host)
    assert view is not None
    kind, pods = view.hardware, view.load.pods
    is_shared = any(pod.share is not None for pod in pods)
    return not is_shared or can_hold(kind.devices, kind.memory_mib, pods)


@given(nodes(), workloads())
def test_what_no_node_can_run_is_misconfigured_and_nothing_else(
    fleet: list[NodeInfo], asking: list[Workload]
) -> None:
    kinds = [node_hardware(node) for node in fleet]
    for workload in asking:
        world = cluster(fleet)
        (decision,) = world.put(workload).settle()
        queue = world.engine._cache.queues["queue"]
        need = hardware_need(
            world.engine._cache.snapshot(),
            queue,
            workload,
            workload.pod_sets[0],
            gpus_of(as_pod(workload, 0).requests),
        )
        never = need is not None and all(misfit(need, kind) is not None for kind in kinds)
        is_misconfigured = isinstance(decision, Wait) and decision.reason is PendingReason.MISCONFIGURED
        assert is_misconfigured == never


@given(workloads(), some(ASKED), st.sampled_from(["annotations", "labels", "job", "scheduler"]))
def test_workloads_of_equal_shape_need_the_same_hardware(
    asking: list[Workload], keys: dict[str, str], where: str
) -> None:
    world = cluster([])
    queue, snapshot = world.engine._cache.queues["queue"], world.engine._cache.snapshot()

    def answer(workload: Workload) -> tuple[bytes, HardwareRequest | None]:
        (pod_set,) = workload.pod_sets
        asked = pod_set_requests(pod_set)
        need = hardware_need(snapshot, queue, workload, pod_set, gpus_of(asked.on_node))
        return shape_of(workload, (asked,)), need

    for workload in asking:
        (shape, need), (other_shape, other_need) = answer(workload), answer(asks(workload, keys, where))
        assert shape != other_shape or need == other_need


def asks(workload: Workload, keys: dict[str, str], where: str) -> Workload:
    """Return the Workload with these keys, or another scheduler name, in one place."""
    if where == "job":
        return replace(workload, annotations=keys)
    template = workload.pod_sets[0].template
    assert template.metadata is not None
    assert template.spec is not None
    change: dict[str, Any] = (
        {"spec": msgspec.structs.replace(template.spec, scheduler_name="gpu-aware-scheduler")}
        if where == "scheduler"
        else {"metadata": msgspec.structs.replace(template.metadata, **{where: keys})}
    )
    changed = replace(workload.pod_sets[0], template=msgspec.structs.replace(template, **change))
    return replace(workload, pod_sets=(changed,))


def test_every_key_that_is_asked_for_is_tried_here() -> None:
    assert ASKED.keys() == HARDWARE_KEYS
