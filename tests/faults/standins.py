"""Users, the Job controller with its kubelets, and the garbage collector, as simple as they can be.

They write straight to etcd: what Berth meets is what they leave there, some time after what causes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from api.kube.informer import ChangeType
from api.parsing.times import to_rfc3339
from tests.admission.controller.tenancy import QUOTAS, cpus_of, make_object
from tests.faults.etcd import Change, Etcd, Key, Object
from tests.faults.loop import ShuffledLoop
from tests.faults.phases import is_true
from tests.faults.schedule import JobPlan

NAMESPACE = "team"
_URGENT = "urgent"


class StandIns:
    """The cluster around Berth."""

    def __init__(self, etcd: Etcd, loop: ShuffledLoop, chance: random.Random) -> None:
        self._etcd = etcd
        self._loop = loop
        self._chance = chance
        #: The uids of the Workloads that another program has admitted.
        self.admitted: set[str] = set()
        # How long each Job runs once it has been started, by uid.
        self._lengths: dict[str, float] = {}
        etcd.listeners.append(self._on_change)

    def make_queues(self) -> None:
        """Create two ClusterQueues of one cohort, as in `tests.admission.controller.tenancy`."""
        self._create("namespaces", make_object("Namespace", NAMESPACE, {}))
        self._create("resourceflavors", make_object("ResourceFlavor", "default", {}))
        urgent = {**make_object("WorkloadPriorityClass", _URGENT, {}), "value": 1000}
        self._create("workloadpriorityclasses", urgent)
        for name, (nominal, borrowing) in QUOTAS.items():
            quota = {"name": "cpu", "nominalQuota": str(nominal), "borrowingLimit": str(borrowing)}
            group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
            spec = {
                "cohortName": "all",
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
                "resourceGroups": [group],
            }
            self._create("clusterqueues", make_object("ClusterQueue", name, spec))
            local = make_object("LocalQueue", name, {"clusterQueue": name}, namespace=NAMESPACE)
            self._create("localqueues", local)

    def submit(self, number: int, plan: JobPlan) -> None:
        """Create a Job, and delete it when its user wants that."""
        key = Key("jobs", NAMESPACE, f"job-{number}")
        stored = self._etcd.create(key, _job(key.name, plan), at=self._now())
        uid = stored.item["metadata"]["uid"]
        self._lengths[uid] = plan.seconds
        if plan.deleted_after is not None:
            self._loop.later(plan.deleted_after, self._delete, key, uid)
        if plan.edited_after is not None:
            self._loop.later(plan.edited_after, self._resize, key, uid)

    def touch(self, target: int, key: Key | None, *, asks_otherwise: bool) -> None:
        """Annotate a Workload, as another controller may, or have it ask for other CPUs, as its user may.

        The one at `key` if there is such a Workload. One that holds quota keeps its spec, as in Kueue.
        """
        keys = sorted(key for key in self._etcd.objects if key.plural == "workloads")
        if not keys:
            return
        key = key if key in keys else keys[target % len(keys)]
        if asks_otherwise and may_be_admitted(self._etcd.objects[key].item):
            self._etcd.edit(key, lambda one: _ask_otherwise(one["spec"]["podSets"][0]))
        else:
            note = {"example.com/seen": f"{self._loop.time():.3f}"}
            self._etcd.edit(key, lambda one: _annotate(one, note))

    def admit(self, target: int) -> bool:
        """Admit a Workload that waits, as another program might, whatever the quota is."""
        waiting = [
            key
            for key, stored in sorted(self._etcd.objects.items())
            if key.plural == "workloads" and may_be_admitted(stored.item)
        ]
        if not waiting:
            return False
        key = waiting[target % len(waiting)]
        self.admitted.add(self._etcd.objects[key].item["metadata"]["uid"])
        self._etcd.edit(key, self._reserve)
        return True

    def _reserve(self, workload: Object) -> None:
        cpus = str(cpus_of(workload))
        (pod_set,) = workload["spec"]["podSets"]
        assignment = {
            "name": pod_set["name"],
            "count": 1,
            "flavors": {"cpu": "default"},
            "resourceUsage": {"cpu": cpus},
        }
        conditions = (("QuotaReserved", "QuotaReserved"), ("Admitted", "Admitted"))
        workload["status"] = {
            "admission": {
                "clusterQueue": workload["spec"]["queueName"],
                "podSetAssignments": [assignment],
            },
            "conditions": [self._condition(*one) for one in conditions],
        }

    def _create(self, plural: str, item: Object) -> None:
        metadata = item["metadata"]
        self._etcd.create(Key(plural, metadata.get("namespace", ""), metadata["name"]), item, at=self._now())

    def _delete(self, key: Key, uid: str) -> None:
        found = self._etcd.find(key)
        if found is not None and found["metadata"]["uid"] == uid:
            self._etcd.delete(key, at=self._now())

    def _resize(self, key: Key, uid: str) -> None:
        """Have a Job that has never run ask for other CPUs."""
        job = self._etcd.find(key)
        if job is None or job["metadata"]["uid"] != uid or not job["spec"]["suspend"]:
            return
        # The API server lets no client change the template of a Job that has a start time.
        if not job.get("status", {}).get("startTime"):
            self._etcd.edit(key, lambda one: _ask_otherwise(one["spec"]))

    def _now(self) -> str:
        return to_rfc3339(self._loop.now())

    # --- the Job controller -----------------------------------------------------------------------

    def look_again(self) -> None:
        """Look at every Job, as after a restart."""
        for key in [key for key in self._etcd.objects if key.plural == "jobs"]:
            self._soon(self._sync, key)

    def _on_change(self, change: Change) -> None:
        if change.key.plural == "workloads" and change.type is ChangeType.ADDED:
            # One that was created late may have lost its owner meanwhile.
            for uid in _owners(change.after.item):
                self._soon(self._collect_orphans, uid)
        if change.key.plural != "jobs":
            return
        if change.type is ChangeType.DELETED:
            self._soon(self._collect_orphans, change.after.item["metadata"]["uid"])
        else:
            self._soon(self._sync, change.key)

    def _soon(self, call: Callable[..., None], *arguments: object) -> None:
        self._loop.later(self._chance.uniform(0.02, 0.6), call, *arguments)

    def _sync(self, key: Key) -> None:
        job = self._etcd.find(key)
        if job is None or is_over(job):
            return
        status = job.get("status", {})
        if job["spec"]["suspend"]:
            if status.get("active") or not _is_suspended(job):
                self._etcd.edit(key, self._suspend)
        elif not status.get("active"):
            self._etcd.edit(key, self._run)
            uid = job["metadata"]["uid"]
            started_at = self._etcd.objects[key].item["status"]["startedAt"]
            self._loop.later(self._lengths[uid], self._complete, key, uid, started_at)

    def _suspend(self, job: Object) -> None:
        status = job.setdefault("status", {})
        status.update(active=0, conditions=[self._condition("Suspended", "JobSuspended")])
        status.pop("startTime", None)
        status.pop("startedAt", None)

    def _run(self, job: Object) -> None:
        # `startedAt` is the stand-in's own, to the millisecond: it tells one run of the Job from the next.
        status = {"active": 1, "startTime": self._now(), "startedAt": round(self._loop.time(), 3)}
        job["status"] = status

    def _complete(self, key: Key, uid: str, started_at: float) -> None:
        job = self._etcd.find(key)
        if job is None or job["metadata"]["uid"] != uid or is_over(job) or job["spec"]["suspend"]:
            return
        if job.get("status", {}).get("startedAt") == started_at:
            self._etcd.edit(key, self._finish)

    def _finish(self, job: Object) -> None:
        job["status"].update(
            active=0,
            succeeded=1,
            completionTime=self._now(),
            conditions=[self._condition("Complete", "CompletionsReached")],
        )

    def _condition(self, type_: str, reason: str) -> Object:
        return {
            "type": type_,
            "status": "True",
            "reason": reason,
            "message": "",
            "lastTransitionTime": self._now(),
        }

    def _collect_orphans(self, uid: str) -> None:
        """Delete what the object with this uid owned, if it is gone."""
        objects = self._etcd.objects
        if any(stored.item["metadata"]["uid"] == uid for stored in objects.values()):
            return
        for key, stored in list(objects.items()):
            if key.plural == "workloads" and uid in _owners(stored.item):
                self._etcd.delete(key, at=self._now())


def may_be_admitted(workload: Object) -> bool:
    """Return whether a Workload waits for quota."""
    has_ended = is_true(workload, "Finished") or "deletionTimestamp" in workload["metadata"]
    return not (has_ended or workload.get("status", {}).get("admission"))


def _owners(item: Object) -> list[str]:
    return [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()]


def is_over(job: Object) -> bool:
    """Return whether a Job has ended."""
    return any(one["type"] in ("Complete", "Failed") for one in job.get("status", {}).get("conditions") or ())


def _is_suspended(job: Object) -> bool:
    return any(one["type"] == "Suspended" for one in job.get("status", {}).get("conditions") or ())


def _annotate(item: Object, note: dict[str, str]) -> None:
    metadata = item["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **note}


def _ask_otherwise(holder: Object) -> None:
    """Have what holds a pod template ask for other CPUs."""
    (container,) = holder["template"]["spec"]["containers"]
    requests = container["resources"]["requests"]
    requests["cpu"] = str(1 + int(requests["cpu"]) % 4)


def _job(name: str, plan: JobPlan) -> Object:
    labels = {"kueue.x-k8s.io/queue-name": plan.queue}
    if plan.is_urgent:
        labels["kueue.x-k8s.io/priority-class"] = _URGENT
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(plan.cpus)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
        },
    }
