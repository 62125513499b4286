"""What promised starts cost: `python -m bench.promises`. No API server, no Redis, no clock.

    python -m bench.promises [--queues 100] [--workloads 5000] [--nodes 160] [--depth 5] [--ends 10]

The cluster is full and has nodes of 8 GPUs, in cohorts of ten ClusterQueues under conservative backfill.
The given number of Workloads is submitted, and in each ClusterQueue as many as the depth says get a
promised start on nodes of their own. First everything is decided; then some of the running work ends early,
and every promise is checked.

The output is the processor time per promise made, the processor time per end with everything that follows,
and the longest step without a pause, during which a controller handles no event. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from typing import Any

from admission.controller.runtime.gc_freeze import keep_collector_off_what_lives_long
from api.keys import EXPECTED_RUNTIME_SECONDS
from api.node import NodeInfo
from api.objects.common import WireSelector
from api.policy import AdmissionPolicy, Backfill, BackfillMode, Estimates
from api.queueing import (
    ClusterQueue,
    LocalQueue,
    Namespace,
    ResourceFlavor,
    ResourceQuota,
    Topology,
)
from api.workload import PodSet, TopologyRequest, Workload, WorkloadKey
from bench.cluster import NAMESPACE, STEP_TARGET_MS, Cluster, pod_template, resource_groups

_GPU = "nvidia.com/gpu"
_HOST = "kubernetes.io/hostname"
_PER_NODE = 8
_NODES_OF_RACK = 16
_QUEUES_OF_COHORT = 10


def cluster_objects(queues: int, nodes: int, *, backfill: Backfill) -> Iterator[Any]:
    """Yield nodes of 8 GPUs, ClusterQueues that share them equally, and a policy with this backfill."""
    yield Namespace(name=NAMESPACE)
    yield Topology(name="racks", levels=("rack", _HOST))
    yield ResourceFlavor(name="default", topology_name="racks")
    for number in range(nodes):
        labels = {_HOST: f"n{number:04}", "rack": f"r{number // _NODES_OF_RACK}"}
        yield NodeInfo(name=labels[_HOST], labels=labels, allocatable={_GPU: _PER_NODE, "pods": 110})
    quota = ResourceQuota(nominal=nodes * _PER_NODE // queues)
    groups = resource_groups(_GPU, "default", quota)
    for number in range(queues):
        yield ClusterQueue(
            name=_queue(number),
            cohort=f"cohort-{number // _QUEUES_OF_COHORT}",
            resource_groups=groups,
            namespace_selector=WireSelector(),
        )
        yield LocalQueue(namespace=NAMESPACE, name=_queue(number), cluster_queue=_queue(number))
    yield AdmissionPolicy(name="promises", backfill=backfill, estimates=Estimates())


def random_workload(chance: random.Random, number: int, queues: int) -> Workload:
    """Return a Workload of one pod, or of several on whole nodes of a rack, that declares its run time."""
    gpus = chance.choice((1, 1, 2, 4, _PER_NODE))
    pods = chance.choice((1, 1, 1, 2, 4)) if gpus == _PER_NODE else 1
    seconds = chance.choice((600, 1800, 3600, 7200, 20000)) * chance.uniform(0.8, 1.2)
    asked = TopologyRequest(required="rack") if pods > 1 else None
    template = pod_template(_GPU, str(gpus))
    pod_set = PodSet(name="main", count=pods, template=template, topology_request=asked)
    return Workload(
        key=WorkloadKey(NAMESPACE, f"w{number:05}"),
        uid=f"w{number:05}",
        created_at=0.0,
        pod_sets=(pod_set,),
        queue_name=_queue(chance.randrange(queues)),
        annotations={EXPECTED_RUNTIME_SECONDS: str(int(seconds))},
        generation=1,
    )


def _queue(number: int) -> str:
    return f"queue-{number:03}"


def main() -> None:
    """Print the cost of promises."""
    parser = argparse.ArgumentParser(prog="python -m bench.promises", description=__doc__.splitlines()[0])
    for name, default in (("queues", 100), ("workloads", 5000), ("nodes", 160), ("depth", 5), ("ends", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    wanted = parser.parse_args()
    cluster = Cluster()
    backfill = Backfill(mode=BackfillMode.CONSERVATIVE, reservation_depth=wanted.depth)
    for value in cluster_objects(wanted.queues, wanted.nodes, backfill=backfill):
        cluster.put(value, 0.0)
    chance = random.Random(0)
    for number in range(wanted.workloads):
        cluster.put(random_workload(chance, number, wanted.queues), 0.0)
    keep_collector_off_what_lives_long()
    cluster.reset()
    cluster.decide(0.0)
    promises = len(cluster.engine.promises.plan()[0])
    print(
        f"promises  {promises:>6} made, {len(cluster.running):,} running, {wanted.workloads:,} there: "
        f"{1000 * cluster.spent / max(1, promises):,.1f} ms each in total; longest step without a pause "
        f"{1000 * cluster.longest:.1f} ms (target {STEP_TARGET_MS:.0f})",
        flush=True,
    )
    cluster.reset()
    for number, key in enumerate(cluster.running[: wanted.ends]):
        cluster.end(key, 60.0 * (number + 1))
    each = 1000 * cluster.spent / max(1, wanted.ends)
    print(
        f"ends      {wanted.ends:>6} of running work, before their time: {each:,.0f} ms "
        f"each, with all that follows; longest step without a pause {1000 * cluster.longest:.1f} ms "
        f"(target {STEP_TARGET_MS:.0f})"
    )


if __name__ == "__main__":
    main()
