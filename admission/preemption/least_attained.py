"""Taking turns: the levels of those who wait and who run, and when time alone changes whose turn it is.

Under `ordering.mode: LeastAttained` a Workload that waits may take the place of running ones of its own
ClusterQueue and priority that have reached a higher level, after their minimum run time. Nothing of it is
kept anywhere: what was received stands on the Workload (accumulatedPastExecutionTimeSeconds, and the present
attempt since it has its quota), so a new leader goes on where the last one stopped.
Theory and levels: `queues.pending.least_attained`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf, nextafter

from admission.preemption.eviction_cost import cost_if_asked
from admission.snapshot.attained_service import AttainedService
from admission.snapshot.snapshot import HeldWorkload, QueueState
from api.jobs.resource_requests import PodSetRequests
from api.policy import Ordering, OrderingMode, PreemptionRules
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from queues.estimates.runtime_estimate import Estimate
from queues.pending.least_attained import FIRST, devices, leaves_level_at, level_of, next_look
from queues.quota.resources import by_resource

_DEFAULTS = PreemptionRules()
# Behind every estimate, in seconds: 68 years.
_UNKNOWN = 2**31 - 1
# The least time between two looks at one Workload.
_SOONEST_SECONDS = 1.0


def least_attained(queue: QueueState) -> Ordering | None:
    """Return the ordering of the queue where it is by least attained service, else None."""
    ordering = queue.policy.ordering
    return ordering if ordering is not None and ordering.mode is OrderingMode.LEAST_ATTAINED else None


def waiting_since(workload: Workload) -> float:
    """Return since when a Workload without quota waits: its last eviction, else its creation."""
    reserved = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    has_run = workload.accumulated_execution_seconds > 0
    # Since it ran last: what it waited for before that it has received.
    return reserved.at if has_run and reserved is not None and not reserved.status else workload.created_at


def ages(workload: Workload, ordering: Ordering, *, now: float) -> int:
    """Return how often a Workload that waits has waited for `age_seconds` since it ran last."""
    return int((now - waiting_since(workload)) // ordering.age_seconds) if ordering.age_seconds else 0


def ages_at(workload: Workload, ordering: Ordering, *, now: float) -> float:
    """Return when time alone next changes the place of one that waits, after now; infinity for never."""
    if ordering.age_seconds is None:
        return inf
    at = waiting_since(workload) + (ages(workload, ordering, now=now) + 1) * ordering.age_seconds
    # By rounding an age may be full this very instant and yet not be counted.
    return max(at, nextafter(now, inf))


def pending_level(
    workload: Workload, requests: tuple[PodSetRequests, ...], ordering: Ordering, *, now: float
) -> int:
    """Return the level of a Workload that waits: by what it has received, less one for each age waited.

    It climbs rather than jumps. Whoever has been sent back in a busy cluster has waited for as long as all
    the others who were: were they all put before the newcomers at once, nobody's turn would ever be short.
    In the lowest level it is the oldest, and after one more age it goes before all (FIRST).
    """
    total: dict[str, int] = {}
    for asked in requests:
        for resource, amount in asked.total().items():
            total[resource] = total.get(resource, 0) + amount
    received = devices(total) * workload.accumulated_execution_seconds
    return max(FIRST, level_of(received, ordering.level_ends) - ages(workload, ordering, now=now))


def predicted_level(workload: Workload, estimate: Estimate | None, ordering: Ordering, *, now: float) -> int:
    """Return the level of a Workload that waits where the shortest goes first: its estimate in seconds.

    Who says nothing and was never seen before goes last, and before all once it has waited for too long.
    """
    # Or a stream of short ones would keep a long one out for ever.
    if ages(workload, ordering, now=now):
        return FIRST
    return _UNKNOWN if estimate is None else min(_UNKNOWN, ceil(estimate.seconds))


def rules_of(queue: QueueState) -> PreemptionRules:
    """Return what the queue's policy says of evictions, or the defaults."""
    return queue.policy.preemption or _DEFAULTS


@dataclass(slots=True)
class LeastAttained:
    """The books of all ClusterQueues that take turns, and who ages when."""

    books: dict[str, AttainedService[HeldWorkload]] = field(default_factory=dict)
    _ageing: list[tuple[float, WorkloadKey]] = field(default_factory=list)

    def watch_waiting(self, workload: Workload, ordering: Ordering, *, now: float) -> None:
        """Note when time alone next changes the place of a Workload that waits."""
        at = ages_at(workload, ordering, now=now)
        if at < inf:
            heappush(self._ageing, (at, workload.key))

    def aged(self, *, now: float) -> Iterator[WorkloadKey]:
        """Yield who has waited for another age since the last call; some may wait no more."""
        while self._ageing and self._ageing[0][0] <= now:
            yield heappop(self._ageing)[1]

    def watch_running(self, held: HeldWorkload, queue: QueueState, *, now: float) -> None:
        """Enter a Workload that holds quota into its queue's book, if that takes turns."""
        ordering = least_attained(queue)
        if ordering is None:
            return
        book = self.books.setdefault(queue.name, AttainedService())
        rules = rules_of(queue)
        at = held.reserved_at + rules.minimum_runtime_seconds
        if at <= now:
            count = devices(by_resource(held.usage))
            ran = held.workload.accumulated_execution_seconds + max(0.0, now - held.reserved_at)
            # Whoever takes turns is taken to save on request, so its loss does not grow while it runs.
            rank = cost_if_asked(held, queue.policy), -held.queued_at, held.workload.uid
            level = level_of(count * ran, ordering.level_ends)
            book.enter(held.key, held, level=level, rank=rank)
            at = leaves_level_at(count * ran, count, ordering.level_ends, now=now)
        if at < inf:
            # Never at once: by rounding a level may be left this very instant and yet not be left, and
            # a look that appoints itself for now would have no end.
            at = max(at, now + _SOONEST_SECONDS)
            look_at = next_look(at, minimum_runtime_seconds=rules.minimum_runtime_seconds)
            book.appoint(held.key, look_at, since=held.reserved_at)

    def release(self, held: HeldWorkload) -> None:
        """Forget a Workload that holds no quota any more."""
        book = self.books.get(held.admission.cluster_queue)
        if book is not None:
            book.remove(held.key)

    def look(self, queue: QueueState, *, now: float) -> bool:
        """Keep the appointments that have come. Returns whether anybody may have to give way now."""
        book = self.books.get(queue.name)
        is_news = False
        for key, since in book.due(now=now) if book is not None else ():
            held = queue.held.get(key)
            # An appointment of an earlier run of it is void.
            if held is not None and held.reserved_at == since:
                self.watch_running(held, queue, now=now)
                is_news = True
        return is_news

    def next_at(self, waiting: Iterator[str]) -> float | None:
        """Return when to look again; whoever runs matters only in the queues where somebody waits."""
        ends = [self.books[name].next_at for name in waiting if name in self.books]
        ends += [self._ageing[0][0]] if self._ageing else []
        return min((end for end in ends if end is not None), default=None)
