"""Ungating of pods: one patch removes the gate and adds what the admission assigned to the pod.

A gated pod may get more node labels and tolerations, but none can be removed. After an eviction a new pod
gets others. With a topology each pod gets its own domain here, since the pods of a unit exist when it is
admitted, unlike those of a Job. A pod without a free place, such as one that replaces a pod of a failed node,
starts with the topology gate alone. It gets its domain as a Job's pod does
(`admission.reconcile.workload.ungate`).
Source: Kueue, pkg/controller/jobs/pod (Run, RunWithPodSetsInfo); Kubernetes, KEP-3838.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from admission.decisions.api_writes import Action, Purpose, Write
from admission.reconcile.pod.view import PodView
from admission.reconcile.pod.writes import finish, normal, pod_patch
from admission.reconcile.workload.context import PlacedPod
from admission.reconcile.workload.ungate import domains_of
from api import keys
from api.jobs.job_patches import start_injection
from api.jobs.pod import Pod
from api.jobs.pod_template import Injection, StartConflict, injection_patch
from api.jobs.pod_workload import GroupMember
from api.reasons import FinishedReason
from api.workload import PodSetAssignment

_OWN_GATES = frozenset({keys.ADMISSION_GATE, keys.TOPOLOGY_GATE})


def start(view: PodView) -> tuple[Action, ...]:
    """Return the patches that ungate the admitted pods, or the end of a Workload that can never start."""
    try:
        return tuple(_starts(view))
    # The conflict is permanent, because a pod's node labels can be added but not replaced.
    except StartConflict as conflict:
        message = f"Pod {view.first}: {conflict}; then delete Workload {view.workload.key} to queue it again"
        return (finish(view, FinishedReason.FAILED_TO_START, message),)


def _starts(view: PodView) -> Iterator[Write]:
    for name, assignment in view.assignments.items():
        members = [member for member in view.kept if view.pod_set_of(member) == name]
        waiting = [member for member in members if member.pod.is_gated]
        # No pod waits, so neither injection nor domains are needed.
        if not waiting:
            continue
        injection = _injection(view, assignment)
        domains = _domains(view, assignment, members)
        for member in waiting:
            domain = domains.get(member.pod.uid) if assignment.topology is not None else {}
            # Without a free place in its topology the pod waits for one at its second gate, if it has that.
            if domain is not None or keys.TOPOLOGY_GATE in member.pod.gates:
                yield _start(view, member, injection, domain)


def _injection(view: PodView, assignment: PodSetAssignment) -> Injection:
    node_labels, tolerations = view.context.injection(assignment)
    injection = start_injection(view.workload, assignment, node_labels, tolerations)
    # Gates and choices are for the templates of Jobs. A pod gets its own domain here.
    return replace(injection, gates=(), one_of={})


def _domains(
    view: PodView, assignment: PodSetAssignment, members: Sequence[GroupMember]
) -> Mapping[str, Mapping[str, str]]:
    """Return the node labels of each waiting pod's domain, by its uid, as far as there are places."""
    pod_set = next((one for one in view.workload.pod_sets if one.name == assignment.name), None)
    if pod_set is None or assignment.topology is None:
        return {}
    pods = [_placed(member.pod) for member in members if not member.pod.is_finished]
    # A failed node gets no more pods: they wait until it recovers or is replaced.
    avoid = view.workload.unhealthy_nodes
    return {pod.uid: domain for pod, domain in domains_of(pod_set, assignment.topology, pods, avoid=avoid)}


def _placed(pod: Pod) -> PlacedPod:
    return PlacedPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        resource_version=pod.resource_version,
        labels=pod.labels,
        gates=(keys.TOPOLOGY_GATE,) if pod.is_gated or keys.TOPOLOGY_GATE in pod.gates else (),
        node_selector=pod.node_selector,
        node=pod.node,
    )


def _start(
    view: PodView, member: GroupMember, injection: Injection, domain: Mapping[str, str] | None
) -> Write:
    """Return the patch that starts a pod. `domain` None: it waits for one at its second gate."""
    pod = member.pod
    own = replace(injection, node_selector={**injection.node_selector, **(domain or {})})
    patch: dict[str, Any] = injection_patch(member.body, own)
    removed = _OWN_GATES if domain is not None else {keys.ADMISSION_GATE}
    gates = [{"name": gate} for gate in pod.gates if gate not in removed]
    spec = {**patch.get("spec", {}), "schedulingGates": gates or None}
    metadata = dict(patch.get("metadata", {}))
    if view.group:
        # The role is recorded first, because it would change with the fields that are added now.
        metadata["annotations"] = {**metadata.get("annotations", {}), keys.ROLE_HASH: member.role}
    if not pod.has_finalizer:
        # The pod was created without the webhook. From here on its end must be observed.
        present = member.body.get("metadata", {}).get("finalizers") or ()
        metadata["finalizers"] = [*present, keys.POD_FINALIZER]
    admission = view.workload.admission
    queue = admission.cluster_queue if admission is not None else ""
    event = normal(pod, "Started", f"Admitted by clusterQueue {queue}", "Start")
    return pod_patch(pod, {"metadata": metadata, "spec": spec}, Purpose.START_POD, event)
