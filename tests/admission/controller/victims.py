"""A queue of two CPUs on virtual time, whose Jobs run real Pods' worth of objects and save when they like.

    low     runs, has said that it saves in ten seconds
    high    comes later, and needs the room

A simulated Job controller makes a Job's pods, and takes them away some seconds after a suspend.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Purpose, Verb, Write
from api.kube.informer import ChangeType
from api.parsing.times import to_rfc3339
from queues.reservations.memory_reservations import InMemoryReservationStore
from tests.admission.controller.cluster import FakeCluster, Key, Object
from tests.admission.controller.replica import LEASE_SECONDS, Lease, Replica
from tests.admission.controller.tenancy import is_true
from tests.admission.controller.virtualtime import VirtualLoop, end

KUEUE = "kueue.x-k8s.io/v1beta2"
BERTH = "berth.dev/"
CPUS = 2
# What a pod takes to end once it has been asked to.
STOPPING_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What happens to the controller: it dies, or `is_flushed` its store; and whether the victim saves.

    The next leader is a new process, or with `is_hot` one that has seen all the while what there is.
    """

    is_flushed: bool
    is_saving: bool
    is_hot: bool = False


# As they read in "is preempted once though the controller ... when ...".
TROUBLES = [
    pytest.param(Trouble(is_flushed=False, is_saving=True), id="dies and the victim saves"),
    pytest.param(Trouble(is_flushed=False, is_saving=False), id="dies and the victim does not save"),
    pytest.param(
        Trouble(is_flushed=False, is_saving=True, is_hot=True),
        id="dies, a standby leads on, the victim saves",
    ),
    pytest.param(
        Trouble(is_flushed=False, is_saving=False, is_hot=True),
        id="dies, a standby leads on, the victim does not save",
    ),
    pytest.param(Trouble(is_flushed=True, is_saving=True), id="loses its store"),
]


