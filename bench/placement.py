"""Placing gangs in a topology: `python -m bench.placement`. No API server, no clock.

Trees of three levels (block, rack, host) of 640, 4,000 and 20,000 nodes of 8 GPUs, empty and 90% full; gangs
of 16 pods of 8 GPUs that need one rack. Printed are microseconds a gang once it is known what fits where
(the gang takes its places, and another one leaves), of the first look at a new shape, and of a node that
comes and goes. All are processor time, so that a busy machine does not show. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from admission.placement.fleet import Fleet, Place, Unplaced, place_of, taken_per_pod
from admission.placement.request import PlacementRequest
from api.node import NodeInfo
from api.queueing import ResourceFlavor, Topology
from api.workload import DomainCount, TopologyAssignment, TopologyRequest

GPU = "nvidia.com/gpu"
BLOCK, RACK, HOST = "block", "rack", "kubernetes.io/hostname"
NODES_A_RACK = 20
RACKS_A_BLOCK = 20
# Milliseconds a gang that are aimed at, by nodes.
TARGET_MS = {640: 0.1, 20_000: 0.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Microseconds: of a gang (median and 99th of 100), of a new shape, of a node change."""

    gang: float
    gang_p99: float
    shape: float
    node: float


def make_node(number: int) -> NodeInfo:
    """Return a node of 8 GPUs in its rack."""
    rack = number // NODES_A_RACK
    labels = {BLOCK: f"b{rack // RACKS_A_BLOCK:03}", RACK: f"r{rack:04}", HOST: f"n{number:05}"}
    return NodeInfo(name=labels[HOST], labels=labels, allocatable={GPU: 8, "pods": 110})


def make_fleet(nodes: int) -> Fleet:
    """Return an empty cluster."""
    fleet = Fleet()
    for number in range(nodes):
        fleet.put_node(make_node(number))
    flavor = ResourceFlavor(name="gpus", topology_name="default")
    fleet.set_flavors({"gpus": flavor}, {"default": Topology(name="default", levels=(BLOCK, RACK, HOST))})
    return fleet


def gang(pods: int, gpus: int, topology: TopologyRequest) -> PlacementRequest:
    """Return the request of a gang."""
    per_pod = taken_per_pod({GPU: gpus})
    return PlacementRequest(pod_set="main", flavor="gpus", count=pods, per_pod=per_pod, topology=topology)


def fill(fleet: Fleet, nodes: int, share: float, rng: random.Random) -> None:
    """Take whole nodes at random until `share` of them are taken."""
    taken = tuple(
        DomainCount(values=(f"n{number:05}",), count=1)
        for number in rng.sample(range(nodes), int(nodes * share))
    )
    where = TopologyAssignment(levels=(HOST,), domains=taken)
    fleet.use([Place(flavor="gpus", assignment=where, per_pod=taken_per_pod({GPU: 8}))], sign=1)


def measure(nodes: int, share: float, rounds: int) -> Figures:
    """Return what gangs cost on a cluster of that size and load."""
    rng = random.Random(1)
    fleet = make_fleet(nodes)
    fill(fleet, nodes, share, rng)
    request = gang(16, 8, TopologyRequest(preferred=RACK))
    shape = _microseconds(lambda: fleet.place([request]))
    held: list[Place] = []
    times = []
    for _ in range(rounds):
        began = time.process_time()
        found = fleet.place([request])
        if not isinstance(found, Unplaced):
            held.append(place_of(request, found["main"]))
            fleet.use(held[-1:], sign=1)
        times.append((time.process_time() - began) * 1e6)
        if len(held) > 1:
            fleet.use([held.pop(0)], sign=-1)
    node = make_node(nodes // 2)

    def flap() -> None:
        fleet.drop_node(node.name)
        fleet.put_node(node)
        fleet.place([request])

    change = _microseconds(flap)
    ranked = sorted(times)
    return Figures(
        gang=statistics.median(times), gang_p99=ranked[len(ranked) * 99 // 100], shape=shape, node=change
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[640, 4_000, 20_000])
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    print(f"{'nodes':>7} {'full':>5} {'gang µs':>9} {'p99':>8} {'new shape':>10} {'node change':>12}  target")
    for nodes in options.nodes:
        for share in (0.0, 0.9):
            row = measure(nodes, share, options.rounds)
            target = TARGET_MS.get(nodes)
            aim = f"{target * 1000:.0f} µs" if target else ""
            print(
                f"{nodes:>7} {share:>5.0%} {row.gang:>9.0f} {row.gang_p99:>8.0f} {row.shape:>10.0f} "
                f"{row.node:>12.0f}  {aim}"
            )


def _microseconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return (time.process_time() - began) * 1e6


if __name__ == "__main__":
    main()
