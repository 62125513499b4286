"""Engine: objects go in, decisions come out, questions are answered.

Modules, in reading order:

    engine                the class that owns all mutable state of scheduling
    updates               objects in: new, changed, deleted or unreadable, in any order
    under_way             the unfinished cycle and check of promises, which a change of what is known ends
    queue_queries         questions about queues, Cohorts and policies; a query decides nothing
    workload_queries      questions about Workloads
    node_queries          questions about nodes and what is placed on them
    static_addresses      the static addresses of Workloads that have places
    promise_queries       questions about promised and expected starts
    time_step             what time alone changes between two cycles
    apply_outcomes        the outcome of a head becomes state
    readiness_block       no admission while the pods of another are not ready, if so configured
    second_pass           new nodes for admitted Workloads that lost some
    promotions            moves of Workloads that hold quota to better flavors
    explain_pending       reasons for Workloads that no cycle has tried
    restore_plan          promises, leases and history of the previous leader
    start_forecasts       when pending Workloads are expected to start
    usage_sampling        past usage for admission fair sharing, brought up to now
    overadmission_check   evictions of what other writers admitted beyond the quota
    settings              the configuration file in the engine's own types

Decisions:

- A queue does not wait for an eviction where the freed capacity is held (`apply_outcomes`). In Kueue a queue
  stops from an eviction until its preemptor has started, so victims would save their checkpoints one after
  another. Here the preemptor is parked with a hold, and so is a Workload that needs no more than what a
  victim leaves over. It is tried again when its victims have stopped or there may be room elsewhere, and then
  comes first of its priority, because of equal requests the first one that is tried decides for all. No
  Workload passes a StrictFIFO head, as in Kueue.
- Failed nodes are replaced outside the cycle (`second_pass`). A changed node marks the Workloads on it,
  `admission.reconcile.workload.nodes` writes `status.unhealthyNodes` by Kueue's rules, and before the next
  cycle all lost nodes of a Workload are replaced in one decision. That takes two writes and no timer, and
  what is unfinished after a crash is recorded in the object.
- A new leader keeps the promises of its predecessor where their Workloads still wait, and checks each once
  (`restore_plan`). What a promise claims is computed again from its admission. Without backfill nothing of
  this is read or kept.
- A new term takes back what an earlier one decided without carrying it out (`Engine.forget_all`). Between
  losing and winning the lease no process writes, so only what the cluster shows counts.
- Pending Workloads that no cycle tries get their reason in quiet moments (`Engine.explain`): those behind a
  StrictFIFO head, and those whose class of equal requests was refused with another member.
- The engine wakes Workloads at once where Kueue collects events for a second. It collects wake-ups only
  until the next cycle.

The engine does no I/O and reads no clock. The control loop (`admission.controller.loop`) drives it;
`admission.simulation` does so on a virtual clock.
"""
