"""Metrics: counters and histograms, and the log lines and Events of decisions.

Modules, in reading order:

    registry             metrics of the process, by subject; names are Kueue's where Kueue has them
    histogram            histograms whose series are light
    exposition           their text, as Prometheus reads it
    measuring            connects the metrics with what they measure
    decision_recorder    log, Events and metrics of each decision and write
    placement_metrics    what placement did
    workload_metrics     what becomes of Workloads, by ClusterQueue and LocalQueue
    eviction_metrics     what evictions cost
    object_metrics       unreadable objects, and times that Jobs, pods and nodes need
    queue_series         the metrics whose series end with a queue
    labels               custom labels, and which LocalQueues have metrics

What becomes of a Workload is counted by comparing its object with the version before, whichever
process wrote it. So each step is counted once, and the numbers of successive leaders add up. Gauges
of queues are `admission.controller.gauges`.

What is measured does not know its metrics: the cluster state reports to lists of observers
(`admission.controller.cluster_state.observers`), the control loop to a `LoopObserver`.
"""
