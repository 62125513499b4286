"""core/v1 Pod as a frozen value, for pods that are queued by themselves or in a group.

A pod cannot be suspended like a Job: it is held by the scheduling gate `kueue.x-k8s.io/admission`, which can
be taken off and never be put on again. So a pod that lost its quota is deleted, and whoever made it (a
person, a Deployment) makes another, which waits at the gate anew.

The finalizer `kueue.x-k8s.io/managed` keeps an ended pod until its Workload has taken in how it ended.
Source: Kueue, pkg/controller/jobs/pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api import keys
from api.jobs.queued_object import Queued
from api.objects import OwnerReference, PodObject
from api.workload import NOTHING, to_seconds

POD_KIND = "Pod"
POD_GROUP = ""
# What the pods of one role of a group have in common. Source: Kueue, pkg/util/pod, RoleHash.
_ROLE_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)
_ROLE_HASH_LENGTH = 8
# Tolerations that the API server gives every pod say nothing about its role.
_SERVER_TOLERATIONS = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
_FINISHED = frozenset({"Succeeded", "Failed"})
# Controllers whose pods are queued through them, or have to run on their node whoever waits.
# A static pod belongs to its Node and cannot be held; the pods of a DaemonSet have to run wherever
# there is a node.
_QUEUED_OWNERS = frozenset({("batch/v1", "Job"), ("apps/v1", "DaemonSet"), ("v1", "Node")})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod(Queued):
    """One pod. `node` is where it is bound, "" where it is not; `gates` are all its scheduling gates.

    `is_forced`: it is to be gone without anybody waiting for its containers. `is_told_to_end`: it carries the
    condition by which its end is known as ours.
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
    is_told_to_end: bool = False

    @property
    def is_managed(self) -> bool:
        """Whether it is held for a queue, or was. One that nobody held runs outside of all queues."""
        # The label alone is not enough: a template copies labels, while gate and finalizer are
        # given by the webhook only.
        is_marked = self.labels.get(keys.MANAGED) == "true" and (self.is_gated or self.has_finalizer)
        return is_marked and not is_queued_through(self.owner)

    @property
    def is_gated(self) -> bool:
        """Whether it waits for its admission."""
        return keys.ADMISSION_GATE in self.gates

    @property
    def queue_name(self) -> str:
        """The LocalQueue that it names; empty for none."""
        return self.labels.get(keys.QUEUE_NAME, "")

    @property
    def group(self) -> str:
        """The group that it belongs to; empty for none."""
        return self.labels.get(keys.POD_GROUP_NAME) or self.annotations.get(keys.POD_GROUP_NAME, "")

    @property
    def application(self) -> str:
        """What it is a replica of, such as "Deployment/chat"; empty for a pod that somebody made by hand.

        A Deployment's pods belong to it through a ReplicaSet for each of its templates, whose name ends in
        what the label pod-template-hash says.
        """
        if self.owner is None:
            return ""
        template = self.labels.get("pod-template-hash", "")
        # The name without the template's hash: replicas before and after a roll-out are of one application.
        if self.owner.kind == "ReplicaSet" and template and self.owner.name.endswith(f"-{template}"):
            return f"Deployment/{self.owner.name.removesuffix(f'-{template}')}"
        return f"{self.owner.kind}/{self.owner.name}"

    @property
    def is_serving(self) -> bool:
        """Whether its group goes on for as long as nobody ends it."""
        return self.annotations.get(keys.POD_GROUP_SERVING) == "true"

    @property
    def is_retriable(self) -> bool:
        """Whether its group may go on with another in its place."""
        return self.annotations.get(keys.RETRIABLE_IN_GROUP) != "false"

    @property
    def is_succeeded(self) -> bool:
        """Whether all its containers have ended in success, and by themselves.

        Many programs end well when they are told to: work that was cut short is not done all the same.
        """
        return self.phase == "Succeeded" and not self.is_told_to_end

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, in success or not."""
        return self.phase in _FINISHED

    @property
    def is_active(self) -> bool:
        """Whether it takes of the quota: it was let go and has not ended.

        A deleted pod that no kubelet runs, or that is forced to go, ends without saying so.
        """
        # A pod that is bound ends when its kubelet says so; one that was never bound, or is forced,
        # ends without a word.
        is_gone = self.is_deleted and (not self.node or self.is_forced)
        return not (self.is_gated or self.is_finished or is_gone)

    @property
    def is_alive(self) -> bool:
        """Whether it runs, waits, or has succeeded where that is an end: nobody has to take its place."""
        # Deleted at the gate it will never run, though it still waits there.
        is_waiting = self.is_gated and not self.is_deleted
        return self.is_active or is_waiting or (self.is_succeeded and not self.is_serving)


def is_queued_through(owner: OwnerReference | None) -> bool:
    """Return whether a pod with this controller is queued through it, or must not be queued at all."""
    return owner is not None and (owner.api_version, owner.kind) in _QUEUED_OWNERS


def to_pod(wire: PodObject) -> Pod:
    """Return the pod as a value. Raises ValueError where its creation time cannot be read."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    true = {one.type for one in status.conditions or () if one.status == "True"}
    return Pod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        # An absent map and an empty one are one and the same, shared by all pods.
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
        # The second is the API server's word for an eviction, ours or another's.
        is_told_to_end=not true.isdisjoint({"TerminationTarget", "DisruptionTarget"}),
        active_deadline_seconds=spec.active_deadline_seconds,
    )


def role_of(body: Mapping[str, Any]) -> str:
    """Return the role of a pod (its object): a short hash, the same for all pods that are scheduled alike.

    The annotation that the webhook wrote counts, because what happens to a pod later changes its spec.
    """
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    # Before the spec: the API server and the scheduler fill in fields (node name, tolerations, a
    # priority) after the pod was hashed.
    if said := annotations.get(keys.ROLE_HASH):
        return str(said)
    return role_hash(body.get("spec") or {})


def role_hash(spec: Mapping[str, Any]) -> str:
    """Return the hash of what a pod spec asks of the scheduler: requests and placement, no images."""
    shape: dict[str, Any] = {name: spec[name] for name in _ROLE_FIELDS if spec.get(name)}
    tolerations = [one for one in shape.pop("tolerations", ()) if one.get("key") not in _SERVER_TOLERATIONS]
    if tolerations:
        shape["tolerations"] = tolerations
    for holder in ("initContainers", "containers"):
        # Requests and limits and nothing else of a container: a new image makes no new role, so a
        # rolling update goes on in the group.
        shape[holder] = [(one.get("resources") or {}) for one in spec.get(holder) or ()]
    # Sorted: writers order the fields of one pod differently.
    text = msgspec.json.encode({"spec": shape}, order="sorted")
    return hashlib.sha256(text).hexdigest()[:_ROLE_HASH_LENGTH]
