"""Over-admission: finds quota that two writers have given away twice, and evicts the later Workload.

A single leader never admits beyond the quota: it checks each admission against all that it knows and counts
it at once. Two writers can, if neither knows of the other's admission: a leader cut off from the store whose
last patch arrives late, or another program that admits by itself. Usage beyond the quota is no proof of that,
however. When an administrator lowers a quota, running work stays beyond it, and as in Kueue it keeps running.

The difference is which writer checked the admission, and against which quota. Two kinds are checked again:

- An admission that appears after this leader's term began and that no decision of this leader had assumed
  (*unweighed*).
- An admission that the term began with, if it was checked against the very quota that is in force now, as its
  record says (`api.quota_check`), and the quota of its cohort is exceeded. A leader that checks against a
  quota admits no more than that, so another leader must have admitted without knowing of it. One that was
  checked against another quota exceeds the present one because that was lowered. One without a record was
  made by another program, such as Kueue, before the term began.

Each is checked as the scheduler would have: does it fit beside all others? They are checked by priority and
then in the order of their QuotaReserved conditions, so of two that exclude each other the one of lower
priority is evicted, or else the later one. This leader's own decisions are never touched, nor is work that
exceeds its quota only because the quota was lowered.

Every kind has its own watch, so an admission may arrive before the quota that it was made on. The check
therefore waits a moment after the admission was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from admission.cache.cache import Cache
from admission.decisions.decision import Evict
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from api.parsing.quantities import to_text
from api.quota_check import quota_check
from api.reasons import EvictionReason
from api.workload import WorkloadKey
from queues.quota.tree_digest import tree_digest

# How long, in seconds, one watch may lag behind another before an admission is checked against the quota.
SETTLING_SECONDS = 1.0


def due_at(cache: Cache, unweighed: Mapping[WorkloadKey, float]) -> float | None:
    """Return when the next unweighed admission is to be checked, None for never.

    `unweighed` holds, by Workload, when each was seen (Unix seconds).

    Admissions are checked a second after they were seen, because the event that frees the quota for them may
    come later than they do. Evicted ones need no check.
    """
    seen = [at for key, at in unweighed.items() if not cache.held[key].is_evicted]
    return min(seen) + SETTLING_SECONDS if seen else None


def doubtful(cache: Cache, inherited: Iterable[HeldWorkload]) -> Iterator[WorkloadKey]:
    """Yield which of the admissions that a term began with may have been made without knowing of others.

    None where no quota is exceeded. O(queues · pairs · depth + inherited).
    """
    nodes = [queue.node for queue in cache.queues.values()]
    # Where a node of the tree uses more than it has, a ClusterQueue below it has less than nothing left.
    exceeded = {node.root for node in nodes if any(node.available(pair) < 0 for pair in node.cells)}
    for held in inherited if exceeded else ():
        # Otherwise it has been released, or admitted again by this leader.
        if cache.held.get(held.key) is not held:
            continue
        queue, check = cache.queues.get(held.admission.cluster_queue), quota_check(held.workload)
        if queue is None or check is None or queue.node.root not in exceeded:
            continue
        if check.quota == tree_digest(queue.node):
            yield held.key


def judge(
    cache: Cache, unweighed: Mapping[WorkloadKey, float], *, now: float
) -> tuple[list[WorkloadKey], list[Evict]]:
    """Return which unweighed admissions are due and fit, and the evictions of those that are due and do not.

    `cache` is left as it was.

    By priority and in the order of their reservations, so of two admissions that exceed the quota together
    the one of lower priority, or else the later one, is evicted. O(unweighed · pairs · depth).
    """
    # Priority and time are in the object, so every leader checks them in the same order.
    held = sorted(
        (cache.held[key] for key in unweighed),
        key=lambda one: (-one.workload.priority, one.reserved_at, one.key),
    )
    snapshot = cache.snapshot()
    placed = [(cache.queues[one.admission.cluster_queue], one) for one in held if _has_queue(cache, one)]
    # If the ClusterQueue no longer exists, there is no quota to exceed.
    fitting = [one.key for one in held if not _has_queue(cache, one)]
    evictions: list[Evict] = []
    try:
        # All are taken off first and put back one by one. So each is checked beside those before it, and not
        # beside those after it.
        for queue, one in placed:
            snapshot.trial.remove(queue, one.usage)
        for queue, one in _leaving_first(placed):
            is_due = unweighed[one.key] + SETTLING_SECONDS <= now
            # A Workload that is being evicted frees its quota anyway; a second eviction adds nothing.
            message = None if one.is_evicted else _misfit(queue, one)
            # One that is not due yet stays counted, since it holds its quota until it is checked.
            if message is not None and is_due:
                evictions.append(_evict(one, message))
                continue
            snapshot.trial.add(queue, one.usage)
            if message is None and is_due and not one.is_evicted:
                fitting.append(one.key)
    finally:
        # The evictions take effect only when they are carried out.
        snapshot.rollback()
    return fitting, evictions


def _has_queue(cache: Cache, held: HeldWorkload) -> bool:
    """Return whether the ClusterQueue of the admission exists."""
    return held.admission.cluster_queue in cache.queues


def _leaving_first(
    placed: list[tuple[QueueState, HeldWorkload]],
) -> Iterator[tuple[QueueState, HeldWorkload]]:
    """Yield those being evicted first: the others have to fit beside them until they have stopped."""
    yield from (pair for pair in placed if pair[1].is_evicted)
    yield from (pair for pair in placed if not pair[1].is_evicted)


def _misfit(queue: QueueState, held: HeldWorkload) -> str | None:
    """Return a message that says which quota is missing; None if it fits."""
    for pair, amount in held.usage.items():
        # It is negative if the quota was lowered; the message then says that none was left.
        available = max(0, queue.node.available(pair))
        if amount > available:
            had, took = to_text(pair.resource, available), to_text(pair.resource, amount)
            return (
                f"ClusterQueue {queue.name} had {had} of {pair.resource} in flavor {pair.flavor} left when "
                f"another writer admitted this workload with {took}; of two admissions that exceed the quota "
                f"together, the one of lower priority is evicted, or else the later one"
            )
    return None


def _evict(held: HeldWorkload, message: str) -> Evict:
    """Return the eviction of a Workload that was admitted beyond the quota."""
    workload = held.workload
    return Evict(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=EvictionReason.OVER_ADMITTED,
        message=message,
        cluster_queue=held.admission.cluster_queue,
    )
