"""Placement of gangs in a topology: `python -m bench.placement`. No API server, no clock.

Trees of three levels (block, rack, host) with 640, 4,000 and 20,000 nodes of 8 GPUs, empty and 90% full.
Gangs of 16 pods with 8 GPUs that want one rack are placed in Kueue's way (a preferred level), by a policy's
size rules, and by its scores alone. The output is, in microseconds of processor time, which a busy machine
affects less: a gang whose shape is known (it takes its places, and another gang leaves), the first look at a
new shape, and the change of a node.

And one search: a gang that needs a rack of 2,000 nodes and has to preempt some of 700 running Workloads, in
Kueue's order and by lost work. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from msgspec import structs

from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long
from admission.decisions.decision import Evict
from admission.engine.engine import Engine
from admission.engine.updates import Upsertable
from admission.hardware.fit import request_of
from admission.hardware.pod_hardware import read_pod
from admission.hardware.rules import HardwareRules
from admission.placement.topology.place import Place, place_of, taken_per_pod
from admission.placement.topology.placement_options import PlacementOptions
from admission.placement.topology.request import PlacementRequest
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.node import NodeInfo
from api.objects.common import WireSelector
from api.policy import AdmissionPolicy, DomainRules, PreemptionRules
from api.queueing import (
    ClusterQueue,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceQuota,
    Topology,
)
from api.workload import (
    Admission,
    DomainCount,
    PodSet,
    PodSetAssignment,
    TopologyAssignment,
    TopologyRequest,
    Workload,
    WorkloadKey,
)
from bench.cluster import STEP_TARGET_MS, admitted, pod_template, resource_groups

GPU = "nvidia.com/gpu"
BLOCK, RACK, HOST = "block", "rack", "kubernetes.io/hostname"
NODES_A_RACK = 20
RACKS_A_BLOCK = 20
GANG = 16
# The targets in milliseconds for a gang, by number of nodes, and for the search for victims.
TARGET_MS = {640: 0.1, 20_000: 0.5}
# How many times as long a gang may take that asks for all that it can of hardware.
HARDWARE_TARGET = 1.5
ON_HARDWARE = " + hw"
SEARCH_TARGET_MS = 100
SEARCH_NODES, CANDIDATES = 2_000, 700

_HARDWARE = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu-topology": "nvswitch",
}
_ASKED = {
    "accelerator.sched.io/gpu-model": "NVIDIA-A100-SXM4-80GB",
    "berth.dev/gpu-memory-mib": "600000",
    "berth.dev/gpu-generation": "ampere",
    "berth.dev/gpu-interconnect": "nvswitch",
    "berth.dev/parallelism": "ddp",
}
_PER_POD = taken_per_pod({GPU: 8})
_RULES = DomainRules(max_nodes_per_leaf=GANG, max_gpus_per_leaf=8 * GANG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Microseconds for a gang (median and 99th percentile), a new shape, its longest step, a node change."""

    gang: float
    gang_p99: float
    shape: float
    longest_step: float
    node: float


def make_node(number: int) -> NodeInfo:
    """Return a node with 8 GPUs, in its rack."""
    rack = number // NODES_A_RACK
    places = {BLOCK: f"b{rack // RACKS_A_BLOCK:03}", RACK: f"r{rack:04}", HOST: f"n{number:05}"}
    labels = {**places, **_HARDWARE}
    return NodeInfo(name=labels[HOST], labels=labels, allocatable={GPU: 8, "pods": 110})


def make_fleet(nodes: int) -> TopologyCache:
    """Return the cache of a cluster without Workloads."""
    topology_cache = TopologyCache()
    for number in range(nodes):
        topology_cache.put_node(make_node(number))
    flavor = ResourceFlavor(name="gpus", topology_name="default")
    topology_cache.set_flavors(
        {"gpus": flavor}, {"default": Topology(name="default", levels=(BLOCK, RACK, HOST))}
    )
    return topology_cache


