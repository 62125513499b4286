"""Metrics: counters and histograms, and the log lines and Events of decisions.

Modules, in reading order:

    registry             metrics of the process, by subject; names are Kueue's where Kueue has them
    decision_recorder    log, Events and metrics of each decision and write
    workload_metrics     what becomes of Workloads, by ClusterQueue and LocalQueue
    eviction_metrics     what evictions cost
    placement_metrics    what placement did
    gang_wait_times      waits of gangs by Job
    labels               custom labels, and which LocalQueues have metrics

What becomes of a Workload is counted by comparing its object with the version before, whichever
process wrote it. So each step is counted once, and the numbers of successive leaders add up. Gauges
of queues are `admission.controller.gauges`.
"""
