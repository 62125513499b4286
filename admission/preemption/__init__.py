"""Preemption: which Workloads are evicted for another one, in which order, and what is lost?

Modules, in reading order:

    preemptor                       the entry point: victims for a Workload, and what evictions could do
    preemption_request              what a Workload needs from evictions
    candidates                      which Workloads may be evicted, by which right, in which order
    candidate_pools                 the candidates of a cohort, collected once for each cycle
    targets                         Kueue's search: remove until the preemptor fits, then fill back
    fair_sharing                    victims under fair sharing
    least_attained                  least attained service: the levels
    least_attained_victims          and its victims
    eviction_cost                   one formula for the cost of an eviction
    lost_work                       the loss in device-seconds, and which Workloads a policy protects
    device_price                    the same loss in money
    least_loss                      the set of victims that loses least
    node_cover                      the nodes on which room for a gang is cheapest
    replicas                        how many replicas of an application a search may still take
    consolidation                   moving Workloads so that a gang gets a domain
    checkpoint_before_eviction      evictions that wait for the victim's checkpoint

Decisions:

- Candidates are collected once for each cycle and queue (`candidate_pools`). A decision changes which queues
  overuse their quota, but not which Workloads run in them. The lists of the overusing queues are merged only
  as far as a search reads.
- A loss is counted in device-seconds and bounded (`lost_work`). Most terms are declared by the Job itself, so
  no declaration may protect a Workload from eviction. A Workload that reports no checkpoints is placed at the
  median of those that do.
- To find the smallest loss is a covering knapsack. The nodes that are cheapest to free (`node_cover`) and
  a few orders of Kueue's own search are tried, and the cheapest answer is taken (`least_loss`). It is
  never worse than Kueue's.
- Victims that report their checkpoints lose least and are therefore evicted more often, so reporting made a
  Job wait longer. With `savedFirst` they return before others of their priority
  (`admission.cache.pending_workloads`). This also keeps Workloads running that can be evicted cheaply when
  the next burst comes. On the Philly trace it saves 17% of all losses. Three alternatives gave no gain that
  several seeds confirm: letting preemptors wait for natural ends, keeping Workloads that report on nodes of
  their own, and other caps on what counts as lost.
- A search counts the replicas that it takes (`replicas`) and does not leave budgets to the API server alone.
  Otherwise a Workload would be marked for eviction while its pods may not be evicted. It would keep its
  quota, and the preemptor would wait for ever.
- Under least attained service the Workload that came last is evicted first among equals
  (`least_attained_victims`). The first to come keeps running.
- To move Workloads is a preemption with a second half (`consolidation`). A plan counts only if the gang and
  every moved Workload have a place in it, and it is carried out by ordinary evictions. The other places are
  not reserved while the moved Workloads stop. A moved Workload goes before all others of its priority
  instead, so there is no state that a crash could lose.
- The stage of an eviction that waits for a checkpoint is derived at each look: from the annotation on the
  Workload (`api.eviction`), the reported checkpoints, and whether the preemptor still waits. So no transition
  can be half done. From the decision on, the victim counts as leaving, with its quota: searches for room
  choose it before any other.

Which victims a head takes is used in `admission.nomination` and `admission.scheduler`. Evictions are written
by `admission.reconcile` and sent by `admission.controller.writer`.
"""
