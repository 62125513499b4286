"""A small API server and Job controller in memory: enough to carry out actions and look again.

Owners of the table are as Jobs, except that their templates are never frozen. It holds to what matters for
Jobs and Workloads: versions and 409, generations, the status apart, finalizers,
and a Job's template that is frozen unless the Job is suspended, has no start time and no active pod. Quota
released under running pods and Jobs that run unadmitted are found at once, as breaches of the two-phase rule.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from admission.decisions.api_writes import Action, Event, Purpose, Verb, Write
from admission.decisions.decision import Admit, Evict
from admission.reconcile.decision_writes import admit_write, evict_write
from admission.reconcile.job.context import JobContext
from admission.reconcile.job.reconcile import reconcile_queued
from admission.reconcile.workload.context import LifecycleContext, Owner
from admission.reconcile.workload.reconcile import reconcile_workload
from api.jobs.job import Job, to_job
from api.jobs.owners.owner import to_owner
from api.jobs.owners.table import kind_of, row_of_kind
from api.jobs.queued_object import QueuedJob
from api.kube.embedded.apply.patches import merge_patch
from api.objects.cluster import JobObject, OwnerObject
from api.objects.workloads import WorkloadObject
from api.parsing.times import to_rfc3339
from api.reasons import EvictionReason
from api.workload import Admission, PodSetAssignment, Workload
from api.workload_decoding import to_workload
from tests import rights

Object = dict[str, Any]
START = 1_800_000_000.0
UID = "job-uid"
# A chain of writes longer than this never comes to rest.
_MAX_LOOKS = 40


class Conflict(AssertionError):
    """A write was based on a version that is no longer the present one."""


def context(**fields: Any) -> JobContext:
    """Return a context whose flavors put pods into zone a."""
    return JobContext(**{"injection": lambda _: ({"zone": "a"}, ()), **fields})


def job_object(**fields: Any) -> Object:
    """Return a suspended Job of two pods in queue lq, as the API server would show it after creation.

    `labels`, `annotations`, `template_annotations` and `pod_spec` add to it, others replace fields of spec.
    """
    labels = {"kueue.x-k8s.io/queue-name": "lq", **fields.pop("labels", {})}
    annotations = fields.pop("annotations", {})
    of_server = {"job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": UID}
    template_metadata: Object = {"labels": {**of_server, "team": "a"}}
    if extra := fields.pop("template_annotations", None):
        template_metadata["annotations"] = extra
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod_spec = {"restartPolicy": "Never", "containers": [container], **fields.pop("pod_spec", {})}
    spec = {"suspend": True, "parallelism": 2, "completions": 2, **fields}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "team",
            "uid": UID,
            "resourceVersion": "1",
            "labels": {key: value for key, value in labels.items() if value is not None},
            "annotations": annotations,
        },
        "spec": {**spec, "template": {"metadata": template_metadata, "spec": pod_spec}},
        "status": {},
    }


def encode(obj: Object) -> bytes:
    """Return the object's bytes."""
    return msgspec.json.encode(obj)


def read_job(obj: Object) -> Job:
    """Return the Job as a value."""
    return to_job(msgspec.json.decode(encode(obj), type=JobObject))


def read_queued(obj: Object) -> QueuedJob:
    """Return a Job or an owner of the table as a value."""
    row = kind_of(obj["apiVersion"], obj["kind"])
    if row is None:
        return read_job(obj)
    return to_owner(row, msgspec.json.decode(encode(obj), type=OwnerObject))


def read_workload(obj: Object) -> tuple[Workload, bytes]:
    """Return the Workload as a value, and its bytes."""
    raw = encode(obj)
    return to_workload(msgspec.json.decode(raw, type=WorkloadObject)), raw


