"""Scheduler: the cycle, and what becomes of each head.

Modules, in reading order:

    scheduler           one cycle: nominate, order, process
    outcomes            what may become of a head, each with its message
    resumable_cycle     the same cycle in small steps, with pauses
    cycle_statistics    counts of a cycle for metrics

Decisions:

- A cycle pauses and is not split (`resumable_cycle`). Decisions in one quota tree depend on each other, so
  every 10 ms the trial is taken off the state, all other tasks run, and the trial is put back. State changes
  wait in the control loop's inbox until the cycle is over, since a busy cluster would otherwise restart it
  for ever. A change that has to be applied at once interrupts the cycle.
- Long searches within a cycle are generators for the same reason (`queues.steps`): victims, moves, a start to
  be promised, the first look at a shape on all nodes. So is the look at all promises before the cycle.
- Under backfill a head that is inadmissible leaves no trace in the cycle (`PassOn`). The next one of its
  queue is nominated in the same cycle, and nothing is reserved for the first. Otherwise it would matter to
  other heads whether it was tried at all, and the cheap conditions of `admission.flavors.feasibility`
  could not skip it.
- Kueue takes one head of each queue and waits a second between batches. Here cycles follow each other until
  nothing more can be decided.

Outcomes are applied to the state by `admission.engine.apply_outcomes`.
"""