class ServingCluster(FakeCluster):
    """A cluster in memory that takes creations too, and reports each write once it has been carried out."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self.on_written: Callable[[Write], None] = lambda _: None

    def apply(self, write: Write) -> bytes:
        """Carry out one write."""
        answer = self._apply(write)
        self.on_written(write)
        return answer

    def _apply(self, write: Write) -> bytes:
        if write.verb is not Verb.CREATE:
            return super().apply(write)
        self.written.append(write)
        self.create(msgspec.json.decode(write.body))
        return self.read((write.kind, write.namespace, write.name))


class Victims:
    """The scene. Time passes by `run_for`; `close` it."""

    # Whether the controllers queue pods themselves.
    with_pods = False

    def __init__(self, **preemption: Any) -> None:
        """`preemption` are fields of the policy's section."""
        self.loop = VirtualLoop()
        self.cluster = self._make_cluster()
        self.cluster.laws.append(quota_holds)
        self.cluster.watchers.append(self._hear)
        self.cluster.on_written = self._note_written
        self.store, self.lease = InMemoryReservationStore(), Lease()
        # By name of the Workload's Job: how often it was evicted, and started.
        self.evictions: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.born = 0
        # The leader dies once it has made a write for this purpose.
        self.dies_after: Purpose | None = None
        self.flushes_after: Purpose | None = None
        # The next leader, where that one is there already.
        self.standby: Replica | None = None
        for obj in _objects({"graceSeconds": 120, "minimumRuntimeSeconds": 0, **preemption}):
            self.cluster.create(obj)
        self.leader = self._make()
        self.leader.lead(1)

    def close(self) -> None:
        """End everything."""
        self.leader.crash()
        if self.standby is not None:
            self.standby.crash()
        end(self.loop)

    # --- what happens ---

    def run_for(self, seconds: float) -> None:
        """Let time pass, and check that nothing broke."""
        self.loop.run_for(seconds)
        assert self.cluster.broken == []
        self.leader.check()

    def submit(self, name: str, *, priority: str = "", cpus: int = 2, **own: Any) -> None:
        """Create a Job of one pod; `own` are berth.dev annotations, their names with underscores."""
        annotations = {BERTH + key.replace("_", "-"): str(value) for key, value in own.items()}
        labels = {"kueue.x-k8s.io/queue-name": "lq"}
        if priority:
            labels["kueue.x-k8s.io/priority-class"] = priority
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpus)}}}
        spec: Object = {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}},
        }
        metadata = {"name": name, "namespace": "team", "labels": labels, "annotations": annotations}
        self.cluster.create(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": {}}
        )

    def add_priority_class(self, name: str, value: int) -> None:
        """Create a class of priority that Jobs may name."""
        metadata = {"name": name}
        self.cluster.create(
            {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": metadata, "value": value}
        )

    def save(self, name: str, *, on_pod: bool = True) -> None:
        """Have a Job report a checkpoint, by its pod or on itself."""
        key = ("Pod", "team", f"{name}-pod") if on_pod else ("Job", "team", name)
        self.annotate(key, {BERTH + "checkpoint-time": to_rfc3339(self.loop.now())})

    def annotate(self, key: Key, annotations: Object) -> None:
        """Change annotations of an object."""

        def change(obj: Object) -> None:
            obj["metadata"]["annotations"] = {**(obj["metadata"].get("annotations") or {}), **annotations}

        self.cluster.edit(key, change)

    def annotate_workload(self, name: str, value: str) -> None:
        """Put a value into the annotation that has the state of an eviction."""
        self.annotate(self._workload_key(name), {BERTH + "eviction": value})

    def delete(self, name: str) -> None:
        """Delete a Job and its Workload, as kubectl and the garbage collector do."""
        workload = self._workload_key(name)
        self.cluster.delete(("Job", "team", name))
        self.cluster.delete(workload)

    def finish(self, name: str) -> None:
        """Let a Job's work come to its end."""
        self._drop_pod(name)
        self._set_status(("Job", "team", name), {"active": 0, "succeeded": 1, "conditions": _COMPLETE})

    def replace_leader(self) -> None:
        """Kill the leader; another process takes over when the lease has run out."""
        self.leader.crash()
        self.loop.call_later(LEASE_SECONDS, self._succeed)

    def preempt_through(self, trouble: Trouble, step: Purpose) -> None:
        """Let `high` come for the place of `low`, and a fault at the step: `low` is preempted, and once."""
        if trouble.is_hot:
            self.standby = self._make()
        if trouble.is_flushed:
            self.flushes_after = step
        else:
            self.dies_after = step
        self.submit("high", priority="high")
        self.run_for(60)
        if trouble.is_saving:
            self.save("low")
        self.run_for(100)
        assert (self.dies_after, self.flushes_after) == (None, None), "the step was never reached"
        assert self.is_running("high")
        assert self.evictions["low"] == 1

    # --- what is to be seen ---

    def asked(self, name: str) -> Object:
        """Return the annotations of a request that the Job's pod carries, without their prefix."""
        pod = self.cluster.objects["Pod", "team", f"{name}-pod"]
        found = pod["metadata"].get("annotations") or {}
        prefix = BERTH + "checkpoint-"
        return {
            key.removeprefix(prefix): found[key]
            for key in (prefix + "requested-at", prefix + "deadline")
            if key in found
        }

    def request(self, name: str) -> str:
        """Return the state of the Workload's eviction, empty for none."""
        found = self.workload(name)["metadata"].get("annotations") or {}
        return str(found.get(BERTH + "eviction", ""))

    def workload(self, name: str) -> Object:
        """Return the Workload of a Job."""
        return self.cluster.objects[self._workload_key(name)]

    def is_running(self, name: str) -> bool:
        """Return whether the Job's pod is there and its Workload admitted and not leaving."""
        workload = self.workload(name)
        is_there = ("Pod", "team", f"{name}-pod") in self.cluster.objects
        return is_there and is_true(workload, "Admitted") and not is_true(workload, "Evicted")

    def events(self) -> list[str]:
        """Return the reasons of the Events that the present leader has sent."""
        return [reason for _, reason in self.leader.recorder.events]

    def count(self, name: str, **labels: str) -> float:
        """Return a counter of the present leader's metrics."""
        labels = {"replica_role": "leader", **labels}
        return self.leader.metrics.registry.get_sample_value(name, labels) or 0.0

    # --- within ---

    def _workload_key(self, name: str) -> Key:
        job = self.cluster.objects["Job", "team", name]["metadata"]["uid"]
        for key, obj in self.cluster.objects.items():
            owners = obj["metadata"].get("ownerReferences") or ()
            if key[0] == "Workload" and any(owner["uid"] == job for owner in owners):
                return key
        raise AssertionError(f"{name} has no Workload")

    def _make_cluster(self) -> ServingCluster:
        return ServingCluster(self.loop)

    def _make(self) -> Replica:
        self.born += 1
        name = f"replica-{self.born}"
        replica = Replica(name, self.cluster, self.store, self.lease, self.loop, with_pods=self.with_pods)
        replica.start()
        return replica

    def _succeed(self) -> None:
        self.leader, self.standby = self.standby or self._make(), None
        self.leader.lead(self.lease.number + 1)

    def _note_written(self, write: Write) -> None:
        if write.purpose is self.flushes_after:
            self.flushes_after = None
            self.store.reservations.clear()
            self.store.fence = None
        if write.purpose is self.dies_after:
            self.dies_after = None
            self.loop.call_soon(self._die)

    def _die(self) -> None:
        # From within the loop it cannot wait for its own end: nothing more is sent, and that is what counts.
        faults = self.leader.line.faults
        faults.is_cut = self.leader.store.is_away = True
        self.loop.call_later(LEASE_SECONDS, self._bury, self.leader)

    def _bury(self, dead: Replica) -> None:
        for task in dead.tasks():
            task.cancel()
        self._succeed()

    # --- the Job controller ---

    def _hear(self, type_: ChangeType, obj: Object) -> None:
        if obj["kind"] == "Job" and type_ is not ChangeType.DELETED:
            delay = STOPPING_SECONDS if obj["spec"]["suspend"] else 0.1
            self.loop.call_later(delay, self._sync, ("Job", "team", obj["metadata"]["name"]))
        if obj["kind"] == "Job" and type_ is ChangeType.DELETED:
            self.loop.call_later(0.1, self._drop_pod, obj["metadata"]["name"])
        if obj["kind"] == "Workload" and type_ is ChangeType.MODIFIED:
            self._note_workload(obj)

    def _note_workload(self, obj: Object) -> None:
        job = next((one["name"] for one in obj["metadata"].get("ownerReferences") or ()), "")
        counters = obj.get("status", {}).get("schedulingStats", {}).get("evictions", ())
        self.evictions[job] = sum(one["count"] for one in counters)

    def _sync(self, key: Key) -> None:
        job = self.cluster.objects.get(key)
        if job is None:
            return
        pod = ("Pod", "team", f"{key[2]}-pod")
        if job["spec"]["suspend"]:
            self._drop_pod(key[2])
            self._set_status(key, {"active": 0, "conditions": [_suspended("True")]})
        elif pod not in self.cluster.objects:
            self.starts[key[2]] = self.starts.get(key[2], 0) + 1
            self._make_pod(job)
            self._set_status(key, {"active": 1, "conditions": [_suspended("False")]})

    def _make_pod(self, job: Object) -> None:
        owner = {"kind": "Job", "apiVersion": "batch/v1", "controller": True, "blockOwnerDeletion": True}
        owner |= {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
        template = copy.deepcopy(job["spec"]["template"])
        metadata = {
            **template["metadata"],
            "name": f"{job['metadata']['name']}-pod",
            "namespace": "team",
            "ownerReferences": [owner],
        }
        self.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {**template["spec"], "nodeName": "node"},
                "status": {"phase": "Running"},
            }
        )

    def _drop_pod(self, job: str) -> None:
        key = ("Pod", "team", f"{job}-pod")
        if key in self.cluster.objects:
            self.cluster.delete(key)

    def _set_status(self, key: Key, status: Object) -> None:
        self.cluster.edit(key, lambda obj: obj.update(status=status))


