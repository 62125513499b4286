"""Two tenants of one cohort in a cluster in memory, and what must hold there at every moment.

all ─┬─ a   4 CPUs, borrows 2
     └─ b   2 CPUs, borrows 1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from api.kube.informer import ChangeType
from api.workload_status import WorkloadStatusEdit
from tests.admission.controller.cluster import FakeCluster, Key, Object
from tests.admission.controller.virtualtime import VirtualLoop

# Nominal quota and borrowing limit in CPUs of the two ClusterQueues of one cohort.
QUOTAS = {"a": (4, 2), "b": (2, 1)}
# How long the work of an evicted Workload takes to stop.
STOP_SECONDS = 1.0


def make_object(kind: str, name: str, spec: Object, **metadata: Any) -> Object:
    """Return an object as a user would create it."""
    version = "v1" if kind == "Namespace" else "kueue.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def make_queues(cluster: FakeCluster) -> None:
    """Create the two ClusterQueues and what they need."""
    cluster.create(make_object("Namespace", "team", {}))
    cluster.create(make_object("ResourceFlavor", "default", {}))
    for name, (nominal, borrowing) in QUOTAS.items():
        quota = {"name": "cpu", "nominalQuota": str(nominal), "borrowingLimit": str(borrowing)}
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
        preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
        spec = {
            "cohortName": "all",
            "namespaceSelector": {},
            "preemption": preemption,
            "resourceGroups": [group],
        }
        cluster.create(make_object("ClusterQueue", name, spec))
        cluster.create(make_object("LocalQueue", name, {"clusterQueue": name}, namespace="team"))


def run_programs(cluster: FakeCluster, loop: VirtualLoop) -> None:
    """Run the programs that create Workloads: each releases the quota of an evicted one a second later."""

    def leaves(obj: Object) -> bool:
        # That of a Job is released by the controller, once the Job has stopped.
        is_owned = bool(obj["metadata"].get("ownerReferences"))
        return is_true(obj, "Evicted") and holds_quota(obj) and not is_owned

    def release(key: Key, uid: str) -> None:
        obj = cluster.objects.get(key)
        # It may have been deleted, replaced or released meanwhile.
        if obj is None or obj["metadata"]["uid"] != uid or not leaves(obj):
            return
        edit = WorkloadStatusEdit(msgspec.json.encode(obj), now=loop.now())
        edit.release()
        status = msgspec.json.decode(edit.to_bytes())["status"]
        cluster.edit(key, lambda found: found.update(status=status))

    def see(change: ChangeType, obj: Object) -> None:
        metadata = obj["metadata"]
        if obj["kind"] == "Workload" and leaves(obj):
            key = "Workload", metadata["namespace"], metadata["name"]
            loop.call_later(STOP_SECONDS, release, key, metadata["uid"])

    cluster.watchers.append(see)


def make_workload(name: str, queue: str, cpus: int, priority: int) -> Object:
    """Return a Workload of one pod."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpus)}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queueName": queue, "priority": priority, "active": True, "podSets": [pod_set]}
    return make_object("Workload", name, spec, namespace="team")


def cpus_of(workload: Object) -> int:
    """Return the CPUs that a Workload asks for."""
    container = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    return int(container["resources"]["requests"]["cpu"])


def is_true(workload: Object, condition: str) -> bool:
    """Return whether the condition is there and True."""
    found = (c for c in workload.get("status", {}).get("conditions", ()) if c["type"] == condition)
    return any(c["status"] == "True" for c in found)


def holds_quota(workload: Object) -> bool:
    """Return whether a Workload holds quota."""
    has_admission = bool(workload.get("status", {}).get("admission"))
    return has_admission and is_true(workload, "QuotaReserved") and not is_true(workload, "Finished")


def is_let_go(workload: Object) -> bool:
    """Return whether it was deactivated and has no owner: its quota is free, whatever its status says.

    As in Kueue: the program may never release it.
    """
    return not workload["spec"]["active"] and not workload["metadata"].get("ownerReferences")


def usage_of(objects: Mapping[Key, Object]) -> dict[str, int]:
    """Return the CPUs in use by ClusterQueue."""
    used = dict.fromkeys(QUOTAS, 0)
    for (kind, _, _), obj in objects.items():
        if kind == "Workload" and holds_quota(obj) and not is_let_go(obj):
            used[obj["status"]["admission"]["clusterQueue"]] += cpus_of(obj)
    return used


def quota_holds(objects: Mapping[Key, Object], before: Object | None, after: Object | None) -> None:
    """No ClusterQueue uses more than it may borrow, and the cohort no more than it has."""
    used = usage_of(objects)
    total = sum(nominal for nominal, _ in QUOTAS.values())
    assert sum(used.values()) <= total, f"the cohort has {total} and uses {used}"
    for name, (nominal, borrowing) in QUOTAS.items():
        assert used[name] <= nominal + borrowing, f"{name} uses {used[name]} of {nominal}+{borrowing}"


def no_workload_is_admitted_twice(
    objects: Mapping[Key, Object], before: Object | None, after: Object | None
) -> None:
    """An admission that holds is not written over with another."""
    if before is None or after is None or not (holds_quota(before) and holds_quota(after)):
        return
    assert before["status"]["admission"] == after["status"]["admission"], f"admitted twice: {after}"


def what_is_admitted_is_what_was_asked(
    objects: Mapping[Key, Object], before: Object | None, after: Object | None
) -> None:
    """An admission is of the spec that the Workload has, in the queue that it names."""
    if after is None or not holds_quota(after):
        return
    admission = after["status"]["admission"]
    (assignment,) = admission["podSetAssignments"]
    asked = after["spec"]["queueName"], str(cpus_of(after))
    assert (admission["clusterQueue"], assignment["resourceUsage"]["cpu"]) == asked, f"not as asked: {after}"


LAWS = (quota_holds, no_workload_is_admitted_twice, what_is_admitted_is_what_was_asked)
