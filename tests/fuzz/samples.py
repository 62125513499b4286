"""One cluster whose objects belong together, with many fields set: what the strategies change.

A changed object meets the others: its queue, its flavor, its nodes. The objects of `good_cluster` have
nothing to do with them, so whatever is changed, the Workload in it is admitted.
"""

from __future__ import annotations

from typing import Any

from api import keys
from tests.admission import podworld, world
from tests.api.samples import FULL, NOW, full

Object = dict[str, Any]
NAMESPACE = "team"
_RACK = "cloud.example.com/rack"
_HOST = "kubernetes.io/hostname"
# Texts of users and of Berth, which are parsed on every change of their object.
_ANNOTATIONS = {
    keys.CHECKPOINT_TIME: NOW,
    keys.CHECKPOINT_STEP: "100",
    keys.CHECKPOINT_SAVE_SECONDS: "20",
    keys.CHECKPOINT_RESTART_SECONDS: "30",
    keys.CHECKPOINT_INTERVAL_SECONDS: "600",
    keys.CHECKPOINT_ON_SIGTERM: "true",
    keys.CHECKPOINT_MEASURED: '{"save": [1.0, 2.0], "restart": [3.0]}',
    keys.EVICTION: '{"reason": "Preempted", "message": "m", "at": 1}',
    keys.EXPECTED_COMPLETION_TIME: NOW,
    keys.GPU_COUNT: "8",
    keys.MIN_REPLICAS: "1",
    keys.PRIORITY_BOOST: "-5",
    keys.REPLICA_OF: "app",
    keys.RESERVATION: "launch",
    keys.WORKLOAD_TYPE: "training",
    "berth.dev/expected-runtime-seconds": "600",
    "berth.dev/fence": "3",
}


def cluster() -> tuple[Object, ...]:
    """Return the objects of all kinds, those first that others name."""
    return (
        _core("Namespace", NAMESPACE, labels={"team": "vision", "kubernetes.io/metadata.name": NAMESPACE}),
        _core("PriorityClass", "high", version="scheduling.k8s.io/v1", value=1000, globalDefault=False),
        _core("RuntimeClass", "nvidia", version="node.k8s.io/v1", overhead={"podFixed": {"cpu": "100m"}}),
        _limit_range(),
        _node(),
        *(full(kind) for kind in ("Topology", "ResourceFlavor", "AdmissionCheck", "Cohort")),
        _flavor("h100-80gb"),
        _cluster_queue(),
        _local_queue(),
        full("AdmissionPolicy"),
        _priority_class(),
        _workload("admitted"),
        _workload("pending", status={}),
        _job(),
        _pod("queued"),
        _pod("member", group=True),
        _pod("bound", node=True),
    )


def good_cluster() -> tuple[Object, ...]:
    """Return a queue of its own and one Workload that fits."""
    quota = {"name": "cpu", "nominalQuota": "1"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "good", "resources": [quota]}]}
    return (
        _core("Namespace", "good"),
        _flavor("good"),
        _kueue("ClusterQueue", "good", {"namespaceSelector": {}, "resourceGroups": [group]}),
        _kueue("LocalQueue", "good", {"clusterQueue": "good"}, namespace="good"),
        good_workload(),
    )


def good_workload() -> Object:
    """Return the Workload that fits in the good queue."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    return _kueue("Workload", "good", {"queueName": "good", "podSets": [pod_set]}, namespace="good")


def manifests() -> tuple[Object, ...]:
    """Return objects as people write them, those of Kueue's kinds and Jobs: without what a server adds."""
    return (*FULL.values(), _job())


def _core(
    kind: str, name: str, *, version: str = "v1", labels: Object | None = None, **fields: Any
) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **fields}


def _kueue(kind: str, name: str, spec: Object, **metadata: Any) -> Object:
    version = "kueue.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def _flavor(name: str) -> Object:
    return _kueue("ResourceFlavor", name, {})


def _limit_range() -> Object:
    limit = {
        "type": "Container",
        "default": {"cpu": "1"},
        "defaultRequest": {"cpu": "500m"},
        "max": {"cpu": "8"},
    }
    made = _core("LimitRange", "limits", spec={"limits": [limit]})
    made["metadata"]["namespace"] = NAMESPACE
    return made


def _node() -> Object:
    labels = {
        "gpu": "a100",
        "cloud.example.com/block": "block-1",
        _RACK: "rack-3",
        _HOST: "node-1",
        keys.NODE_GPU_MODEL: "A100",
        keys.NODE_NUMA_NODE: "0",
        keys.NODE_GPU_MEMORY_MIB: "81920",
        keys.NODE_COST_PER_HOUR: "2.95",
    }
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": NOW}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": NOW}
    room = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
    spec = {"unschedulable": False, "taints": [taint]}
    return _core(
        "Node", "node-1", labels=labels, spec=spec, status={"allocatable": room, "conditions": [ready]}
    )


def _cluster_queue() -> Object:
    """Return the full queue, so that it admits: not stopped, for the namespace, and without a check."""
    made = full("ClusterQueue")
    made["spec"] |= {"stopPolicy": "None", "namespaceSelector": {"matchLabels": {"team": "vision"}}}
    del made["spec"]["admissionChecksStrategy"]
    return made


def _local_queue() -> Object:
    made = full("LocalQueue")
    made["metadata"]["namespace"] = NAMESPACE
    made["spec"]["stopPolicy"] = "None"
    return made


def _priority_class() -> Object:
    made = full("WorkloadPriorityClass")
    made["metadata"]["annotations"] = {keys.NAMESPACE_SELECTOR: '{"matchLabels": {"team": "vision"}}'}
    return made


def _workload(name: str, **fields: Any) -> Object:
    made = full("Workload") | fields
    made["metadata"] |= {"name": name, "namespace": NAMESPACE, "annotations": dict(_ANNOTATIONS)}
    made["spec"]["active"] = True
    return made


def _job() -> Object:
    made = world.job_object(annotations=dict(_ANNOTATIONS), template_annotations=dict(_ANNOTATIONS))
    made["metadata"]["labels"] |= {keys.QUEUE_NAME: "train", keys.PRIORITY_CLASS: "high"}
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "u", "controller": True}
    ]
    made["status"] = {
        "active": 1,
        "ready": 1,
        "startTime": NOW,
        "conditions": [{"type": "Complete", "status": "False"}],
    }
    return made


def _pod(name: str, *, group: bool = False, node: bool = False) -> Object:
    make = podworld.member_object if group else podworld.pod_object
    made = make(name, labels={keys.QUEUE_NAME: "train"})
    made["metadata"]["annotations"] |= _ANNOTATIONS
    if node:
        made["spec"]["nodeName"] = "node-1"
        made["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": NOW}],
        }
    return made
