"""The shape of Kueue's own performance test with 15,000 Workloads, at any size.

5 cohorts of 6 ClusterQueues, each with 20 CPUs of its own and up to 100 borrowed; in each queue 70% small
Workloads (1 CPU, 0.2 s, priority 50), 20% medium (5 CPUs, 0.5 s, 100), 10% large (20 CPUs, 1 s, 200).
Source: Kueue, test/performance/scheduler/configs/baseline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COHORTS = 5
QUEUES_PER_COHORT = 6
NAMESPACE = "bench"
RUNTIME_ANNOTATION = "bench.berth.dev/runtime-seconds"


@dataclass(frozen=True, slots=True)
class Class:
    """One of the three sizes of Workloads; `share` of every ten have it."""

    name: str
    share: int
    cpus: int
    runtime_seconds: float
    priority: int


CLASSES = (
    Class("small", 7, 1, 0.2, 50),
    Class("medium", 2, 5, 0.5, 100),
    Class("large", 1, 20, 1.0, 200),
)


def queue_objects() -> Iterator[dict[str, Any]]:
    """Yield the Namespace, the ResourceFlavor, the ClusterQueues and the LocalQueues."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    yield _kueue("ResourceFlavor", "default", {})
    for cohort in range(COHORTS):
        for number in range(QUEUES_PER_COHORT):
            name = f"cq-{cohort}-{number}"
            yield _kueue("ClusterQueue", name, _queue_spec(f"cohort-{cohort}"))
            yield _local_queue(name)


def empty_queue_objects(name: str) -> Iterator[dict[str, Any]]:
    """Yield a ClusterQueue of 20 CPUs in no cohort, and its LocalQueue."""
    yield _kueue("ClusterQueue", name, _queue_spec(None))
    yield _local_queue(name)


def workload_objects(total: int) -> Iterator[dict[str, Any]]:
    """Yield `total` Workloads, for the queues in turn and with the classes mixed."""
    queues = [f"cq-{c}-{q}" for c in range(COHORTS) for q in range(QUEUES_PER_COHORT)]
    classes = [class_ for class_ in CLASSES for _ in range(class_.share)]
    for number in range(total):
        queue = queues[number % len(queues)]
        class_ = classes[(number // len(queues)) % len(classes)]
        workload = workload_object(
            f"w{number:05}-{class_.name}", queue, cpus=class_.cpus, priority=class_.priority
        )
        workload["metadata"]["annotations"] = {RUNTIME_ANNOTATION: str(class_.runtime_seconds)}
        yield workload


def workload_object(name: str, queue: str, *, cpus: int, priority: int = 0) -> dict[str, Any]:
    """Return a Workload of one pod."""
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": str(cpus)}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    workload = _kueue(
        "Workload",
        name,
        {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    )
    workload["metadata"]["namespace"] = NAMESPACE
    return workload


def _local_queue(name: str) -> dict[str, Any]:
    queue = _kueue("LocalQueue", name, {"clusterQueue": name})
    queue["metadata"]["namespace"] = NAMESPACE
    return queue


def _queue_spec(cohort: str | None) -> dict[str, Any]:
    quota = {"name": "cpu", "nominalQuota": "20"} | ({"borrowingLimit": "100"} if cohort else {})
    flavors = [{"name": "default", "resources": [quota]}]
    return {
        **({"cohortName": cohort} if cohort else {}),
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
    }


def _kueue(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
