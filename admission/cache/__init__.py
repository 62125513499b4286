"""Cache: what is known about queues, pending Workloads and Workloads that hold quota.

Modules, in reading order:

    specs                 what administrators write, by name
    node_tenants          which Workloads have pods on which hosts
    affected_trees        which quota trees a changed ClusterQueue concerns
    cache                 what follows from it: quota trees, usage, inactive queues
    inactive_reasons      why a ClusterQueue is inactive
    workload_record       one Workload with its requests and shape
    workload_changed      the event of a changed object, for what acts on the difference
    touched_statuses      which statuses have to be written again
    workload_index        all Workloads by key, and the unfinished ones by LocalQueue
    trees_to_try          which quota trees a cycle has to try, and what wakes parked Workloads
    priority_boost        the priority that a Workload's annotation adds to
    pending_workloads     which queue a Workload waits in, at which level, with which reason
    second_pass_queue     admitted Workloads that need nodes
    slice_succession      what a slice takes over from another
    adopted_admission     another leader's admission, charged as the spec says
    admitted_workloads    which Workloads hold quota, assumed or confirmed
    workload_usage        what one Workload has used, waited for and lost
    deleted_usage         the same of deleted Workloads, by day
    workload_store        changes of objects move Workloads between these two
    finished_runs         what finished runs teach
    in_use                which objects keep a finalizer
    overadmission         quota that two writers have given away twice

Decisions:

- Workloads that a changed spec moves to another queue are placed in steps (`WorkloadStore.catch_up`). Queries
  in between show the progress so far: a state with half of the Workloads placed is as true as the state
  before the last events. A caller that decides does the rest at once, since a decision on half of the
  Workloads would be wrong.
- A ClusterQueue keeps a finalizer while Workloads hold its quota (`in_use`). Without the object its usage
  would count nowhere, and the cohort would give away what is still in use. As in Kueue, the same holds for
  flavors, topologies and checks while another spec names them.
- A Workload that was preempted and reports its checkpoints waits at a level before all others of its priority
  (`savedFirst`, `PendingWorkloads._level_of`). The reason is in `admission.preemption`.
- Over-admission is recognised by which writer checked an admission, and against which quota, not by usage
  above the quota: an administrator may lower a quota under running work (`overadmission`). An admission is
  checked if it appears during the term and no decision of this leader had assumed it, one second after it was
  seen; or if the term began with it and it was checked against the present quota. It is evicted
  (`OverAdmitted`) if it does not fit beside all others: the lowest priority first, then the latest.

Nothing is scheduled here: a change only marks the trees that the next cycle has to try.
"""
