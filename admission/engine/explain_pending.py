"""Explaining pending Workloads: why those wait that no cycle has tried.

A cycle tries one Workload of a class of equal requests, and of a StrictFIFO queue only the head. The others
get their reason here, once each, while there is nothing to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from admission.cache.cache import Cache
from admission.cache.pending_workloads import PendingWorkloads
from admission.cache.workload_index import WorkloadIndex
from admission.cache.workload_record import Problem, WorkloadRecord
from admission.decisions.decision import Wait
from admission.snapshot.queue_state import QueueState
from api.queueing import QueueingStrategy
from api.reasons import PendingReason
from api.workload import WorkloadKey


def explain(cache: Cache, index: WorkloadIndex, pending: PendingWorkloads, *, limit: int) -> tuple[Wait, ...]:
    """Return the reasons for waiting of at most `limit` Workloads that have none reported, each once.

    Workloads without a known reason yet are put aside, and asked about again when one of their queue is
    parked. Cheap enough to be called between cycles with a small `limit`.
    """
    waits: list[Wait] = []
    while pending.unreported and len(waits) < limit:
        key, _ = pending.unreported.popitem(last=False)
        waits += _explanation(cache, index, pending, key)
    return tuple(waits)


def _explanation(
    cache: Cache, index: WorkloadIndex, pending: PendingWorkloads, key: WorkloadKey
) -> Iterator[Wait]:
    """Yield why a Workload waits that was not tried; nothing if it has a reason, or if none is known yet."""
    record = index.records[key]
    queue = cache.queues.get(record.queued_in or "")
    if queue is None or queue.inactive or record.last_wait is not None:
        return
    known = reason_of(queue, record)
    if known is None or (_is_first_preempting(queue) and queue.pending.members.reason_of(key) is None):
        # A reason of its own is known once a Workload of its class is parked.
        pending.unexplained.setdefault(queue.name, {})[key] = None
    else:
        record.last_wait = known
    if known is None:
        return
    workload = record.workload
    yield Wait(
        key=key,
        uid=workload.uid,
        reason=known[0],
        message=known[1],
    )


def reason_of(queue: QueueState, record: WorkloadRecord) -> Problem | None:
    """Return why a Workload of this queue waits, as reason and message; None while that is not known.

    It is the reason decided last, which may not be written yet, or what holds for all Workloads like it.
    """
    key = record.workload.key
    return record.last_wait or queue.pending.members.reason_of(key) or _behind_head(queue, key)


def _behind_head(queue: QueueState, key: WorkloadKey) -> Problem | None:
    """Return that a queue tries its head only: always (StrictFIFO), or while that preempts.

    None for the head itself, and where the Workload is tried in its own turn.
    """
    head = queue.pending.head()
    if head in (None, key):
        return None
    if _is_first_preempting(queue):
        message = f"waits behind {head}, for which Workloads are preempted that still hold their quota"
        return PendingReason.PENDING_EVALUATION, message
    if queue.pending.strategy is not QueueingStrategy.STRICT_FIFO:
        return None
    message = f"waits behind {head}: ClusterQueue {queue.name} is StrictFIFO and admits in order only"
    return PendingReason.PENDING_EVALUATION, message


def _is_first_preempting(queue: QueueState) -> bool:
    """Return whether the head waits for Workloads that were preempted for it; no other is tried meanwhile."""
    head = queue.pending.head()
    return head is not None and head == queue.pending.precedence.preemptor
