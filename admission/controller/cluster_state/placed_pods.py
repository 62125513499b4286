"""Pods that are placed by topology, until they have ended: which wait at their gate, and where the rest run.

A placed pod's usage is counted through its Workload. The pod itself is kept in the order in which pods were
first seen. So is every pod on a node whose annotation names a placed Workload: nothing replaces that node
while it runs. So are the pods of elastic Jobs, which name their first slice. Pods of other Workloads are kept
from the moment that kube-scheduler finds no node for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from admission.controller.cluster_state.leaving_pods import LeavingPods
from admission.controller.cluster_state.observers import Observers
from admission.controller.cluster_state.slice_chains import SliceChains
from admission.controller.runtime.clock import Clock
from admission.decisions.api_writes import Write
from admission.engine.engine import Engine
from admission.reconcile.workload.context import PlacedPod, Unschedulable
from api import keys
from api.kube.informer import Change, ChangeType
from api.node import PodUsage, is_finished, is_placed_by_topology, to_pod_usage, unschedulable_message
from api.objects.cluster import PodObject
from api.workload import Workload, WorkloadKey


@dataclass(slots=True)
class _Known:
    pod: PlacedPod
    workload: WorkloadKey
    # The node labels in an ungating patch of ours that is still in flight.
    promised: Mapping[str, str] | None = None
    promised_address: str = ""


class PlacedPods:
    """What the control loop knows of placed pods. The Workload whose pods changed is marked."""

    def __init__(self, engine: Engine, clock: Clock, *, observers: Observers, chains: SliceChains) -> None:
        self._engine = engine
        self._observers = observers
        self._clock = clock
        self._chains = chains
        self._mark = chains.mark_pods_of
        self._leaving = LeavingPods(self._mark_chain)
        self._pods: dict[str, _Known] = {}
        self._by_workload: dict[WorkloadKey, dict[str, None]] = {}

    def take_pod(self, change: Change[PodObject]) -> None:
        """Take a change of a pod."""
        metadata, now = change.object.metadata, self._clock.now()
        if change.type is ChangeType.DELETED:
            self._engine.objects.remove(PodUsage, (metadata.namespace, metadata.name), now=now)
            self._forget(metadata.uid)
            self._leaving.forget(metadata.uid)
            return
        self._engine.objects.upsert(to_pod_usage(change.object), now=now)
        self._see_placed(change.object)

    def see_raw(self, raw: bytes) -> None:
        """Take the bytes of a pod from the answer to a write. Raises msgspec.DecodeError."""
        self._see_placed(_POD.decode(raw))

    def pods_of(self, workload: WorkloadKey) -> tuple[PlacedPod, ...]:
        """Return the Workload's placed pods that have not ended, the first seen first."""
        known = (self._pods[uid] for uid in self._by_workload.get(workload, ()))
        return tuple(
            one.pod
            if one.promised is None
            else replace(one.pod, promised=one.promised, address=one.promised_address)
            for one in known
        )

    def leaving(self, chain: WorkloadKey) -> Mapping[str, int]:
        """Return by pod set how many pods of an elastic Job were told to end and have not."""
        return self._leaving.of(chain)

    def in_use(self, chain: WorkloadKey) -> Mapping[str, int]:
        """Return by pod set how many pods of an elastic Job run, or may start to, or have yet to end."""
        counts = Counter(self._leaving.of(chain))
        # A pod whose patch is in flight may be past its gate.
        past_gate = (one for one in self.pods_of(chain) if not one.is_elastic or one.promised is not None)
        counts.update(one.labels.get(keys.POD_SET, "") for one in past_gate)
        return counts

    def promise(self, write: Write) -> None:
        """Record that a patch that ungates a pod is in flight."""
        known = self._pods.get(write.uid)
        if known is not None:
            body = msgspec.json.decode(write.body)
            known.promised = {**known.pod.node_selector, **body["spec"].get("nodeSelector", {})}
            annotations = body.get("metadata", {}).get("annotations", {})
            known.promised_address = annotations.get(keys.ADDRESS, "")

    def answered(self, uid: str) -> None:
        """Record that the patch of a pod was answered, in whatever way: now the pod itself counts."""
        known = self._pods.get(uid)
        if known is not None and known.promised is not None:
            known.promised = None
            self._mark(known.workload)

    def forget_promises(self) -> None:
        """Record that no patch is in flight: another term has begun."""
        for known in self._pods.values():
            known.promised = None

    def mark_pod(self, namespace: str, name: str) -> None:
        """Mark the Workload of a pod whose patch was refused. Searches all pods, since this is rare."""
        for known in self._pods.values():
            if (known.pod.namespace, known.pod.name) == (namespace, name):
                self._mark(known.workload)

    def misplaced(self, workload: Workload) -> tuple[PlacedPod, ...]:
        """Return the Workload's pods that are bound outside the domains that it was assigned."""
        return tuple(pod for pod in self.pods_of(workload.chain) if not self._is_in_place(workload.key, pod))

    def _is_in_place(self, workload: WorkloadKey, pod: PlacedPod) -> bool:
        pod_set = pod.labels.get(keys.POD_SET, "")
        return not pod.node or self._engine.nodes.is_in_place(workload, pod_set, pod.node)

    def _see_placed(self, obj: PodObject) -> None:
        self._leaving.see(obj)
        metadata = obj.metadata
        annotations = metadata.annotations or {}
        # The slices of an elastic Job have the same pods, whichever of them their template was written for.
        workload = annotations.get(keys.SLICE_NAME) or annotations.get(keys.WORKLOAD)
        known = self._pods.get(metadata.uid)
        gates = tuple(gate.get("name", "") for gate in obj.spec.scheduling_gates or ())
        if is_finished(obj) or metadata.deletion_timestamp or workload is None:
            self._forget(metadata.uid)
            return
        unschedulable = self._unschedulable(obj, known)
        key = WorkloadKey(metadata.namespace, workload)
        admitted = self._chains.admitted(key) or self._engine.workloads.workload(key)
        if known is None and unschedulable is None and not _is_kept(obj, admitted):
            return
        if known is not None and _is_older(metadata.resource_version, known.pod.resource_version):
            return
        pod = PlacedPod(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            labels=metadata.labels or {},
            gates=gates,
            node_selector=obj.spec.node_selector or {},
            node=obj.spec.node_name or "",
            address=(metadata.annotations or {}).get(keys.ADDRESS, ""),
            unschedulable=unschedulable,
            is_by_topology=is_placed_by_topology(obj),
        )
        if known is not None and admitted is not None:
            for gate in {keys.TOPOLOGY_GATE, keys.ELASTIC_GATE}.intersection(known.pod.gates).difference(
                gates
            ):
                self._observers.report_ungated(gate, admitted, self._clock.now())
        self._pods[metadata.uid] = after = _Known(pod, key)
        if known is not None and (pod.is_gated or pod.is_elastic):
            after.promised, after.promised_address = known.promised, known.promised_address
        self._by_workload.setdefault(key, {})[metadata.uid] = None
        had_node = known is None or known.pod.unschedulable is None
        # A pod may come late, without its gate, for a node that its Workload has left.
        is_bound_for_node = known is None and not pod.node and keys.HOSTNAME in pod.node_selector
        if (
            pod.is_gated
            or pod.is_elastic
            or is_bound_for_node
            or not self._is_in_place(admitted.key if admitted is not None else key, pod)
            or had_node != (unschedulable is None)
        ):
            self._mark(key)

    def _unschedulable(self, obj: PodObject, known: _Known | None) -> Unschedulable | None:
        """Return since when the pod has no node, by this process's clock.

        The condition's own time may be that of its scheduling gate, since its status has not changed since.
        """
        words = unschedulable_message(obj)
        if words is None:
            return None
        before = known.pod.unschedulable if known is not None else None
        return Unschedulable(since=before.since if before is not None else self._clock.now(), message=words)

    def _forget(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is None:
            return
        members = self._by_workload[known.workload]
        del members[uid]
        if not members:
            del self._by_workload[known.workload]
        # The domain that it leaves may be needed by another pod that waits at its gate.
        self._mark(known.workload)
        self._chains.mark_owners_of(known.workload)

    def _mark_chain(self, chain: WorkloadKey) -> None:
        # The Job's slice may count fewer pods now, and another pod may have its place.
        self._mark(chain)
        self._chains.mark_owners_of(chain)


def _is_kept(obj: PodObject, workload: Workload | None) -> bool:
    """Return whether the pod is placed by topology, or runs on a node of a Workload that is, or may be."""
    if is_placed_by_topology(obj) or keys.SLICE_NAME in (obj.metadata.annotations or {}):
        return True
    admission = workload.admission if workload is not None else None
    # Pods may be seen before their Workload.
    is_placed = admission is None or any(one.topology is not None for one in admission.pod_sets)
    return bool(obj.spec.node_name) and is_placed


def _is_older(version: str, known: str) -> bool:
    """Return whether a version is older than another; one that is not a number counts as newer."""
    return version.isdecimal() and known.isdecimal() and int(version) < int(known)


_POD = msgspec.json.Decoder(PodObject)