def gangs() -> dict[str, PlacementRequest]:
    """Return a gang for each way of placement, without and with all that pods may ask of hardware."""
    plain = PlacementRequest(pod_set="main", flavor="gpus", count=GANG, per_pod=_PER_POD)
    ways = {
        "Kueue's": structs.replace(plain, topology=TopologyRequest(preferred=RACK)),
        "by rules": structs.replace(plain, options=PlacementOptions(rules=_RULES, gpus_per_pod=8)),
        "by score": structs.replace(plain, options=PlacementOptions(gpus_per_pod=8)),
    }
    need = request_of(read_pod(_ASKED, {}), 8, HardwareRules(), "gpu-aware-scheduler")
    asking = structs.replace(plain.rules, hardware=need)
    found = {}
    # Next to each other, so that both are measured under the same load of the machine.
    for way, request in ways.items():
        found[way] = request
        found[f"{way}{ON_HARDWARE}"] = structs.replace(request, rules=asking)
    return found


def fill(
    topology_cache: TopologyCache, nodes: int, share: float, *, by_rack: bool, rng: random.Random
) -> None:
    """Take whole nodes at random until `share` of them are taken. `by_rack`: take whole racks."""
    width = NODES_A_RACK if by_rack else 1
    chosen = rng.sample(range(0, nodes, width), int(nodes * share) // width)
    taken = (number + offset for number in chosen for offset in range(width))
    where = TopologyAssignment(
        levels=(HOST,), domains=tuple(DomainCount(values=(f"n{number:05}",), count=1) for number in taken)
    )
    topology_cache.usage.use([Place(flavor="gpus", assignment=where, per_pod=_PER_POD)], sign=1)


def measure(nodes: int, share: float, request: PlacementRequest, rounds: int) -> Figures:
    """Return the cost of gangs in a cluster of this size and load."""
    rng = random.Random(1)
    topology_cache = make_fleet(nodes)
    by_rack = request.options is not None and request.options.has_size_rules
    fill(topology_cache, nodes, share, by_rack=by_rack, rng=rng)
    # The controller does the same once it has read the cluster.
    keep_collector_off_what_lives_long()
    times = [time.process_time()]
    times += (time.process_time() for _ in topology_cache.preparing([request]))
    topology_cache.place([request])
    times.append(time.process_time())
    longest = max(after - before for before, after in pairwise(times)) * 1e6
    shape = (times[-1] - times[0]) * 1e6
    held: list[Place] = []
    times.clear()
    for _ in range(rounds):
        began = time.process_time()
        found = topology_cache.place([request])
        if not isinstance(found, Unplaced):
            held.append(place_of(request, found["main"]))
            topology_cache.usage.use(held[-1:], sign=1)
        times.append((time.process_time() - began) * 1e6)
        if len(held) > 1:
            topology_cache.usage.use([held.pop(0)], sign=-1)
    node = make_node(nodes // 2)

    def flap() -> None:
        topology_cache.drop_node(node.name)
        topology_cache.put_node(node)
        topology_cache.place([request])

    changes = [_microseconds(flap) for _ in range(9)]
    ranked = sorted(times)
    return Figures(
        gang=statistics.median(times),
        gang_p99=ranked[len(ranked) * 99 // 100],
        shape=shape,
        longest_step=longest,
        node=statistics.median(changes),
    )


def make_busy_engine(*, by_loss: bool) -> Engine:
    """Return an engine whose 2,000 nodes are in use by 700 Workloads of 2 to 4 nodes each."""
    engine = Engine()
    values: list[Upsertable] = [
        Namespace(name="bench"),
        Topology(name="default", levels=(BLOCK, RACK, HOST)),
        ResourceFlavor(name="gpus", topology_name="default"),
        ClusterQueue(
            name="queue",
            namespace_selector=WireSelector(),
            resource_groups=resource_groups(GPU, "gpus", ResourceQuota(nominal=8 * SEARCH_NODES)),
            preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY),
        ),
        LocalQueue(namespace="bench", name="queue", cluster_queue="queue"),
        *([AdmissionPolicy(name="loss", preemption=PreemptionRules())] if by_loss else []),
        *(make_node(number) for number in range(SEARCH_NODES)),
    ]
    for value in values:
        engine.objects.upsert(value, now=0.0)
    rng = random.Random(2)
    # Most Workloads are on neighbouring nodes, as if placed together; every third is on scattered ones.
    free = list(range(SEARCH_NODES))
    for index in range(CANDIDATES):
        size = min(len(free), 2 + (index % 7 > 0) * (1 + (index % 7 > 5)))
        first = rng.randrange(max(1, len(free) - size))
        hosts = [free.pop(first if index % 3 else rng.randrange(len(free))) for _ in range(size)]
        engine.objects.upsert(_running(f"running-{index:03}", hosts, priority=index % 5), now=0.0)
    return engine


def _workload(name: str, pods: int, priority: int) -> Workload:
    template = pod_template(GPU, "8")
    topology = TopologyRequest(required=RACK)
    return Workload(
        key=WorkloadKey("bench", name),
        uid=name,
        created_at=0.0,
        queue_name="queue",
        priority=priority,
        pod_sets=(PodSet(name="main", count=pods, template=template, topology_request=topology),),
    )


def _running(name: str, hosts: list[int], priority: int) -> Workload:
    workload = _workload(name, len(hosts), priority)
    domains = tuple(DomainCount(values=(f"n{host:05}",), count=1) for host in sorted(hosts))
    assignment = PodSetAssignment(
        name="main",
        count=len(hosts),
        flavors={GPU: "gpus"},
        usage={GPU: 8 * len(hosts)},
        topology=TopologyAssignment(levels=(HOST,), domains=domains),
    )
    admission = Admission(cluster_queue="queue", pod_sets=(assignment,))
    return admitted(workload, admission, float(-priority))


def search(*, by_loss: bool) -> str:
    """Return a line with the time of a cycle whose head needs a rack that others have to leave."""
    engine = make_busy_engine(by_loss=by_loss)
    engine.objects.upsert(_workload("urgent", GANG, 9), now=100_000.0)
    engine.wake_heads(now=100_000.0)
    cycle = engine.begin_cycle(now=100_000.0)
    times = [time.process_time()]
    while cycle.step():
        times.append(time.process_time())
    longest = 1000 * max((after - before for before, after in pairwise(times)), default=0.0)
    spent = 1000 * (times[-1] - times[0])
    victims = sum(isinstance(one, Evict) for one in cycle.decisions)
    order = "by loss" if by_loss else "in Kueue's order"
    return (
        f"{CANDIDATES} candidates on {SEARCH_NODES:,} nodes, {order}: {spent:.0f} ms for {victims} victims "
        f"(target {SEARCH_TARGET_MS} ms; Kueue: up to 40 s), longest step {longest:.1f} ms "
        f"(target {STEP_TARGET_MS:.0f} ms)"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[640, 4_000, 20_000])
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    print(
        f"{'nodes':>7} {'full':>5} {'way':<13} {'gang µs':>8} {'p99':>7} {'new shape':>10} {'step':>7} "
        f"{'node change':>12}"
    )
    for nodes in options.nodes:
        for share in (0.0, 0.9):
            plain = None
            for way, request in gangs().items():
                row = measure(nodes, share, request, options.rounds)
                target = TARGET_MS.get(nodes)
                aim = f"  target {target * 1000:.0f} µs" if target else ""
                if way.endswith(ON_HARDWARE) and plain is not None:
                    aim = f"  {row.gang / plain.gang:.2f} times, target {HARDWARE_TARGET}"
                plain = row
                print(
                    f"{nodes:>7} {share:>5.0%} {way:<13} {row.gang:>8.0f} {row.gang_p99:>7.0f} "
                    f"{row.shape:>10.0f} {row.longest_step:>7.0f} {row.node:>12.0f}{aim}"
                )
    for by_loss in (False, True):
        print(search(by_loss=by_loss))


def _microseconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return (time.process_time() - began) * 1e6


if __name__ == "__main__":
    main()
