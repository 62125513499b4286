"""Cluster state: what the controller knows, and which objects have to be reconciled.

Modules, in reading order:

    cluster_state         the parts of the state, and how Jobs and Workloads come in: by a watch or an answer
    observers             what is reported of changed Workloads, and to what
    object_cache          Jobs and Workloads as last seen, with their bytes
    dirty_set             the Jobs and Workloads that have to be reconciled
    prebuilt_names        which Jobs name a prebuilt Workload
    pod_groups            pods that are queued themselves, by unit
    pod_gangs             how many pods of a PodGroup must run together
    reconcile_contexts    what a reconciler is given of the cluster
    spec_cache            queues, flavors, policies, namespaces and priority classes
    node_cache            nodes as far as placement needs them, their faults and their labels
    placed_pods           pods that are placed by topology, and those that wait at their gate
    leaving_pods          pods of elastic Jobs that have yet to end
    ending_pods           pods that may be given up if their node cannot be reached
    slice_chains          the slices of elastic Jobs
    node_pod_watch        the one watch of nodes and pods, for placement and extender
    workload_pods         the pods of Workloads, for checkpoints
    disruption_budgets    what PodDisruptionBudgets leave, after evictions that are under way
    leader_worker_sets    LeaderWorkerSets in queues
    stateful_sets         StatefulSets in queues, and which group of pods each has
    pending_evictions     evictions that wait for a checkpoint
    refused_evictions     evictions that the API server has refused
    finalizers            finalizers on queues, flavors, topologies and checks
    invalid_objects       objects that break a rule
    workload_counts       numbers of Workloads by LocalQueue

Decisions:

- Objects are kept with their bytes, because writes are built from them. The answer to our own write is
  taken in like a watch event, and the newer of both is kept (`ObjectCache.is_newer`), so the next write
  never conflicts with ourselves.
- LeaderWorkerSets are no owner of their groups' pods and are found by the pods' label (`leader_worker_sets`).
- The name of a StatefulSet's group follows from the pods and the Workload that exist before it follows from
  the set (`stateful_sets`), so that groups of older releases, and of sets that were created again, go on.
- Groups that share a PodDisruptionBudget are counted together (`disruption_budgets`).
- Finalizers are looked at again like a status (`finalizers`) and are not written by the code
  that handles a deletion.
- Nodes and pods are watched once for placement and for the extender (`node_pod_watch`, `api.kube.shared`). A
  listener that comes later is given everything that is known.
- What depends on how a Workload changes observes one event, `WorkloadTransition`, and compares its two
  versions. The observers are an explicit list in the order of their calls (`observers`).
- Numbers that would need a look at every Workload are updated with each change (`workload_counts`).

Only the control loop changes this state; informers post their changes to its inbox.
"""
