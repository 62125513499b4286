"""Near promises: is a promised start so near that evictions for it would cost more than they gain?

    now            gone                 start
    ──┼──────────────┼────────────────────┼──▶
      evict now: the last victim leaves   the promise: running work ends by itself

    gain = devices of the preemptor × (start − gone)        device-seconds
    loss = what the victims lose (`admission.preemption.lost_work`)

The preemptor waits where the gain is no more than the loss, and where it starts at most
`minimumRuntimeSeconds` later than with evictions. That bound is the policy's own measure of how long work is
left alone, so no important Workload waits for hours to save the work of another.
"""

from __future__ import annotations

from admission.backfill.schedule_plan import SchedulePlan
from admission.nomination.nominate import Entry
from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.preemption.eviction_cost import devices_of
from admission.preemption.lost_work import EvictionLosses
from queues.estimates.estimator import may_be_evicted
from queues.profile.planned_start import PlannedStart


def promise_to_await(
    schedule_plan: SchedulePlan, entry: Entry, losses: EvictionLosses, *, now: float
) -> PlannedStart | None:
    """Return the promise of an entry with targets that is better awaited than sped up by evictions.

    None where the evictions pay, where one of them has begun, where the policy of the queue has no
    `preemption` section, and for inference, which serves users. None also for a promise that has moved later:
    the work that it waits for does not end as estimated.
    """
    section, promise = entry.queue.policy.preemption, schedule_plan.promises.get(entry.pending.key)
    if section is None or promise is None or not may_be_evicted(entry.pending.workload):
        return None
    planned = promise.planned
    if planned.moves or any(target.held.is_evicted for target in entry.targets):
        return None
    gone_at = now + max(leaving_seconds(one.held.workload, one.queue.policy) for one in entry.targets)
    sooner_seconds = planned.start_at - gone_at
    if sooner_seconds > section.minimum_runtime_seconds:
        return None
    loss = sum(losses.of(target.held, entry.queue) for target in entry.targets)
    return planned if devices_of(entry.assignment.usage) * sooner_seconds <= loss else None
