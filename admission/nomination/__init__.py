"""Nomination: what does each head ask for, and in which order are heads tried?

Modules, in reading order:

    nominate_heads    the first phase of a cycle: every head is nominated, or answered
    nominate          the best assignment of one head if it were alone in the cycle, with its victims
    head_outcome      what was decided for a head, and the outcome of one that fits nowhere
    entry_ordering    the order in which the nominated heads are served

Decisions:

- Under backfill a head that is inadmissible leaves no trace in the cycle (`nominate_heads`). The next one of
  its queue is nominated in the same cycle, and nothing is reserved for the first. Otherwise it would matter
  to other heads whether it was tried at all, and the cheap conditions of `admission.flavors.feasibility`
  could not skip it.
- A Workload for which others were evicted is served first, until it is admitted or gives up
  (`entry_ordering`). In Kueue's plain order an older victim takes its place back before the preemptor is
  served, and is evicted again, without end. First attempts, and so all decisions of one cycle on a fresh
  cluster, are the same as Kueue's.

What becomes of the heads in that order is decided by `admission.scheduler`.
"""
