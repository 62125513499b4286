"""What the pods of a Workload need of hardware, and why no node of a flavor has it or may run them."""

from __future__ import annotations

from admission.hardware.fit import HardwareRequest, request_of
from admission.hardware.pod_hardware import PodHardware, read_pod
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import PodSetRequests, gpus_of
from api.objects.common import Meta
from api.objects.templates import WirePodSpec
from api.queueing import ResourceFlavor
from api.workload import PodSet, Workload
from queues.pending.pending_queue import Pending

_NO_META = Meta()
_NO_SPEC = WirePodSpec()
# Caps the answers kept for one ClusterQueue, for users whose requests are all different.
_MOST_KEPT = 1024


def hardware_need(
    snapshot: Snapshot, queue: QueueState, workload: Workload, pod_set: PodSet, gpus: int
) -> HardwareRequest | None:
    """Return what each pod of the pod set, with this number of GPUs, needs; None where every node fits.

    The keys are read on the pod template, as the scheduler extender will read them on the pods, and then on
    the Workload, which copies them from its Job.
    """
    pod, spec = _pod_hardware(queue, workload, pod_set), pod_set.template.spec or _NO_SPEC
    return request_of(pod, gpus, snapshot.topology_cache.hardware.rules, spec.scheduler_name or "")


def _pod_hardware(queue: QueueState, workload: Workload, pod_set: PodSet) -> PodHardware:
    meta = pod_set.template.metadata or _NO_META
    return read_pod(
        meta.annotations, meta.labels, job=workload.annotations, reads_aliases=queue.policy.reads_aliases
    )


def spot_refusal(
    snapshot: Snapshot, queue: QueueState, flavor: ResourceFlavor, workload: Workload, pod_set: PodSet
) -> str | None:
    """Return why pods may not use a flavor whose nodes are all spot nodes, None where they may.

    Only where the policy chooses flavors by score.
    """
    placement = queue.policy.placement
    if placement is None or placement.flavors is None or placement.flavors.spot_for_all:
        return None
    pod = _pod_hardware(queue, workload, pod_set)
    if pod.may_be_interrupted:
        return None
    # A flavor with other nodes as well is not refused, since its pods may get those.
    if snapshot.topology_cache.hardware.summary(flavor.node_labels).spot_share < 1:
        return None
    kind = "training without checkpoints" if pod.kind == "training" else pod.kind
    return f"flavor {flavor.name} has only spot nodes, which {kind} may not use"


def needs_hardware(snapshot: Snapshot, queue: QueueState, pending: Pending) -> bool:
    """Return whether any pod of the Workload fits some nodes only, so that nodes decide about its flavors."""
    # Asked for each head of each cycle. All that it depends on is part of the shape, or of the queue.
    known = queue.hardware_needs.get(pending.shape)
    if known is None:
        known = any(
            hardware_need(snapshot, queue, pending.workload, pod_set, gpus_of(asked.on_node)) is not None
            for pod_set, asked in zip(pending.workload.pod_sets, pending.requests, strict=False)
        )
        if len(queue.hardware_needs) >= _MOST_KEPT:
            queue.hardware_needs.clear()
        queue.hardware_needs[pending.shape] = known
    return known


def hardware_refusal(
    snapshot: Snapshot,
    queue: QueueState,
    flavor: ResourceFlavor,
    workload: Workload,
    pod_set: PodSet,
    asked: PodSetRequests,
) -> str | None:
    """Return why no node of the flavor can ever run these pods, None where one can.

    None also where the flavor's nodes are not known: there are none yet, or they are provisioned on demand.
    """
    if flavor.name in queue.delayed_flavors:
        return None
    need = hardware_need(snapshot, queue, workload, pod_set, gpus_of(asked.on_node))
    if need is None:
        return None
    found = snapshot.topology_cache.hardware.refusal(flavor.node_labels, need)
    return None if found is None else f"flavor {flavor.name}: {found}"
