"""The kinds that `berth get` lists: what is read with the reader's rights, and what is printed.

Modules, in reading order:

    output          table, wide table, JSON, YAML or names; filters, sorting, and watching
    rights          reads what the reader may read: the whole cluster, or else one namespace
    from_controller  Workloads as the controller knows them, where the reader may read only a part
    workloads       Workloads with position, expected start and reason
    queues          ClusterQueues, or the LocalQueues of a namespace
    policies        policies and reservations
    estimates       how long similar Workloads ran

Each module is imported only for its own kind: the engine, which positions need, takes longer to import than
the list of the queues takes in all.
"""
