"""Scheduler: the cycle, and what becomes of each head.

Modules, in reading order:

    scheduler           one cycle: nominate, order, process
    entry_processing    the last of these: what becomes of each entry when its turn comes
    cycle_capacity      what the entries still find, and what they take or wait for
    readiness_gate      one admission at a time, while the pods of others are not ready
    hold_exceptions     heads that ignore a capacity hold, for which the snapshot is switched
    outcomes            the outcomes of processed entries, each with its message
    resumable_cycle     the same cycle in small steps, with pauses
    flavor_promotion    whether a Workload that holds quota would be better off in another flavor
    cycle_statistics    counts of a cycle for metrics

Decisions:

- A cycle pauses and is not split (`resumable_cycle`). Decisions in one quota tree depend on each other, so
  every 10 ms the trial is taken off the state, all other tasks run, and the trial is put back. State changes
  wait in the control loop's inbox until the cycle is over, since a busy cluster would otherwise restart it
  for ever. A change that has to be applied at once interrupts the cycle.
- Long searches within a cycle are generators for the same reason (`queues.steps`): victims, moves, a start to
  be promised, the first look at a shape on all nodes. So is the look at all promises before the cycle.
- Where a more important head ignores a hold, the snapshot is changed from head to head (`hold_exceptions`).
  All other heads see what they would see if no head ignored it.
- Kueue takes one head of each queue and waits a second between batches. Here cycles follow each other until
  nothing more can be decided.

What heads are nominated for, and in which order they come, is `admission.nomination`. Outcomes are applied
to the state by `admission.engine.apply_outcomes`.
"""
