"""The life of a Workload outside the decision: `reconcile_workload` returns what it needs next.

Modules, in reading order:

    context      what must be known of the cluster and the configuration, and the answer
    look         one look at a Workload
    reconcile    all rules that have no module of their own, and their order
    admitted     rules for Workloads that hold quota
    node_requests  ProvisioningRequests and their templates: created, taken over and deleted
    node_checks  what a ProvisioningRequest says of its check
    promised     annotations about a promised start
    nodes        failed nodes under a placed Workload
    unstarted    PodsReady=False of a Workload that has been told nothing yet
    unbound      pods that kube-scheduler cannot bind where they were sent
    misplaced    pods that run on other nodes than their Workload was given
    ungate       which pods are ungated, and on which nodes
    addressed    the static addresses of pods, and the nodes that follow from them
    saving       evictions that wait for a checkpoint
    held_back    evictions that a budget holds back

Decisions:

- An eviction that waits for a checkpoint is recorded on its Workload alone (`api.eviction`). Its stage is
  derived at each look from the annotation, the reported checkpoints and whether the preemptor still waits
  (`saving`), so no transition can be half done.
- A preemption that a budget holds back for a minute is taken back (`held_back`). A Workload that is leaving
  is preferred as a victim over all others, and a budget may never let it go.
- A ProvisioningRequest is for one attempt of one check, and its name says which: Workload, check, number. So
  any leader finds it again, and a request that Kueue has made goes on. Its templates are created before it,
  owned by the Workload, and belong to it once it is there: a crash in between leaves nothing behind.
- Writes on requests go beside the other writes of the Workload (`node_requests`): an autoscaler's kind that
  cannot be written delays neither an eviction nor the end of a Workload.
- Failed nodes are recorded in `status.unhealthyNodes` by Kueue's rules (`nodes`). Their replacement is
  a decision of `admission.engine.second_pass`.
"""
