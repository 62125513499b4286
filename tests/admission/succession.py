"""What a replica knows that takes over: the cluster's objects, and the plan as the store gives it back."""

from __future__ import annotations

from typing import Any

from admission.engine.engine import Engine
from admission.engine.restore_plan import stored_value
from api.queueing import Namespace
from queues.reservations.plan import PlanTable, PlanValues, StoredPlan
from queues.store.plan_rows import read_rows, to_field, to_row


def stored(engine: Engine) -> dict[PlanTable, dict[str, bytes]]:
    """Return the rows of an engine's plan, as they are in a store."""
    return {
        table: {to_field(table, key): to_row(stored_value(value)) for key, value in entries.items()}
        for table, entries in engine.plan.tables().items()
    }


def read_back(engine: Engine) -> PlanValues:
    """Return an engine's plan after its way through the store. Fails where a row cannot be read."""
    plan, bad = read_rows(StoredPlan(rows=stored(engine)))
    assert bad == ()
    return plan


def successor(engine: Engine, *, settings: Any, now: float) -> Engine:
    """Return an engine that knows the same objects and has taken over the plan."""
    cache, other = engine._cache, Engine(settings)
    for name, labels in cache.specs.namespaces.items():
        other.objects.upsert(Namespace(name=name, labels=labels), now=now)
    for table in (
        cache.specs.flavors,
        cache.specs.topologies,
        cache.topology_cache.nodes.by_name,
        cache.specs.cohorts,
        cache.specs.cluster_queues,
        cache.specs.local_queues,
        cache.specs.policies,
    ):
        for value in table.values():
            other.objects.upsert(value, now=now)
    for workload in engine.workloads.workloads():
        other.objects.upsert(workload, now=now)
    other.plan.adopt(read_back(engine), now=now, is_whole=True)
    other.validate()
    return other