class World:
    """Jobs and Workloads of one namespace, and a clock that the test moves."""

    def __init__(self, *, is_modern: bool = True, job_context: JobContext | None = None) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.events: list[Event] = []
        self.now = START
        self.job_context = job_context or context()
        self.lifecycle = LifecycleContext()
        self.is_modern = is_modern
        self._version = 100

    # --- what a test does ---

    def add(self, obj: Object) -> None:
        """Create an object as a user would."""
        self._put(obj["kind"], obj["metadata"]["name"], copy.deepcopy(obj))

    def edit(self, kind: str, name: str, change: Callable[[Object], None]) -> None:
        """Change an object as a user would."""
        obj = copy.deepcopy(self.objects[kind, name])
        change(obj)
        self._put(kind, name, obj)

    def delete(self, kind: str, name: str) -> None:
        """Ask for an object's deletion, and for that of what it owns."""
        obj = copy.deepcopy(self.objects[kind, name])
        obj["metadata"]["deletionTimestamp"] = to_rfc3339(self.now)
        self._put(kind, name, obj)
        if (kind, name) not in self.objects and kind != "Workload":
            for other, owned in [key for key in self.objects if key[0] == "Workload"]:
                if self._owner_uid(owned) == obj["metadata"]["uid"]:
                    self.delete(other, owned)

    def admit(self, name: str, *, count: int | None = None, checks: tuple[str, ...] = ()) -> None:
        """Give a Workload quota in ClusterQueue cq, as the cycle would."""
        workload, raw = self.workload(name)
        assignments = tuple(
            PodSetAssignment(
                name=pod_set.name, count=count or pod_set.count, flavors={"cpu": "f"}, usage={"cpu": 1000}
            )
            for pod_set in workload.pod_sets
        )
        decision = Admit(
            key=workload.key,
            uid=workload.uid,
            resource_version=workload.resource_version,
            admission=Admission(cluster_queue="cq", pod_sets=assignments),
            is_admitted=not checks,
            checks=checks,
        )
        self._decide(admit_write(decision, raw, now=self.now, awaits_pods=True))

    def evict(self, name: str, reason: EvictionReason = EvictionReason.PREEMPTED) -> None:
        """Take a Workload's quota back, as the cycle would."""
        workload, raw = self.workload(name)
        decision = Evict(
            key=workload.key,
            uid=workload.uid,
            resource_version=workload.resource_version,
            reason=reason,
            message="for another",
        )
        self._decide(evict_write(decision, raw, now=self.now))

    def run_job_controller(self, *, ready: int | None = None, succeeded: int = 0) -> None:
        """Let the Job controller react once: start pods, stop them, or report on them."""
        for kind, name in list(self.objects):
            if kind == "Job":
                self.edit(kind, name, lambda job: self._react(job, ready, succeeded))

    def end_job(self, name: str, type_: str = "Complete", message: str = "all done") -> None:
        """Let the Job controller finish a Job."""

        def end(job: Object) -> None:
            job["status"] = {
                **job["status"],
                "active": 0,
                "conditions": [{"type": type_, "status": "True", "message": message}],
            }

        self.edit("Job", name, end)

    # --- what Berth does ---

    def look(self) -> tuple[Action, ...]:
        """Return what Jobs and Workloads ask for now."""
        actions: list[Action] = []
        for kind, name in sorted(self.objects):
            obj = self.objects[kind, name]
            if kind != "Workload":
                actions += reconcile_queued(
                    read_queued(obj), encode(obj), self.workloads(), self.job_context, now=self.now
                )
            else:
                workload, raw = self.workload(name)
                successors = (one for one, _ in self.workloads() if one.takes_over(workload))
                successor = next((one for one in successors if one.has_quota_reservation), None)
                lifecycle = replace(self.lifecycle, owner=self._owner(workload), successor=successor)
                actions += reconcile_workload(workload, raw, lifecycle, now=self.now).actions
        return tuple(actions)

    def settle(self) -> list[Purpose]:
        """Carry out actions until nothing more is asked for; return what was written, in order."""
        purposes: list[Purpose] = []
        for _ in range(_MAX_LOOKS):
            actions = self.look()
            self.events += [action for action in actions if isinstance(action, Event)]
            writes = [action for action in actions if isinstance(action, Write)]
            if not writes:
                return purposes
            # Only the first: the others may be about what it changes.
            self.apply(writes[0])
            purposes.append(writes[0].purpose)
        raise AssertionError(f"no rest after {_MAX_LOOKS} looks: {purposes}")

    def apply(self, write: Write) -> None:
        """Carry out one write as an API server would."""
        rights.check(write)
        key = (write.kind, write.name)
        if write.verb is Verb.CREATE:
            assert key not in self.objects, f"{key} exists"
            body = msgspec.json.decode(write.body)
            self._version += 1
            body["metadata"]["uid"] = f"uid-{self._version}"
            self._put(*key, body)
        else:
            self._change(write, key)
        self.events += write.events

    def workload(self, name: str) -> tuple[Workload, bytes]:
        """Return a Workload as last seen."""
        return read_workload(self.objects["Workload", name])

    def workloads(self) -> list[tuple[Workload, bytes]]:
        """Return all Workloads."""
        return [self.workload(name) for kind, name in sorted(self.objects) if kind == "Workload"]

    def job(self, name: str = "j") -> Object:
        """Return a Job as it is."""
        return self.objects["Job", name]

    def only_workload(self) -> str:
        """Return the name of the only Workload."""
        (name,) = (name for kind, name in self.objects if kind == "Workload")
        return name

    # --- the server's side ---

    def _decide(self, write: Write | None) -> None:
        assert write is not None
        self.apply(write)

    def _change(self, write: Write, key: tuple[str, str]) -> None:
        current = self.objects.get(key)
        assert current is not None, f"{key} does not exist"
        metadata = current["metadata"]
        seen = {metadata["uid"], write.uid}, {metadata["resourceVersion"], write.resource_version}
        if len(seen[0]) > 1 or (len(seen[1]) > 1 and write.resource_version):
            raise Conflict(f"{write.purpose} of {key} was made for {seen}")
        if write.verb is Verb.DELETE:
            self.delete(*key)
            return
        self._check_release(write, current)
        body = msgspec.json.decode(write.body)
        changed = merge_patch(current, body) if write.verb is Verb.MERGE_PATCH else body
        if write.subresource == "status":
            changed = {**current, "status": changed.get("status", {})}
        else:
            changed["status"] = current.get("status", {})
        changed["metadata"]["uid"] = metadata["uid"]
        self._put(*key, changed)

    def _put(self, kind: str, name: str, obj: Object) -> None:
        current = self.objects.get((kind, name))
        if current is not None and kind == "Job":
            obj["spec"]["template"] = without_empty(obj["spec"]["template"])
            self._check_frozen(current, obj)
        metadata = obj["metadata"]
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        is_changed = current is None or current.get("spec") != obj.get("spec")
        metadata["generation"] = metadata.get("generation", 0) + is_changed
        metadata.setdefault("creationTimestamp", to_rfc3339(self.now))
        self.objects[kind, name] = obj
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.objects[kind, name]

    @staticmethod
    def _check_frozen(current: Object, changed: Object) -> None:
        status = current.get("status", {})
        is_free = current["spec"]["suspend"] and not status.get("startTime") and not status.get("active")
        if not is_free:
            assert changed["spec"]["template"] == current["spec"]["template"], (
                "spec.template: field is immutable"
            )

    def _check_release(self, write: Write, current: Object) -> None:
        if write.kind != "Workload" or write.purpose is not Purpose.RELEASE:
            return
        uids = {owner["uid"] for owner in current["metadata"].get("ownerReferences", ())}
        for (kind, name), obj in self.objects.items():
            if kind != "Workload" and obj["metadata"]["uid"] in uids:
                job = read_queued(obj)
                assert job.is_suspended, f"quota released while {kind} {name} may run"
                assert not job.active, f"quota released while pods of {kind} {name} run"

    def _react(self, job: Object, ready: int | None, succeeded: int) -> None:
        status = {**job["status"], "succeeded": job["status"].get("succeeded", 0) + succeeded}
        if any(c["type"] in ("Complete", "Failed") for c in status.get("conditions", ())):
            return
        if job["spec"]["suspend"]:
            status |= {"active": 0, "ready": 0, "conditions": [{"type": "Suspended", "status": "True"}]}
            if self.is_modern:
                status.pop("startTime", None)
        else:
            active = max(0, job["spec"]["parallelism"] - status["succeeded"])
            status |= {"active": active, "conditions": [{"type": "Suspended", "status": "False"}]}
            status["ready"] = active if ready is None else ready
            status.setdefault("startTime", to_rfc3339(self.now))
        job["status"] = status

    def _owner_uid(self, name: str) -> str:
        return self.workload(name)[0].owner_uid or ""

    def _owner(self, workload: Workload) -> Owner:
        if workload.owner_uid is None:
            return Owner.NONE
        uids = {obj["metadata"]["uid"] for (kind, _), obj in self.objects.items() if kind != "Workload"}
        if workload.owner_kind != "Job" and not row_of_kind(workload.owner_kind or ""):
            return Owner.OTHER
        return Owner.JOB if workload.owner_uid in uids else Owner.MISSING


def without_empty(value: Any) -> Any:
    """Return an object without empty objects in it, as Kubernetes shows its own kinds."""
    if not isinstance(value, dict):
        return value
    return {key: kept for key, inner in value.items() if (kept := without_empty(inner)) != {}}


def purposes(actions: Iterable[Action]) -> list[str]:
    """Return what is asked for, in words: purposes of writes, reasons of lone Events."""
    return [str(a.purpose) if isinstance(a, Write) else a.reason for a in actions]
