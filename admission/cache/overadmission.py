"""Over-admission: quota that two writers gave away against each other, found and given back.

One leader never admits beyond the quota: it weighs each admission against all that it knows and counts it at
once. Two writers can, each without knowledge of the other: a leader cut off from the store whose last patch
arrives late, or another program that admits by itself. Usage beyond the quota is no sign of it, though: an
administrator who lowers a quota leaves running work beyond it, and as in Kueue that work goes on.

What tells them apart is who weighed the admission. *Unweighed* is one that the cluster shows after our term
began and that no decision of ours had assumed; what the list at the term's beginning shows was somebody's
considered decision, whatever the quota is by now. Each unweighed admission is asked, once, what the scheduler
would have asked: does it fit beside all the others? The ones before are asked before the ones after (by the
time of their QuotaReserved), so of two that exclude each other the latest is evicted. What we decided
ourselves was weighed and is never touched, nor is work that a quota was taken from under.

An admission may be shown to us before the quota that it was made on, for each kind has a watch of its own:
so the question is put a moment after the admission was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from admission.cache.cache import Cache
from admission.decisions.decision import Evict
from admission.snapshot.snapshot import HeldWorkload, QueueState
from api.parsing.quantities import to_text
from api.reasons import EvictionReason
from api.workload import WorkloadKey

# So long a watch may lag behind another before an admission is judged by a quota that was changed before it.
SETTLING_SECONDS = 1.0


def due_at(cache: Cache, unweighed: Mapping[WorkloadKey, float]) -> float | None:
    """Return when the next unweighed admission is to be judged; `unweighed` tells when each was seen."""
    seen = [at for key, at in unweighed.items() if not cache.held[key].is_evicted]
    return min(seen) + SETTLING_SECONDS if seen else None


def judge(
    cache: Cache, unweighed: Mapping[WorkloadKey, float], *, now: float
) -> tuple[list[WorkloadKey], list[Evict]]:
    """Return which of the unweighed that are due fit, and the evictions of those that do not.

    Leaves `cache` as it was.
    """
    # By when the quota was reserved, which stands in the object: every leader would judge in the same order.
    held = sorted((cache.held[key] for key in unweighed), key=lambda one: (one.reserved_at, one.key))
    snapshot = cache.snapshot()
    placed = [(cache.queues[one.admission.cluster_queue], one) for one in held if _has_queue(cache, one)]
    # Of a queue that is gone nobody can say that it is too much.
    fitting = [one.key for one in held if not _has_queue(cache, one)]
    evictions: list[Evict] = []
    try:
        # All of them are taken off first and put back one by one, so each is asked beside those
        # that came before it and not beside those that came after.
        for queue, one in placed:
            snapshot.remove(queue, one.usage)
        for queue, one in _leaving_first(placed):
            is_due = unweighed[one.key] + SETTLING_SECONDS <= now
            # Whoever leaves already frees its quota anyway; a second eviction would say nothing new.
            message = None if one.is_evicted else _misfit(queue, one)
            # Not due yet: counted as if it fitted, for it holds what it holds.
            if message is not None and is_due:
                evictions.append(_evict(one, message))
                continue
            snapshot.add(queue, one.usage)
            if message is None and is_due and not one.is_evicted:
                fitting.append(one.key)
    finally:
        # A look only: the evictions are decisions, and counted when they are carried out.
        snapshot.rollback()
    return fitting, evictions


def _has_queue(cache: Cache, held: HeldWorkload) -> bool:
    return held.admission.cluster_queue in cache.queues


def _leaving_first(
    placed: list[tuple[QueueState, HeldWorkload]],
) -> Iterator[tuple[QueueState, HeldWorkload]]:
    """Yield those who were told to stop first: they hold their quota until they have."""
    # They hold their quota until they have stopped, so the others have to fit beside them.
    yield from (pair for pair in placed if pair[1].is_evicted)
    yield from (pair for pair in placed if not pair[1].is_evicted)


def _misfit(queue: QueueState, held: HeldWorkload) -> str | None:
    """Return the sentence that says what is missing; None where it fits."""
    for pair, amount in held.usage.items():
        # Negative where the quota was lowered; in the sentence that is none left.
        available = max(0, queue.node.available(pair))
        if amount > available:
            had, took = to_text(pair.resource, available), to_text(pair.resource, amount)
            return (
                f"ClusterQueue {queue.name} had {had} of {pair.resource} in flavor {pair.flavor} left when "
                f"another writer admitted this workload with {took}; the later of two admissions that were "
                f"made against each other gives way"
            )
    return None


def _evict(held: HeldWorkload, message: str) -> Evict:
    workload = held.workload
    return Evict(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=EvictionReason.OVER_ADMITTED,
        message=message,
        cluster_queue=held.admission.cluster_queue,
    )
