"""Failed nodes under a placed Workload: listed in status.unhealthyNodes, and removed when they recover.

A fault makes a node lost to a Workload

    gone, silent      at once
    not ready         once no pod of the Workload runs on it: all have ended or are ending. Without
                      that feature gate after 30 s, whether or not pods run on it
    tainted           once no pod of the Workload runs on it; without that gate at once

so that a short outage of a node has no effect on the pods that it runs, and no pod runs next to its
replacement. A pod that comes late, for a node that has such a fault, is failed at once. A policy
(spec.placement.recovery) may have pods leave such a node at once, or a quiet one, whose kubelet has not been
heard of for a while: they are failed, or deleted where a kubelet can stop them, and the node is lost. The
second pass (`admission.engine.second_pass`) then finds other nodes. A pod that was ungated for a lost node
and is not bound yet would wait forever. It is failed, so that its Job creates another one, which stays gated
until it has a domain. So is a pod without its gate that waits for a host while its Workload holds no quota.

All this is read from the present nodes and pods at each look, so no state has to be remembered.
Source: Kueue, pkg/controller/tas/node_controller.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from admission.decisions.api_writes import Event, Purpose, Write, pod_ref
from admission.placement.topology.node_health import NOT_READY_SECONDS, Fault, NodeFault, assigned_hosts
from admission.reconcile.decision_writes import evict_by_rule
from admission.reconcile.workload.context import PlacedPod
from admission.reconcile.workload.look import Answer, Look, eviction
from admission.reconcile.workload_writes import workload_status
from api.keys import HOSTNAME
from api.object_events import EventType
from api.parsing.times import to_rfc3339
from api.reasons import EvictionReason

# The CRD limits status.unhealthyNodes to this many entries.
MOST_UNHEALTHY = 8

_TERMINATED = "TerminatedByKueue"
_DISRUPTED = "DisruptionTarget"
_UNSCHEDULABLE = "UnschedulableOnAssignedNode"
# Faults of nodes whose kubelet does not answer, or cannot be relied upon to stop pods.
_WITHOUT_KUBELET = frozenset({Fault.NOT_READY, Fault.QUIET})


def answer_lost_nodes(look: Look) -> Answer:
    """Update the list of unhealthy nodes, and fail pods that wait for a lost node."""
    if not _is_watched(look):
        return tuple(_stray_pods(look)) or None
    # All writes in one answer: they are about different objects and do not depend on each other.
    writes: list[Write] = []
    lost = tuple(_lost(look)) if _is_placed(look) else ()
    if _is_placed(look):
        writes += [*_unhealthy_write(look, lost), *_leaving_pods(look)]
    writes += _stranded_pods(look, {*(fault.node for fault in lost), *_closed(look)})
    return tuple(writes) or None


def next_look_at(look: Look) -> float | None:
    """Return when a node will have been not ready for too long; None if no such time is waited for."""
    limits: dict[Fault, list[float]] = {Fault.NOT_READY: [], Fault.QUIET: []}
    if not look.context.settings.node_failures.awaits_pods:
        limits[Fault.NOT_READY].append(NOT_READY_SECONDS)
    if look.context.recovery is not None:
        limits[Fault.NOT_READY].append(look.context.recovery.not_ready_seconds)
        limits[Fault.QUIET].append(look.context.recovery.heartbeat_seconds)
    if not _is_placed(look):
        return None
    instants = [
        fault.since + limit for fault in look.context.faults or () for limit in limits.get(fault.fault, ())
    ]
    # Only future instants: those that have passed were handled in this look.
    return min((at for at in instants if at > look.now), default=None)


def _is_watched(look: Look) -> bool:
    workload = look.workload
    return _is_on(look) and workload.has_quota_reservation and not workload.is_evicted


def _is_on(look: Look) -> bool:
    """Return whether failed nodes are replaced at all, and nodes are known."""
    return look.context.settings.node_failures.is_on and look.context.faults is not None


def _is_placed(look: Look) -> bool:
    """Return whether other nodes are sought for the Workload. A single pod that lost its node has ended."""
    settings = look.context.settings.node_failures
    return _is_watched(look) and not (settings.skips_pods and look.workload.owner_kind == "Pod")


def _lost(look: Look) -> Iterator[NodeFault]:
    """Yield the faults that make a node lost to this Workload now."""
    settings = look.context.settings.node_failures
    # The nodes of bound pods. A gated or unbound pod is on no node.
    running = {pod.node for pod in look.context.pods if pod.node}
    for fault in look.context.faults or ():
        match fault.fault:
            case Fault.GONE | Fault.SILENT:
                yield fault
            # Before the general rules: a policy may give up a node on which pods still run.
            case _ if _is_to_be_left(look, fault):
                yield fault
            case Fault.NOT_READY if settings.awaits_pods:
                if fault.node not in running:
                    yield fault
            case Fault.NOT_READY:
                if look.is_due(fault.since + NOT_READY_SECONDS):
                    yield fault
            # A cordoned node is kept while its pods run: cordoning only keeps new pods away.
            case Fault.TAINTED | Fault.CORDONED if settings.heeds_taints:
                if fault.node not in running or not settings.awaits_pods:
                    yield fault


def _is_to_be_left(look: Look, fault: NodeFault) -> bool:
    """Return whether a policy moves the pods off the node."""
    rules = look.context.recovery
    if rules is None:
        return False
    match fault.fault:
        case Fault.NOT_READY:
            return look.is_due(fault.since + rules.not_ready_seconds)
        case Fault.TAINTED:
            return rules.leave_tainted_nodes
        case Fault.CORDONED:
            return rules.leave_cordoned_nodes
        case Fault.QUIET:
            return rules.heartbeat_seconds > 0 and look.is_due(fault.since + rules.heartbeat_seconds)
    # GONE and SILENT need no rule: the node is lost at once.
    return False


def _unhealthy_write(look: Look, lost: tuple[NodeFault, ...]) -> Iterator[Write]:
    workload = look.workload
    names = {fault.node for fault in lost}
    if names == set(workload.unhealthy_nodes):
        return
    # Nodes that have been listed for longer come first.
    kept = [name for name in workload.unhealthy_nodes if name in names]
    in_order = (*kept, *sorted(names.difference(kept)))
    # Only a policy replaces several nodes at once, and the list must hold them all.
    most = MOST_UNHEALTHY if look.context.replaces_several else 1
    if len(in_order) > max(most, len(kept)):
        message = (
            "Workload eviction triggered due to multiple TAS assigned node failures, including: "
            f"{', '.join(in_order)}"
        )
        decision = eviction(workload, EvictionReason.NODE_FAILURES, message)
        yield evict_by_rule(decision, look.raw, now=look.now)
        return
    edit = look.edit
    edit.put_unhealthy(in_order)
    events = _events(look, [fault for fault in lost if fault.node not in kept])
    yield workload_status(edit, Purpose.SYNC_NODES, *events)


def _events(look: Look, new: Iterable[NodeFault]) -> list[Event]:
    note = "; ".join(f"node {fault}" for fault in new)
    return [look.event(EventType.WARNING, "UnhealthyNodes", note)] if note else []


# --- pods on lost nodes ---------------------------------------------------------------------------


def _leaving_pods(look: Look) -> Iterator[Write]:
    """Yield the write that ends each pod on a node that a policy moves pods off."""
    left = {fault.node: fault for fault in look.context.faults or () if _is_to_be_left(look, fault)}
    for pod in look.context.pods:
        fault = left.get(pod.node)
        if fault is None:
            continue
        note = f"The pod leaves its node: {fault}"
        if fault.fault in _WITHOUT_KUBELET:
            # Deleted, it would be terminating for as long as no kubelet says that it has stopped.
            yield _failing(pod, note, look.now, ready_until=fault.since)
        else:
            # In any version: no change of the pod keeps it on its node.
            yield pod.version.in_any_version.deletion(Purpose.MOVE_POD, _pod_event(pod, note))


def _closed(look: Look) -> Iterator[str]:
    """Yield the nodes on which no more pods of the Workload start, though others of it may run there."""
    settings = look.context.settings.node_failures
    for fault in look.context.faults or ():
        match fault.fault:
            case Fault.NOT_READY if settings.awaits_pods:
                yield fault.node
            case Fault.TAINTED | Fault.CORDONED if settings.heeds_taints:
                yield fault.node
            case Fault.GONE | Fault.SILENT:
                yield fault.node


def _stranded_pods(look: Look, lost: Collection[str]) -> Iterator[Write]:
    """Yield the write that fails each pod which was ungated for a node where it will never run."""
    hosts = assigned_hosts(look.workload.admission) if look.workload.admission is not None else set()
    for pod in look.context.pods:
        host = pod.node_selector.get(HOSTNAME)
        is_stranded = host is not None and (host in lost or host not in hosts)
        # Without assigned hosts the selector is the user's own, and not to be judged here.
        if hosts and is_stranded and not pod.is_gated and not pod.node:
            message = f"The pod was assigned to node {host}, which has failed, and was not running there"
            yield _failing(pod, message, look.now)


def _stray_pods(look: Look) -> Iterator[Write]:
    """Yield the write that fails each pod that waits for a host which its Workload was never assigned.

    Only of a Workload that holds no quota: without assigned hosts, the selector of an admitted one is the
    user's own. The pods of an evicted one are stopped by their owner.
    """
    if not _is_on(look) or look.workload.has_quota_reservation or look.workload.is_evicted:
        return
    for pod in look.context.pods:
        host = pod.node_selector.get(HOSTNAME)
        if host is not None and pod.is_by_topology and not pod.is_gated and not pod.node:
            message = f"The pod waits for node {host}, which its workload is not assigned"
            yield _failing(pod, message, look.now)


def _failing(pod: PlacedPod, message: str, now: float, *, ready_until: float | None = None) -> Write:
    """Return the write that fails the pod, as a disruption, which a Job need not count as a failure.

    `ready_until` is when it was last known to be ready. The Job controller replaces a failed pod ten seconds
    after that, and a pod of a lost node has waited for longer than that already.
    """
    # A pod failure policy can ignore failures with the condition DisruptionTarget.
    conditions = [_condition(type_, "True", message, now) for type_ in (_TERMINATED, _DISRUPTED)]
    if ready_until is not None:
        conditions.append(_condition("Ready", "False", message, ready_until))
    status = {"phase": "Failed", "reason": _TERMINATED, "conditions": conditions}
    # In any version: a pod whose node is lost is not going to run, whatever else is written about it.
    return pod.version.in_any_version.status_patch(status, Purpose.FAIL_POD, _pod_event(pod, message))


def _condition(type_: str, status: str, message: str, at: float) -> dict[str, str]:
    return {
        "type": type_,
        "status": status,
        "reason": _UNSCHEDULABLE,
        "message": message,
        "lastTransitionTime": to_rfc3339(at),
    }


def _pod_event(pod: PlacedPod, note: str) -> Event:
    return Event(
        regarding=pod_ref(pod.namespace, pod.name, pod.uid),
        type=EventType.NORMAL,
        reason="PodTerminatedByKueue",
        note=note,
        action="Terminate",
    )
