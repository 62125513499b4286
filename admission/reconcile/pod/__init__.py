"""The integration of plain pods and pod groups: `reconcile_pods` returns what they and their Workload need.

A *unit* is what is admitted as a whole: a single pod, or all pods of one group.

Modules, in reading order:

    view          one look at a unit: its pods and its Workload
    reconcile     the rules and their order
    compose       how the Workload of a unit is made, and kept in step
    groups        rules for groups only: pods that are missing, too many, or failed
    gang          PodGroups with a minimum: a group, and pods beyond it
    stateful_set  the Workload of a StatefulSet, with and without pods
    whole         when a serving group may be evicted
    imported      pods that were put into a queue while they ran
    start         how pods are ungated
    unreachable   pods that cannot end, whether queued or not
    parents       what Deployments, StatefulSets and LeaderWorkerSets give their pods
    defaults      what a pod gets when it is created
    writes        how an answer becomes a request and an Event

Decisions:

- A pod waits at its scheduling gate and is deleted to be stopped. A gate cannot be added again, so the
  Workload of a single pod ends with it, and the next pod has another Workload. The Workload of a group stays
  and waits for replacements.
- Dead pods of a group lose their finalizer only after the living ones have become owners of the Workload,
  since the garbage collector deletes a Workload with its last owner.
- With a topology a pod gets its domain in the patch that removes both of its gates. The second gate stays
  only while there is no free place, such as where a failed node is yet to be replaced.
- The Workload of a StatefulSet exists before its pods. A pod that the set would create, at its gate, stands
  for them, so that the rules for groups hold for it too. What the pods request is what they say once they
  exist: where all of them request more, an admitted Workload is made again.
- Serving groups are owned by what outlives their pods: the StatefulSet, or the LeaderWorkerSet. The latter
  owns none of the pods directly and is found by their label
  (`admission.controller.cluster_state.leader_worker_sets`).
- A serving group is evicted as a whole or not at all (`whole`). The API server evicts pod by pod, and dry
  runs do not add up, so budgets are counted by their status before the first pod is evicted. That all pods
  may go is written to the Workload first, so that a new leader finishes what was begun.
- No status shows in advance what an admission webhook will refuse. Its answer is reported on the Workload,
  and because of that condition the Workload is spared for a while.

Budgets that several groups share are counted in `admission.controller.cluster_state.disruption_budgets`.
"""
