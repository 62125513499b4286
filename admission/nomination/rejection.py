"""Rejection: why a head may not be admitted whatever the quota. Such a head is not nominated."""

from __future__ import annotations

from dataclasses import dataclass

from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.reasons import PendingReason
from api.selectors import matches_selector
from api.workload import Workload
from queues.pending.pending_queue import Pending, RequeueCause

_CHECK_STATES_THAT_WAIT = frozenset({"Retry", "Rejected"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a head may not be admitted whatever the quota, and how it is requeued."""

    reason: PendingReason
    message: str
    requeue: RequeueCause = RequeueCause.GENERIC


def find_rejection(snapshot: Snapshot, queue: QueueState, pending: Pending) -> Rejection | None:
    """Return why the head may not be admitted whatever the quota, None where it may."""
    workload = pending.workload
    if workload.checks and (waiting := _failed_checks(workload)):
        message = f"The workload has failed admission checks: {', '.join(waiting)}"
        return Rejection(reason=PendingReason.PENDING_EVALUATION, message=message)
    # A namespace that is not known has no labels, and matches only an empty selector.
    labels = snapshot.objects.namespaces.get(workload.key.namespace)
    if not matches_selector(queue.spec.namespace_selector, labels):
        return Rejection(
            reason=PendingReason.MISCONFIGURED,
            message=namespace_mismatch(workload, queue.name),
            requeue=RequeueCause.NAMESPACE_MISMATCH,
        )
    # Last, because only an edit of the Workload resolves it; the two above may pass without one.
    if pending.problem is not None:
        return Rejection(reason=PendingReason.MISCONFIGURED, message=pending.problem)
    return None


def _failed_checks(workload: Workload) -> list[str]:
    return [check.name for check in workload.checks if check.state in _CHECK_STATES_THAT_WAIT]


def namespace_mismatch(workload: Workload, cluster_queue: str) -> str:
    """Return the message for a namespace that the ClusterQueue does not select."""
    return (
        f"ClusterQueue {cluster_queue} does not select namespace {workload.key.namespace}: "
        "its spec.namespaceSelector does not match the namespace's labels"
    )
