"""core/v1 Pod as a frozen value, for pods that are queued individually or in a group.

A pod cannot be suspended like a Job. It is held by the scheduling gate `kueue.x-k8s.io/admission`, which can
be removed but not added again. So a pod that loses its quota is deleted, and its creator (a person, a
Deployment) makes another one, which starts with the gate.

The finalizer `kueue.x-k8s.io/managed` keeps a finished pod until its Workload has recorded how it
finished. Source: Kueue, pkg/controller/jobs/pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api import keys
from api.identifiers import pod_group
from api.jobs.queued_object import Queued
from api.objects.cluster import PodObject
from api.objects.common import OwnerReference
from api.parsing.times import to_seconds
from api.workload import NOTHING

POD_KIND = "Pod"
POD_GROUP = ""
_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod(Queued):
    """One pod. `node` is the node it is bound to, "" if none; `gates` are the names of its scheduling gates.

    `is_forced`: it is deleted without waiting for its containers. `has_termination_condition`: it has the
    condition that marks its termination as requested by Berth. `gang`: the PodGroup of scheduling.x-k8s.io
    that it belongs to, if such groups are read.
    """

    created_at: float = 0.0
    phase: str = "Pending"
    message: str = ""
    node: str = ""
    node_selector: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    gates: tuple[str, ...] = ()
    has_finalizer: bool = False
    is_forced: bool = False
    is_ready: bool = False
    has_termination_condition: bool = False
    gang: str = ""

    @property
    def is_managed(self) -> bool:
        """Whether it is or was held for a queue. A pod that was never held runs outside of all queues."""
        # The label alone is not sufficient: templates copy labels, while only the webhook adds the gate and
        # the finalizer. The owner is not asked: a tenant may change it while the pod holds quota.
        return self.labels.get(keys.MANAGED) == "true" and (self.is_gated or self.has_finalizer)

    @property
    def is_gated(self) -> bool:
        """Whether it waits for admission."""
        return keys.ADMISSION_GATE in self.gates

    @property
    def queue_name(self) -> str:
        """The LocalQueue that it names; empty if none."""
        return self.labels.get(keys.QUEUE_NAME, "")

    @property
    def group(self) -> str:
        """The pod group that it belongs to; empty if none."""
        return pod_group(self.labels, self.annotations) or self.gang

    @property
    def application(self) -> str:
        """The application that it is a replica of, such as "Deployment/chat".

        Empty for a pod without controller.

        A Deployment owns its pods through one ReplicaSet per template. The name of the ReplicaSet ends in the
        value of the label pod-template-hash.
        """
        if self.owner is None:
            return ""
        template = self.labels.get("pod-template-hash", "")
        # The hash is cut off, so that replicas before and after a rollout belong to the same application.
        if self.owner.kind == "ReplicaSet" and template and self.owner.name.endswith(f"-{template}"):
            return f"Deployment/{self.owner.name.removesuffix(f'-{template}')}"
        return f"{self.owner.kind}/{self.owner.name}"

    @property
    def is_serving(self) -> bool:
        """Whether its group is a service, which runs until it is deleted."""
        return self.annotations.get(keys.POD_GROUP_SERVING) == "true"

    @property
    def is_retriable(self) -> bool:
        """Whether its group may continue with a replacement for it."""
        return self.annotations.get(keys.RETRIABLE_IN_GROUP) != "false"

    @property
    def is_succeeded(self) -> bool:
        """Whether all its containers have finished successfully, and by themselves.

        Many programs exit successfully on SIGTERM, so a pod that was terminated by request does not count.
        """
        return self.phase == "Succeeded" and not self.has_termination_condition

    @property
    def is_finished(self) -> bool:
        """Whether it has finished, successfully or not."""
        return self.phase in _FINISHED

    @property
    def is_active(self) -> bool:
        """Whether it uses quota: its gate was removed and it has not finished.

        A pod that is bound to a node finishes when its kubelet reports so. One that was never bound,
        or whose deletion is forced, disappears without such a report, so it counts as finished as soon
        as it is deleted.
        """
        is_gone = self.is_deleted and (not self.node or self.is_forced)
        return not (self.is_gated or self.is_finished or is_gone)

    @property
    def is_alive(self) -> bool:
        """Whether it needs no replacement: it runs, waits, or has succeeded in a finite group."""
        # A pod that is deleted while it is gated will never run.
        is_waiting = self.is_gated and not self.is_deleted
        return self.is_active or is_waiting or (self.is_succeeded and not self.is_serving)


def claims_job(owner: OwnerReference | None) -> bool:
    """Return whether this controller is said to be a Job, which waits for its own pods."""
    return owner is not None and (owner.api_version, owner.kind) == (keys.BATCH_VERSION, "Job")


def claims_daemon_set(owner: OwnerReference | None) -> bool:
    """Return whether this controller is said to be a DaemonSet, whose pods run on every matching node."""
    return owner is not None and (owner.api_version, owner.kind) == ("apps/v1", "DaemonSet")


def to_pod(wire: PodObject) -> Pod:
    """Return the pod as a value. Raises ValueError if its creation time cannot be parsed."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    true = {one.type for one in status.conditions or () if one.status == "True"}
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        # All pods without labels or annotations share one empty mapping.
        labels=meta.labels or NOTHING,
        annotations=meta.annotations or NOTHING,
        owner=meta.controller,
        created_at=to_seconds(meta.creation_timestamp),
        phase=status.phase,
        message=status.message,
        node=spec.node_name or "",
        node_selector=spec.node_selector or NOTHING,
        gates=tuple(gate.get("name", "") for gate in spec.scheduling_gates or ()),
        has_finalizer=keys.POD_FINALIZER in (meta.finalizers or ()),
        is_deleted=meta.deletion_timestamp is not None,
        is_forced=meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds == 0,
        is_ready="Ready" in true,
        # DisruptionTarget is the API server's condition for an eviction, by Berth or by another client.
        has_termination_condition=not true.isdisjoint({"TerminationTarget", "DisruptionTarget"}),
        active_deadline_seconds=spec.active_deadline_seconds,
    )
