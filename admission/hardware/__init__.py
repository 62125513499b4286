"""Hardware: what a pod asks of its node's hardware, what a node offers, and whether the two fit.

Modules, in reading order:

    rules           which rules bind a pod: those of its scheduler name's profile
    settings        the rules of a configuration file
    pod_hardware    what the keys of a pod say: model, memory, parallelism, type
    islands         the linked GPUs of a node, and what pods leave of them
    node_hardware   what a node offers, by its labels and amounts
    gpu_pods        the pods with GPUs on each node, and how many more find an island
    fit             the one function: fits, or not, and why
    label_problems  labels of nodes that cannot be understood, and GPUs that several pods record
    record_faults   pods whose record of their GPUs cannot be read
    inventory       the kinds of nodes that the flavors have, and why none of them fits

Decisions:

- There is one function, `fit.misfit`, and everything that chooses a node calls it: flavors, placement,
  replacement, victims and the scheduler extender. A node that admission assigns is therefore not refused
  when kube-scheduler asks the extender.
- The room is below placement and knows no queue, flavor or Workload. Callers pass labels, annotations and
  amounts.
- Nodes with equal hardware are one value (`NodeHardware`), so a cluster of twenty thousand nodes costs one
  evaluation for each kind of node.
- Whatever a pod asks by a key of its own binds everywhere. The rules of a profile bind the pods of its
  scheduler name, whether or not the extender runs: the configuration is the same.
- Each key is read on the pod first, because the extender sees nothing else, then on its Job.
"""