def running_low(**preemption: Any) -> Victims:
    """Return a scene in which `low` has run for a hundred seconds."""
    victims = Victims(**preemption)
    victims.submit("low", checkpoint_save_seconds=10)
    victims.run_for(100)
    assert victims.is_running("low")
    return victims


_COMPLETE = [
    {"type": word, "status": "True", "reason": "CompletionsReached", "message": "m"}
    for word in ("SuccessCriteriaMet", "Complete")
]


def _suspended(status: str) -> Object:
    return {"type": "Suspended", "status": status, "reason": "r", "message": "m"}


def _objects(preemption: Object) -> list[Object]:
    quota = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(CPUS)}]}
    queue = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    high = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}, "spec": {}},
        made("ResourceFlavor", "default", {}),
        high,
        {
            **made("AdmissionPolicy", "policy", {"preemption": preemption}),
            "apiVersion": "berth.dev/v1alpha1",
        },
        made("ClusterQueue", "cq", queue),
        made("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="team"),
    ]


def made(kind: str, name: str, spec: Object, **metadata: Any) -> Object:
    """Return an object of Kueue's API."""
    return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def quota_holds(objects: Any, before: Object | None, after: Object | None) -> None:
    """No more CPUs are held than there are."""
    held = 0
    for (kind, _, name), obj in objects.items():
        status = obj.get("status", {})
        if kind == "Workload" and status.get("admission") and not is_true(obj, "Finished"):
            for pod_set in obj["spec"]["podSets"]:
                (container,) = pod_set["template"]["spec"]["containers"]
                held += pod_set["count"] * int(container["resources"]["requests"]["cpu"])
            assert held <= CPUS, f"with {name} {held} CPUs of {CPUS} are held"
