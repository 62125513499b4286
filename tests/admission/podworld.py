"""Pods, their Workloads and a kubelet in memory: `World` with pods in the place of Jobs.

It holds to what matters for them: a gate that is gone stays gone, a deleted pod that runs is there until its
kubelet has ended it, finalizers, and quota that must not come free under a pod that runs.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import msgspec

from admission.decisions.api_writes import Action, Purpose, Verb, Write
from admission.reconcile.pod.imported import holds_quota
from admission.reconcile.pod.reconcile import reconcile_pods
from admission.reconcile.pod.view import UnitFacts
from admission.reconcile.workload.context import Owner
from admission.reconcile.workload.reconcile import reconcile_workload
from api import keys
from api.jobs.pod import Pod, to_pod
from api.objects.cluster import PodObject
from api.parsing.times import to_rfc3339
from api.workload import Workload
from tests.admission.world import Object, World, context, encode

QUEUE = "lq"
WAITING = "WaitingForReplacementPods"


def pod_object(name: str = "p", **fields: Any) -> Object:
    """Return a pod at the gate in queue lq. `labels`, `annotations` add to it, others to its spec.

    `cpu` is what it requests; `created` (seconds) orders pods by age.
    """
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": fields.pop("cpu", "1")}}}
    labels = {keys.MANAGED: "true", keys.QUEUE_NAME: QUEUE, **fields.pop("labels", {})}
    metadata: Object = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": to_rfc3339(1_800_000_000 + fields.pop("created", 0)),
        "labels": {key: value for key, value in labels.items() if value is not None},
        "annotations": fields.pop("annotations", {}),
        "finalizers": [keys.POD_FINALIZER],
    }
    gates = [{"name": keys.ADMISSION_GATE}]
    spec = {"restartPolicy": "Never", "containers": [container], "schedulingGates": gates, **fields}
    status = {"phase": "Pending"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def member_object(name: str, total: int = 2, **fields: Any) -> Object:
    """Return a pod of the group g."""
    labels = {keys.POD_GROUP_NAME: "g", **fields.pop("labels", {})}
    annotations = {keys.POD_GROUP_TOTAL_COUNT: str(total), **fields.pop("annotations", {})}
    return pod_object(name, labels=labels, annotations=annotations, **fields)


def read_pod(obj: Object) -> Pod:
    """Return the pod as a value."""
    return to_pod(msgspec.json.decode(encode(obj), type=PodObject))


class PodWorld(World):
    """Pods and Workloads of one namespace, and what else is known of their only unit."""

    facts = UnitFacts()

    # --- what a test does ---

    def pod(self, name: str) -> Pod:
        """Return a pod as a value."""
        return read_pod(self.objects["Pod", name])

    def pods(self) -> list[str]:
        """Return the names of all pods."""
        return sorted(name for kind, name in self.objects if kind == "Pod")

    def run(self, *names: str) -> None:
        """Let these pods run on a node, or all that were let go."""
        for name in names or self.pods():
            if not self.pod(name).is_gated and not self.pod(name).is_finished:
                self.edit("Pod", name, _runs)

    def end(self, name: str, phase: str = "Succeeded") -> None:
        """Let a pod end."""

        def end(pod: Object) -> None:
            others = (one for one in pod["status"].get("conditions", ()) if one["type"] != "Ready")
            pod["status"].update(phase=phase, conditions=list(others))

        self.edit("Pod", name, end)

    def run_kubelet(self) -> None:
        """End the pods that were deleted and still run."""
        for name in self.pods():
            pod = self.pod(name)
            if pod.is_deleted and pod.node and not pod.is_finished:
                self.end(name, "Failed")

    # --- what Berth does ---

    def look(self) -> tuple[Action, ...]:
        """Return what units and Workloads ask for now."""
        actions: list[Action] = []
        units: dict[str, list[Object]] = {}
        for name in self.pods():
            obj = self.objects["Pod", name]
            if self._is_queued(self.pod(name)):
                units.setdefault(self.pod(name).group or f"pod {name}", []).append(obj)
        for pods in units.values():
            seen = [(read_pod(obj), encode(obj)) for obj in pods]
            actions += reconcile_pods(
                seen,
                self._workload_of(seen[0][0]),
                self.job_context,
                now=self.now,
                facts=self.facts,
            )
        for workload, raw in self.workloads():
            lifecycle = replace(self.lifecycle, owner=self._owner(workload))
            actions += reconcile_workload(workload, raw, lifecycle, now=self.now).actions
        return tuple(actions)

    def _is_queued(self, pod: Pod) -> bool:
        return pod.is_managed or holds_quota(pod, (workload for workload, _ in self.workloads()))

    def _workload_of(self, pod: Pod) -> tuple[Workload, bytes] | None:
        name = pod.group or pod.prebuilt_workload
        found = (one for one in self.workloads() if name == one[0].key.name or one[0].owner_uid == pod.uid)
        return next(found, None)

    # --- the server's side ---

    def delete(self, kind: str, name: str) -> None:
        """Ask for an object's deletion; an owner takes what it owns alone with it."""
        obj = copy.deepcopy(self.objects[kind, name])
        obj["metadata"].setdefault("deletionTimestamp", to_rfc3339(self.now))
        if kind == "Pod" and not obj["spec"].get("nodeName"):
            obj["metadata"]["deletionGracePeriodSeconds"] = 0
        self._put(kind, name, obj)
        self.collect_garbage()

    def collect_garbage(self) -> None:
        """Delete the Workloads whose owners are all gone."""
        uids = {obj["metadata"]["uid"] for obj in self.objects.values()}
        for kind, name in list(self.objects):
            owners = self.objects[kind, name]["metadata"].get("ownerReferences") or ()
            if kind == "Workload" and owners and uids.isdisjoint(owner["uid"] for owner in owners):
                super().delete(kind, name)

    def _change(self, write: Write, key: tuple[str, str]) -> None:
        if write.verb is Verb.EVICT:
            self.delete(*key)
            return
        if write.verb is not Verb.STRATEGIC_PATCH:
            super()._change(write, key)
            self.collect_garbage()
            return
        # The one strategic patch here adds a condition.
        patch = msgspec.json.decode(write.body)["status"]["conditions"]

        def add(pod: Object) -> None:
            added = {condition["type"] for condition in patch}
            kept = [one for one in pod["status"].get("conditions", ()) if one["type"] not in added]
            pod["status"]["conditions"] = [*kept, *patch]

        self.edit(*key, add)

    def _put(self, kind: str, name: str, obj: Object) -> None:
        current = self.objects.get((kind, name))
        if kind == "Pod" and current is not None:
            before = current["spec"].get("schedulingGates") or ()
            after = obj["spec"].get("schedulingGates") or ()
            assert all(gate in before for gate in after), "a gate was put on"
        super()._put(kind, name, obj)

    def _check_release(self, write: Write, current: Object) -> None:
        if write.kind != "Workload" or write.purpose is not Purpose.RELEASE:
            return
        uids = {owner["uid"] for owner in current["metadata"].get("ownerReferences", ())}
        for name in self.pods():
            pod = self.pod(name)
            assert pod.uid not in uids or not pod.is_active, f"quota released while pod {name} runs"

    def _owner(self, workload: Workload) -> Owner:
        held = [pod for pod in map(self.pod, self.pods()) if self._is_queued(pod)]
        if keys.IS_GROUP_WORKLOAD in workload.annotations:
            return Owner.JOB if any(pod.group == workload.key.name for pod in held) else Owner.NONE
        if workload.owner_uid is None:
            return Owner.NONE
        uids = {pod.uid for pod in held}
        return Owner.JOB if workload.owner_uid in uids else Owner.MISSING


def _runs(pod: Object) -> None:
    ready = [{"type": "Ready", "status": "True"}]
    pod["spec"]["nodeName"] = "node"
    pod["status"] = {**pod["status"], "phase": "Running", "conditions": ready}


def make_world(*pods: Object, **fields: Any) -> PodWorld:
    """Return a world with these pods, settled."""
    world = PodWorld(job_context=context(**fields))
    for pod in pods:
        world.add(pod)
    world.settle()
    return world


def admitted(*pods: Object) -> PodWorld:
    """Return a world in which these pods, one unit, run."""
    world = make_world(*pods)
    world.admit(world.only_workload())
    world.settle()
    world.run()
    world.settle()
    return world


def said(world: PodWorld, name: str | None = None) -> dict[str, str]:
    """Return the True conditions of a Workload, with their reasons; by default of the only one."""
    workload, _ = world.workload(name or world.only_workload())
    return {type_: one.reason for type_, one in workload.conditions.items() if one.status}


def warnings(world: PodWorld) -> list[str]:
    """Return the notes of all warnings."""
    return [event.note for event in world.events if event.type.value == "Warning"]
