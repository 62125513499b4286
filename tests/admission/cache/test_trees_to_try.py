"""Nodes that come free wake the trees whose Workloads they may help, and no others.

One tree: "full" may use 8 GPUs, which one Workload holds; "open" has quota for anything, and needs nodes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine.engine import Engine
from api.objects.common import WireSelector
from api.queueing import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from api.reasons import ConditionType
from api.workload import Condition, Workload
from queues.pending.pending_queue import PendingQueue
from tests.admission.flavors.test_topology_assigner import decide, make_workload
from tests.admission.placement.fleets import FLAVOR, GPU, LEVELS, make_node
from tests.builders import admits


def make_engine(strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO) -> Engine:
    """Return an engine with a node of 8 GPUs, which the Workload `holder` of "full" holds."""
    engine = Engine()
    engine.objects.upsert(Namespace(name="ns"), now=0.0)
    engine.objects.upsert(Topology(name="default", levels=LEVELS), now=0.0)
    engine.objects.upsert(ResourceFlavor(name=FLAVOR, topology_name="default"), now=0.0)
    quotas = {
        "full": ResourceQuota(nominal=8, borrowing_limit=0),
        "open": ResourceQuota(nominal=100, lending_limit=0),
    }
    for name, quota in quotas.items():
        flavors = (FlavorQuotas(name=FLAVOR, resources={GPU: quota}),)
        queue = ClusterQueue(
            name=name,
            cohort="team",
            queueing_strategy=strategy,
            namespace_selector=WireSelector(),
            resource_groups=(ResourceGroup(covered_resources=(GPU,), flavors=flavors),),
        )
        engine.objects.upsert(queue, now=0.0)
        engine.objects.upsert(LocalQueue(namespace="ns", name=name, cluster_queue=name), now=0.0)
    engine.objects.upsert(make_node("n0", "b0", "r0", 8), now=0.0)
    return engine


def in_queue(name: str, pods: int, *, queue: str) -> Workload:
    """Return a Workload that needs so many GPUs in one rack."""
    return replace(make_workload(name, pods), queue_name=queue)


def add_node(engine: Engine, name: str, rack: str, gpus: int) -> list[str]:
    """Add a node and return what is admitted for it."""
    engine.objects.upsert(make_node(name, "b0", rack, gpus), now=2.0)
    return admits(decide(engine))


def test_no_node_wakes_a_tree_whose_workloads_lack_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, holder, woken = make_engine(), in_queue("holder", 8, queue="full"), list[str]()
    assert admits(decide(engine, holder, in_queue("next", 8, queue="full"))) == ["holder"]
    assert add_node(engine, "n1", "r1", 8) == []
    wake = PendingQueue.wake

    def note(queue: PendingQueue, **how: object) -> bool:
        woken.append(queue.name)
        return wake(queue, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(PendingQueue, "wake", note)

    assert add_node(engine, "n2", "r1", 8) == []

    assert woken == []
    ended = Condition(type=ConditionType.FINISHED, status=True, at=2.0)
    assert admits(decide(engine, replace(holder, conditions={ConditionType.FINISHED: ended}))) == ["next"]


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_a_node_starts_a_workload_beside_others_that_lack_quota(strategy: QueueingStrategy) -> None:
    engine = make_engine(strategy)
    decide(engine, in_queue("holder", 8, queue="full"), in_queue("next", 8, queue="full"))
    assert admits(decide(engine, in_queue("large", 12, queue="open"))) == []
    # Too few for it, twice: after the first it is known what each Workload of the tree lacks.
    assert add_node(engine, "n1", "r1", 4) == add_node(engine, "n2", "r1", 4) == []

    assert add_node(engine, "n3", "r1", 4) == ["large"]


def test_a_node_starts_a_workload_that_came_after_all_others_lacked_quota() -> None:
    engine = make_engine()
    decide(engine, in_queue("holder", 8, queue="full"), in_queue("next", 8, queue="full"))
    assert add_node(engine, "n1", "r1", 4) == []
    assert admits(decide(engine, in_queue("large", 12, queue="open"))) == []

    assert add_node(engine, "n2", "r1", 8) == ["large"]
