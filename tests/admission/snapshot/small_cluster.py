"""Two queues of 24 devices in two trees, three nodes of 8, and three Workloads that run on two nodes each."""

from __future__ import annotations

from dataclasses import dataclass

from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.keys import HOSTNAME
from api.queueing import ResourceFlavor, Topology
from api.workload import TopologyRequest, Workload, WorkloadKey
from queues.quota.resources import FlavorResource
from tests.admission.preemption.test_capacity_holds import make_node
from tests.admission.preemption.test_lost_work import placed
from tests.builders import NAMESPACE, World, make_cluster_queue, make_pod_set, make_workload, reserved

GPU = FlavorResource("default", "gpu")
_NODES = ("n1", "n2", "n3")
# The Workload of queue b is on the nodes between those of queue a.
_RUNNING = {"v1": ("a", ("n1", "n3")), "v2": ("b", ("n2", "n1")), "v3": ("a", ("n3", "n2"))}


def key_of(name: str) -> WorkloadKey:
    return WorkloadKey(NAMESPACE, name)


def _running(name: str) -> Workload:
    queue, nodes = _RUNNING[name]
    pods = make_pod_set(count=2, requests={"gpu": 2}, topology_request=TopologyRequest(unconstrained=True))
    return placed(reserved(make_workload(name, queue=queue, pod_sets=(pods,), at=900), at=100), *nodes)


@dataclass
class SmallCluster:
    """The cluster, and a snapshot of it."""

    world: World
    snapshot: Snapshot

    @property
    def queues(self) -> dict[str, QueueState]:
        return dict(self.snapshot.queues)

    def held(self, name: str) -> HeldWorkload:
        return self.queues[_RUNNING[name][0]].held[key_of(name)]

    def taken(self, name: str) -> tuple[QueueState, HeldWorkload]:
        return self.queues[_RUNNING[name][0]], self.held(name)

    def usage(self) -> tuple[list[int], list[int]]:
        """Return the devices that are used of each queue, and those that are free on each node."""
        site = self.snapshot.topology_cache.topology("default")
        assert site is not None
        free = {name[-1]: site.free("gpu")[leaf] for leaf, name in site.names.items()}
        used = [self.queues[name].node.cell(GPU).usage for name in "ab"]
        return used, [free[name] for name in _NODES]


def make_cluster() -> SmallCluster:
    world = World().put(
        Topology(name="t", levels=(HOSTNAME,)),
        ResourceFlavor(name="default", topology_name="t"),
        *(make_node(name) for name in _NODES),
        *(make_cluster_queue(name, quota=24) for name in "ab"),
        *map(_running, _RUNNING),
    )
    return SmallCluster(world, world.engine._cache.snapshot())


PRESENT = [8, 4], [4, 4, 4]
