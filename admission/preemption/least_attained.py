"""Least attained service: the levels of pending and running Workloads, and when time alone changes them.

Under `ordering.mode: LeastAttained` a pending Workload may preempt running Workloads of its own
ClusterQueue and priority that have reached a higher level, after their minimum run time. No separate
state is kept. The received service is recorded on the Workload (accumulatedPastExecutionTimeSeconds,
plus the present attempt since it reserved quota), so a new leader continues from the same values.
Theory and levels: `queues.pending.least_attained`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf, nextafter

from admission.preemption.eviction_cost import cost_if_asked
from admission.snapshot.attained_service import AttainedService
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from api.jobs.resource_requests import PodSetRequests
from api.parsing.quantities import add_amounts
from api.policy import Ordering, OrderingMode, PreemptionRules
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.estimates.runtime_estimate import Estimate, Source
from queues.pending.least_attained import FIRST, devices, leaves_level_at, level_of, next_look
from queues.quota.resources import by_resource

_DEFAULTS = PreemptionRules()
# In seconds: above every estimate (68 years).
_UNKNOWN = 2**31 - 1
# In Unix seconds: after every expected end.
_LAST = 2**53
# The least time between two examinations of one Workload.
_SOONEST_SECONDS = 1.0


def least_attained(queue: QueueState) -> Ordering | None:
    """Return the ordering section of the queue's policy where its mode is LeastAttained, else None."""
    ordering = queue.policy.ordering
    return ordering if ordering is not None and ordering.mode is OrderingMode.LEAST_ATTAINED else None


def waiting_since(workload: Workload) -> float:
    """Return since when a Workload without quota is pending: its last eviction, else its creation.

    In Unix seconds. The time of QuotaReserved=False is that of the last eviction.
    """
    reserved = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    has_run = workload.accumulated_execution_seconds > 0
    # Since its last run: for the time before that it has been served.
    return reserved.at if has_run and reserved is not None and not reserved.status else workload.created_at


