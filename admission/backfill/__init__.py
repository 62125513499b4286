"""Backfill: when will a Workload start, and which Workloads may start before it?

Modules, in reading order:

    backfill_cycle            what a cycle asks of this room: judge, plan, settle, expire
    schedule_plan             the bookkeeping: ends of running work, promises, leases
    planned_starts            the promises in force
    promise_reports           what is to be reported about promises
    pending_revision          what has happened that may move promises
    running_estimates         how long a Workload is expected to run
    running_ends              when it gives its quota back
    visible_promises          which promises and running work a Workload must take into account
    profile_trial             the snapshot in the terms of the searches of `queues.profile`
    start_check               may a head that fits now start?
    near_promises             is a promise so near that evictions for it would cost more than they gain?
    planner                   the earliest start of a head that cannot start now
    revise_promises           which promises still hold, and which can be earlier
    improvable_promises       which promises could gain by capacity that came free
    due_queues                which queues must be tried because a promise changed
    leases                    which Workloads on a lease are evicted now
    reservation_preemption    which Workloads are evicted when an advance reservation begins
    expected_starts           when each pending Workload is expected to start
    reported_starts           which of these starts were reported

Decisions:

- Only less borrowing, a higher priority or a lower level takes precedence over what was promised to another
  Workload. Being older does not give the right to break a promise, nor does borrowing less than another
  Workload of the same ClusterQueue (`PlannedStart.is_outranked_by`).
- A Workload that overtakes a promised one runs on a lease (`start_check`). It is evicted for every
  promise of higher rank that does not fit beside it, including promises made later. So promises hold even
  where estimates are wrong.
- A promise can gain in two ways only: by a freed host that has room for one of its pods for long enough, or
  by quota that was short. What comes free is therefore kept piece by piece (`queues.profile.freed_capacity`),
  and an end costs a look at each promise and a search for those that it could help (`improvable_promises`).
- A Workload with a promised start is not tried before it is due. If it could start earlier, its promise
  would have been moved.
- Under backfill a StrictFIFO queue parks its head like any other queue. What may pass the head is decided by
  its promise, not by the queueing strategy.
- Which Workloads are evicted at the start of an advance reservation follows from estimates, annotations and
  starts (`reservation_preemption`) and not from leases. So nothing has to survive a change of leader.

The profile of capacity over time and its searches are `queues.profile`; how estimates are learned is
`queues.estimates`; quota windows and reservations are `admission.calendar`.
"""
