"""Objects of the integration tests: queues, Jobs and Workloads as users and administrators write them.

CPUs are what runs out: every request is a whole number of them, so that sums can be read at a glance.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

KUEUE = "kueue.x-k8s.io/v1beta2"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
# Which simulated nodes a flavor leads to.
POOL = "berth.dev/node-pool"
# How long a simulated pod runs; LONG outlives every test.
RUNTIME = "berth.dev/simulated-runtime-seconds"
LONG = 3600.0


def kueue_object(kind: str, metadata: Object, spec: Object) -> Object:
    """Return an object of one of Kueue's kinds."""
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def quota(flavor: str, resource: str = "cpu", nominal: object = 4, **limits: object) -> Object:
    """Return the resource group of a ClusterQueue with one flavor and one resource."""
    resources = [{"name": resource, "nominalQuota": nominal, **limits}]
    return {"coveredResources": [resource], "flavors": [{"name": flavor, "resources": resources}]}


def make_job(
    name: str,
    *,
    queue: str | None = "main",
    cpus: object = 1,
    pods: int = 1,
    seconds: float = LONG,
    suspend: bool = True,
    labels: Object | None = None,
    annotations: Object | None = None,
    **pod_spec: Any,
) -> Object:
    """Return a Job whose pods run for `seconds` on a simulated node; `queue` None leaves it unmanaged."""
    named = {QUEUE_NAME: queue} if queue is not None else {}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpus}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {**named, **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {
            "suspend": suspend,
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {RUNTIME: f"{seconds:g}"}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    **pod_spec,
                },
            },
        },
    }


def make_workload(name: str, *, queue: str = "main", cpus: object = 1, priority: int = 0) -> Object:
    """Return a Workload as a program without any Job writes it."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpus}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return kueue_object(
        "Workload",
        {"name": name},
        {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    )


def said(type_: str, reason: str, message: str, *, status: str = "False") -> Object:
    """Return a condition as a program writes it."""
    at = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def condition(obj: Object | None, type_: str) -> Object:
    """Return a condition of an object's status, {} where it is not there."""
    conditions = (obj or {}).get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == type_), {})


def is_true(obj: Object | None, type_: str) -> bool:
    """Return whether a condition of an object's status is True."""
    return bool(condition(obj, type_).get("status") == "True")