def ages(workload: Workload, ordering: Ordering, *, now: float) -> int:
    """Return how many times `age_seconds` a pending Workload has waited since its last run."""
    return int((now - waiting_since(workload)) // ordering.age_seconds) if ordering.age_seconds else 0


def ages_at(workload: Workload, ordering: Ordering, *, now: float) -> float:
    """Return when time alone next changes a pending Workload's level, later than now; infinity: never.

    In Unix seconds. An age is a complete period of `ageSeconds` since the Workload last ran, or since its
    creation.
    """
    if ordering.age_seconds is None:
        return inf
    at = waiting_since(workload) + (ages(workload, ordering, now=now) + 1) * ordering.age_seconds
    # By rounding, an age may be complete at this very instant and not be counted yet.
    return max(at, nextafter(now, inf))


def pending_level(
    workload: Workload, requests: tuple[PodSetRequests, ...], ordering: Ordering, *, now: float
) -> int:
    """Return the level of a pending Workload: by the service it has received, less one for each age waited.

    It climbs by levels and does not jump to the first. In a busy cluster all preempted Workloads have
    waited about equally long. If all of them were put before new Workloads at once, a short new Workload
    would never be served quickly. In the lowest level it is the oldest, and after one more age it is
    first of all (FIRST).
    """
    total: dict[str, int] = {}
    for asked in requests:
        add_amounts(total, asked.total())
    received = devices(total) * workload.accumulated_execution_seconds
    return max(FIRST, level_of(received, ordering.level_ends) - ages(workload, ordering, now=now))


def predicted_level(workload: Workload, estimate: Estimate | None, ordering: Ordering, *, now: float) -> int:
    """Return the level of a pending Workload where the shortest goes first: its estimate in whole seconds.

    A Workload without an estimate goes last, and every Workload goes first once it has waited for an age.

    Whole seconds, so that equal estimates form one level, within which the older Workload goes first.
    """
    # Otherwise a stream of short Workloads would keep a long one pending for ever.
    if ages(workload, ordering, now=now):
        return FIRST
    return _UNKNOWN if estimate is None else min(_UNKNOWN, ceil(estimate.seconds))


def expected_end_level(since: float, estimate: Estimate | None, ordering: Ordering) -> int:
    """Return the level of a pending Workload where the earliest expected end goes first: that end.

    It is the end of a run that begins when the Workload was queued (`since`, by which equals are ordered), in
    whole Unix seconds. A Workload without an estimate counts as `unknown_seconds`, or as long as the longest
    one, `age_seconds`; without either it goes last. A learned estimate counts as `unknown_seconds` at most.
    So where there are no estimates, the order is that of `since`.
    """
    longest = inf if ordering.age_seconds is None else ordering.age_seconds
    unknown = longest if ordering.unknown_seconds is None else ordering.unknown_seconds
    seconds = min(longest, unknown if estimate is None else estimate.seconds)
    # Of similar Jobs, those that take long make the learned quantile long for all. Counted in full, it would
    # send a Job that declares nothing further back than if nothing were known of it: gangs wait longest then.
    if estimate is not None and estimate.source is Source.LEARNED:
        seconds = min(seconds, unknown)
    # Later ones cannot pass it any more once it has waited for that long: no Workload starves.
    return _LAST if seconds == inf else ceil(since + seconds)


def rules_of(queue: QueueState) -> PreemptionRules:
    """Return the preemption section of the queue's policy, or the defaults."""
    return queue.policy.preemption or _DEFAULTS


@dataclass(slots=True)
class LeastAttained:
    """The indexes of all ClusterQueues under least attained service, and when pending Workloads age.

    `books` holds an index for each ClusterQueue with such a policy. `_ageing` is a heap of instants (Unix
    seconds); entries of Workloads that were admitted or deleted stay until they are due.
    """

    books: dict[str, AttainedService[HeldWorkload]] = field(default_factory=dict)
    _ageing: list[tuple[float, WorkloadKey]] = field(default_factory=list)

    def watch_waiting(self, workload: Workload, ordering: Ordering, *, now: float) -> None:
        """Note when time alone next changes the level of a pending Workload.

        Call it again at each age. Without `ageSeconds` in the policy nothing is noted.
        """
        at = ages_at(workload, ordering, now=now)
        if at < inf:
            heappush(self._ageing, (at, workload.key))

    def aged(self, *, now: float) -> Iterator[WorkloadKey]:
        """Yield the Workloads that completed an age since the last call; some may no longer be pending."""
        while self._ageing and self._ageing[0][0] <= now:
            yield heappop(self._ageing)[1]

    def watch_running(self, held: HeldWorkload, queue: QueueState, *, now: float) -> None:
        """Enter a Workload that holds quota into its queue's index, where its policy is LeastAttained.

        During its minimum run time the Workload is not in the index, only its due time is. Call it again
        whenever it is due: the level that it has reached by then is computed from its received service, in
        device-seconds.
        """
        ordering = least_attained(queue)
        if ordering is None:
            return
        book = self.books.setdefault(queue.name, AttainedService())
        rules = rules_of(queue)
        at = held.reserved_at + rules.minimum_runtime_seconds
        if at <= now:
            count = devices(by_resource(held.usage))
            ran = held.workload.accumulated_execution_seconds + (now - held.reserved_at)
            # Such a Workload is assumed to save on request, so its loss does not grow while it runs.
            rank = cost_if_asked(held, queue.policy), -held.queued_at, held.workload.uid
            level = level_of(count * ran, ordering.level_ends)
            book.enter(held.key, held, level=level, rank=rank)
            at = leaves_level_at(count * ran, count, ordering.level_ends, now=now)
        if at < inf:
            # Never at once: by rounding, the time to leave a level may have come without the level being
            # left. A Workload that is due again now would be examined without end.
            at = max(at, now + _SOONEST_SECONDS)
            look_at = next_look(at, minimum_runtime_seconds=rules.minimum_runtime_seconds)
            book.set_due(held.key, look_at, since=held.reserved_at)

    def release(self, held: HeldWorkload) -> None:
        """Remove a Workload that no longer holds quota."""
        book = self.books.get(held.admission.cluster_queue)
        if book is not None:
            book.remove(held.key)

    def look(self, queue: QueueState, *, now: float) -> bool:
        """Examine the Workloads that are due. Returns whether more of them may be preempted now.

        The caller wakes the heads of the queue then. O(d log n) for d due Workloads.
        """
        book = self.books.get(queue.name)
        is_news = False
        for key, since in book.due(now=now) if book is not None else ():
            held = queue.held.get(key)
            # A due time of an earlier attempt is void.
            if held is not None and held.reserved_at == since:
                self.watch_running(held, queue, now=now)
                is_news = True
        return is_news

    def next_at(self, waiting: Iterator[str]) -> float | None:
        """Return when a Workload is due next (Unix seconds), None where none is.

        Running Workloads matter only in the queues named by `waiting`, which have pending ones.
        """
        ends = [self.books[name].next_at for name in waiting if name in self.books]
        ends += [self._ageing[0][0]] if self._ageing else []
        return min((end for end in ends if end is not None), default=None)
