"""Nomination: what does each head ask for, and in which order are heads tried?

Modules, in reading order:

    rejection          heads that may not be admitted whatever the quota
    nominate           the best assignment of one head if it were alone in the cycle, with its victims
    entry_ordering     the order in which the nominated heads are served
    hold_exceptions    heads that ignore a capacity hold, for which the snapshot is switched

Decisions:

- A Workload for which others were evicted is served first, until it is admitted or gives up
  (`entry_ordering`). In Kueue's plain order an older victim takes its place back before the preemptor is
  served, and is evicted again, without end. First attempts, and so all decisions of one cycle on a fresh
  cluster, are the same as Kueue's.
- Where a more important head ignores a hold, the snapshot is changed from head to head (`hold_exceptions`).
  All other heads see what they would see if no head ignored it.

What becomes of the heads in that order is decided by `admission.scheduler`.
"""
