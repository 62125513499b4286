"""Snapshot: what does one cycle see and try on, and which capacity is held for which Workload?

Modules, in reading order:

    snapshot            the state that a cycle decides on
    queue_state         a ClusterQueue and its quota tree
    held_workload       a Workload that holds quota
    trial               changes of usage, recorded and undone exactly
    cycle_evictions     the Workloads that are gone in this cycle
    candidate_order     the Workloads that hold quota of a ClusterQueue, in Kueue's order of eviction
    attained_service    its running Workloads by level of received service, for least attained service
    capacity_holds      capacity freed for a preemptor, kept for it until it starts
    hold_totals         the sum of all holds, kept from one cycle to the next
    usage_overlay       a change of usage that applies to a whole cycle
    recent_moves        the Workloads that consolidation has moved in the last hour

Decisions:

- Nothing is copied. The snapshot is the cache's own state, and a trial adds and removes usage with exact
  inverses. Kueue copies its cache for every cycle.
- Kueue's order of eviction is kept from cycle to cycle, since few Workloads come and go between
  two of them (`candidate_order`).
- When a running Workload passes its minimum run time or reaches the next level of service is known in
  advance. So these changes are scheduled by time (`attained_service`), and a search for victims costs as many
  steps as it takes victims, not as many as there are running Workloads.
- Freed capacity is a claim on the snapshot of each cycle and not quota, since no Workload uses it yet
  (`capacity_holds`). Dozens of claims exist at a time and nearly cancel out with the victims that leave for
  them. Their sum is therefore kept and applied in one step (`hold_totals`).
- Holds and moves are rows of the stored plan, and are written before the evictions are sent. A leader that
  dies between two evictions thus leaves no gap that another Workload could use.
- A hold waits for every Workload that occupies what its own Workload lacks, quota or nodes, and not only for
  those that were evicted for it.

Which heads ignore a hold is decided in `admission.scheduler.hold_exceptions`.
"""
