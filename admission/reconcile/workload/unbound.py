"""Pods of an admitted Workload that cannot be bound: their nodes are excluded, and it queues again.

    Unschedulable for spec.placement.recovery.unschedulableSeconds
        assigned a node   1 the node joins the annotation berth.dev/excluded-nodes, for an hour
                          2 the Workload is evicted and placed elsewhere: a gang starts whole or waits
        not assigned one  the condition berth.dev/PodsUnschedulable: no other place is known to be better

The annotation comes first, so that the Workload cannot be placed there again, whatever fails in between.
What keeps a pod off its node is not known to quota or topology: a host port, a volume in another zone,
a scheduler extender, a pod that another scheduler has bound. Events carry kube-scheduler's own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from admission.decisions.api_writes import Event, Purpose, job_ref
from admission.placement.topology.node_health import assigned_hosts
from admission.reconcile.decision_writes import evict_by_rule
from admission.reconcile.workload.context import PlacedPod, Unschedulable
from admission.reconcile.workload.look import Answer, Look, eviction
from admission.reconcile.workload_writes import workload_patch, workload_status
from api.excluded_nodes import EXCLUDED_SECONDS, excluded_text, parse_excluded
from api.keys import EXCLUDED_NODES, HOSTNAME
from api.object_events import EventType
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload


def answer_unbound_pods(look: Look) -> Answer:
    """Exclude the nodes of pods that could not be bound for too long, then evict the Workload."""
    if not look.workload.has_quota_reservation or look.workload.is_evicted:
        return None
    hosts: dict[str, tuple[PlacedPod, str]] = {}
    elsewhere = []
    for pod, words in _overdue(look):
        host = _host(look.workload, pod)
        if host is None:
            elsewhere.append((pod, words))
        else:
            # One pod of each node is reported: what keeps it off keeps off the others as well.
            hosts.setdefault(host, (pod, words))
    if not hosts:
        return _report(look, elsewhere)
    host, first = next(iter(hosts.items()))
    return _exclude(look, hosts) or _evict(look, _note(look, *first, f" to node {host}"))


def answer_excluded_nodes(look: Look) -> Answer:
    """Drop the nodes that a waiting Workload may try again."""
    excluded = _excluded(look)
    kept = {host: at for host, at in excluded.items() if not look.is_due(at + EXCLUDED_SECONDS)}
    if look.workload.has_quota_reservation or len(kept) == len(excluded):
        return None
    return (workload_patch(look.workload, _annotation(kept), Purpose.SYNC_NODES),)


def next_unbound_look(look: Look) -> float | None:
    """Return when a pod will have been unbound for too long, or a node may be tried again; None for never."""
    limit = _limit(look)
    if look.workload.has_quota_reservation:
        instants = [why.since + limit for _, why in _unbound(look) if limit]
    else:
        instants = [at + EXCLUDED_SECONDS for at in _excluded(look).values()]
    # Only future instants: those that have passed are handled in this look.
    return min((at for at in instants if at > look.now), default=None)


def _limit(look: Look) -> int:
    """Return for how many seconds a pod may be unbound; 0 for ever."""
    return look.context.recovery.unschedulable_seconds if look.context.recovery is not None else 0


def _excluded(look: Look) -> dict[str, float]:
    """Return the Workload's excluded nodes, each with the time since when it is excluded."""
    return parse_excluded(look.workload.annotations.get(EXCLUDED_NODES, ""))


def _unbound(look: Look) -> list[tuple[PlacedPod, Unschedulable]]:
    """Return the pods for which kube-scheduler finds no node, by name."""
    found = [(pod, pod.unschedulable) for pod in look.context.pods if pod.unschedulable is not None]
    return sorted(found, key=lambda each: each[0].name)


def _overdue(look: Look) -> list[tuple[PlacedPod, str]]:
    """Return the pods that have been unbound for too long, with kube-scheduler's words, by name."""
    limit = _limit(look)
    return [(pod, why.message) for pod, why in _unbound(look) if limit and look.is_due(why.since + limit)]


def _host(workload: Workload, pod: PlacedPod) -> str | None:
    """Return the node that the pod was assigned; None where it was not assigned a single one.

    Without an assignment by host the selector is the user's own.
    """
    host = pod.node_selector.get(HOSTNAME)
    return host if workload.admission is not None and host in assigned_hosts(workload.admission) else None


def _exclude(look: Look, hosts: Mapping[str, tuple[PlacedPod, str]]) -> Answer:
    """Exclude the nodes, with an Event about each on the Workload and its Job."""
    excluded = _excluded(look)
    new = [host for host in hosts if host not in excluded]
    if not new:
        return None
    notes = [_note(look, *hosts[host], f" to node {host}") for host in new]
    patch = _annotation({**excluded, **dict.fromkeys(new, look.now)})
    return (workload_patch(look.workload, patch, Purpose.SYNC_NODES, *_events(look, notes)),)


def _evict(look: Look, note: str) -> Answer:
    """Evict the Workload; it queues again at once."""
    decision = eviction(look.workload, EvictionReason.PODS_UNSCHEDULABLE, note)
    return (evict_by_rule(decision, look.raw, now=look.now),)


def _report(look: Look, overdue: list[tuple[PlacedPod, str]]) -> Answer:
    """Set the condition while pods that were not assigned single nodes are unbound."""
    present = look.workload.conditions.get(ConditionType.PODS_UNSCHEDULABLE)
    is_reported, edit = present is not None and present.status, look.edit
    if overdue and not is_reported:
        note = _note(look, *overdue[0])
        edit.set_condition(ConditionType.PODS_UNSCHEDULABLE, True, reason="Unschedulable", message=note)
        return (workload_status(edit, Purpose.REPORT_PODS, *_events(look, [note])),)
    if is_reported and not _unbound(look):
        message = "All pods have nodes"
        edit.set_condition(ConditionType.PODS_UNSCHEDULABLE, False, reason="Scheduled", message=message)
        return (workload_status(edit, Purpose.REPORT_PODS),)
    return None


def _note(look: Look, pod: PlacedPod, words: str, where: str = "") -> str:
    return f"Pod {pod.name} could not be bound{where} within {_limit(look)} s: {words}"


def _events(look: Look, notes: list[str]) -> list[Event]:
    """Return each note as an Event about the Workload and one about its Job."""
    workload = look.workload
    events = [look.event(EventType.WARNING, EvictionReason.PODS_UNSCHEDULABLE, note) for note in notes]
    if workload.owner_kind != "Job" or workload.owner_name is None or workload.owner_uid is None:
        return events
    job = job_ref(workload.key.namespace, workload.owner_name, workload.owner_uid)
    return [*events, *(replace(event, regarding=job) for event in events)]


def _annotation(excluded: Mapping[str, float]) -> dict[str, object]:
    return {"metadata": {"annotations": {EXCLUDED_NODES: excluded_text(excluded)}}}
