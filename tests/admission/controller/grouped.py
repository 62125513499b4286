"""The scene of `victims` with a group of two pods in the place of the Job that is preempted.

A simulated kubelet runs its pods: it runs one whose gate is gone, and ends one that is deleted some seconds
later. An ended pod is there for as long as a finalizer keeps it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admission.decisions.api_writes import Verb, Write
from api import keys
from api.kube.informer import ChangeType
from api.parsing.times import to_rfc3339
from tests.admission.controller.cluster import Key, Object
from tests.admission.controller.tenancy import is_true
from tests.admission.controller.victims import BERTH, STOPPING_SECONDS, ServingCluster, Victims

GROUP = "low"
MEMBERS = ("low-0", "low-1")


class PodCluster(ServingCluster):
    """A cluster in memory in which a deleted pod stays until it has ended and nothing holds it."""

    def _apply(self, write: Write) -> bytes:
        key = (write.kind, write.namespace, write.name)
        if write.kind != "Pod" or key not in self.objects:
            return super()._apply(write)
        if write.verb is Verb.DELETE:
            self.written.append(write)
            self.edit(key, self._delete_gracefully)
            return b""
        if write.verb is Verb.STRATEGIC_PATCH:
            self.written.append(write)
            conditions = msgspec.json.decode(write.body)["status"]["conditions"]
            self.edit(key, lambda pod: pod["status"].update(conditions=conditions))
            return self.read(key)
        answer = super()._apply(write)
        self.collect(key)
        return answer

    def collect(self, key: Key) -> None:
        """Take a pod away that was deleted, has ended, and is held by nothing."""
        pod = self.objects[key]
        is_over = pod["status"]["phase"] in ("Succeeded", "Failed")
        if is_over and "deletionTimestamp" in pod["metadata"] and not pod["metadata"].get("finalizers"):
            self.delete(key)

    def _delete_gracefully(self, pod: Object) -> None:
        pod["metadata"].setdefault("deletionTimestamp", to_rfc3339(self._loop.now()))


class GroupVictims(Victims):
    """The scene: the group `low` runs as soon as it is admitted, and says that it saves in ten seconds."""

    with_pods = True

    def submit_group(self) -> None:
        """Create the group's pods, as the webhook leaves them."""
        for name in MEMBERS:
            self.cluster.create(self.make_member(name))

    def make_member(self, name: str) -> Object:
        """Return a pod of the group at its gate."""
        return member(name)

    # --- what is to be seen ---

    def asked(self, name: str) -> Object:
        """Return the annotations of a request that every pod of the group carries, {} where one does not."""
        assert name == GROUP
        found = [pod["metadata"].get("annotations") or {} for pod in self.members()]
        names = ("checkpoint-requested-at", "checkpoint-deadline")
        given = [{key: one[BERTH + key] for key in names if BERTH + key in one} for one in found]
        return given[0] if given and all(one == given[0] for one in given) else {}

    def members(self) -> list[Object]:
        """Return the group's pods that run."""
        pods = [pod for key, pod in self.cluster.objects.items() if key[0] == "Pod" and key[2] in MEMBERS]
        return [pod for pod in pods if pod["status"]["phase"] == "Running"]

    def is_running(self, name: str) -> bool:
        """Return whether all its pods run and its Workload is admitted and not leaving."""
        if name != GROUP:
            return super().is_running(name)
        workload = self.workload(name)
        is_held = is_true(workload, "Admitted") and not is_true(workload, "Evicted")
        return len(self.members()) == len(MEMBERS) and is_held

    def save(self, name: str, *, on_pod: bool = True) -> None:
        """Have the last of its pods report a checkpoint."""
        assert (name, on_pod) == (GROUP, True)
        saved = {BERTH + "checkpoint-time": to_rfc3339(self.loop.now())}
        self.annotate(("Pod", "team", MEMBERS[-1]), saved)

    # --- within ---

    def _make_cluster(self) -> PodCluster:
        return PodCluster(self.loop)

    def _workload_key(self, name: str) -> Key:
        return ("Workload", "team", GROUP) if name == GROUP else super()._workload_key(name)

    def _note_workload(self, obj: Object) -> None:
        if obj["metadata"]["name"] != GROUP:
            super()._note_workload(obj)
            return
        counters = obj.get("status", {}).get("schedulingStats", {}).get("evictions", ())
        self.evictions[GROUP] = sum(one["count"] for one in counters)

    def _hear(self, type_: ChangeType, obj: Object) -> None:
        super()._hear(type_, obj)
        name = obj["metadata"]["name"]
        if obj["kind"] != "Pod" or name not in MEMBERS or type_ is ChangeType.DELETED:
            return
        phase, key = obj["status"]["phase"], ("Pod", "team", name)
        if "deletionTimestamp" in obj["metadata"] and phase == "Running":
            self.loop.call_later(STOPPING_SECONDS, self._end_pod, key)
        elif phase == "Pending" and not obj["spec"].get("schedulingGates"):
            self.loop.call_later(0.1, self._run_pod, key)

    def _run_pod(self, key: Key) -> None:
        pod = self.cluster.objects.get(key)
        if pod is not None and pod["status"]["phase"] == "Pending":
            self.starts[key[2]] = self.starts.get(key[2], 0) + 1
            self.cluster.edit(key, lambda one: one["spec"].update(nodeName="node"))
            self.cluster.edit(key, lambda one: one["status"].update(phase="Running"))

    def _end_pod(self, key: Key) -> None:
        pod = self.cluster.objects.get(key)
        if pod is not None and pod["status"]["phase"] == "Running":
            self.cluster.edit(key, lambda one: one["status"].update(phase="Failed"))


def member(name: str) -> Object:
    """Return a pod of the group low at its gate."""
    labels = {keys.MANAGED: "true", keys.QUEUE_NAME: "lq", keys.POD_GROUP_NAME: GROUP}
    annotations: dict[str, Any] = {keys.POD_GROUP_TOTAL_COUNT: "2", keys.CHECKPOINT_SAVE_SECONDS: "10"}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    gates = [{"name": keys.ADMISSION_GATE}]
    metadata = {
        "name": name,
        "namespace": "team",
        "labels": labels,
        "annotations": annotations,
        "finalizers": [keys.POD_FINALIZER],
    }
    spec = {"restartPolicy": "Never", "containers": [container], "schedulingGates": gates}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Pending"},
    }
