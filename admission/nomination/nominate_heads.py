"""The first phase of a cycle: each head is nominated, or it is answered and takes no part in the rest.

    may not be admitted whatever the quota             ─▶ its outcome
    inadmissible, and backfill promises it no start    ─▶ back to its queue, whose next head is nominated
    otherwise                                          ─▶ an entry, to be ordered and processed

Kueue gives an inadmissible head its queue's turn all the same, and reserves what its queue has left for this
one cycle. Under backfill, promises alone reserve capacity. A head without one would only cost its own queue a
turn and other queues a cycle.
Source: Kueue, pkg/scheduler/scheduler.go, nominate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from admission.nomination.head_outcome import HeadOutcome, inadmissible, to_wait, with_protection
from admission.nomination.nominate import Entry, Nominator, leaving_slice
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.reasons import PendingReason
from api.selectors import matches_selector
from api.workload import Workload, WorkloadKey
from queues.pending.pending_queue import Pending, RequeueCause
from queues.steps import Steps

_FAILED_CHECK_STATES = frozenset({"Retry", "Rejected"})

# Puts a head back into its queue with this outcome, and returns the next head of that queue, None if empty.
PassOn = Callable[[HeadOutcome], Pending | None]


def nominate_heads(
    nominator: Nominator,
    heads: Iterable[tuple[QueueState, Pending]],
    *,
    promises_nothing: Callable[[Entry], bool] | None,
    pass_on: PassOn | None,
) -> Steps[tuple[list[Entry], list[HeadOutcome]]]:
    """Return the nominated entries, and the outcomes of the heads that may not be admitted.

    Yields after each look at a head. An inadmissible head for which `promises_nothing` holds is replaced by
    the next of its queue, which `pass_on` gives. Where either of them is None, no head is replaced.
    """
    entries: list[Entry] = []
    outcomes: list[HeadOutcome] = []
    for queue, pending in heads:
        head: Pending | None = pending
        passed: set[WorkloadKey] = set()
        while head is not None:
            rejection = _rejected(nominator.snapshot, queue, head)
            if rejection is not None:
                outcomes.append(rejection)
                yield
                break
            entry = yield from nominator.nominate(queue, head)
            yield
            # Each head is passed over once: one that has flavors left to try comes back at once.
            if (
                pass_on is None
                or promises_nothing is None
                or entry.will_fit
                or head.key in passed
                or not promises_nothing(entry)
            ):
                entries.append(entry)
                break
            passed.add(head.key)
            head = pass_on(with_protection(inadmissible(entry), entry, nominator.preemptor.losses))
    return entries, outcomes


def _rejected(snapshot: Snapshot, queue: QueueState, pending: Pending) -> HeadOutcome | None:
    """Return the outcome of a head that may not be admitted whatever the quota, None where it may."""
    workload = pending.workload
    reason, requeue = PendingReason.MISCONFIGURED, RequeueCause.GENERIC
    checks = workload.checks
    if checks and (failed := [one.name for one in checks if one.state in _FAILED_CHECK_STATES]):
        reason = PendingReason.PENDING_EVALUATION
        message = f"The workload has failed admission checks: {', '.join(failed)}"
    # A namespace that is not known has no labels, and matches only an empty selector.
    elif not matches_selector(
        queue.spec.namespace_selector, snapshot.objects.namespaces.get(workload.key.namespace)
    ):
        message, requeue = namespace_mismatch(workload, queue.name), RequeueCause.NAMESPACE_MISMATCH
    elif (leaving := leaving_slice(snapshot, queue, workload)) is not None:
        reason, message = PendingReason.WAITING_FOR_QUOTA, slice_leaving(leaving.key)
    # Last, because only an edit of the Workload resolves it; the two above may pass without one.
    elif pending.problem is not None:
        message = pending.problem
    else:
        return None
    decision = to_wait(pending, reason, message)
    return HeadOutcome(queue=queue, pending=pending, decision=decision, requeue=requeue)


def slice_leaving(key: WorkloadKey) -> str:
    """Return the message for a slice that replaces one which is evicted and has not stopped."""
    return f"Workload {key}, which this one replaces, is evicted and has not stopped yet"


def namespace_mismatch(workload: Workload, cluster_queue: str) -> str:
    """Return the message for a namespace that the ClusterQueue does not select."""
    return (
        "workload namespace doesn't match ClusterQueue selector: "
        f"ClusterQueue {cluster_queue} does not select namespace {workload.key.namespace}: "
        "its spec.namespaceSelector does not match the namespace's labels"
    )
