"""Gauges: the metrics of queues and cohorts that are read when Prometheus scrapes.

Modules, in reading order:

    families            name, labels and samples of each gauge; a new gauge is one line here
    admitted_by_labels  numbers of admitted Workloads by their custom labels
    reader              what the gauges show, read from the state
    collector           the scrape, and the end of series whose object is gone

Decisions:

- Gauges are read at scrape time, in slices of time, and rendered to text in a thread. So they cost
  nothing in between and cannot drift. Only numbers that would need a look at every Workload are updated
  with each change (`admission.controller.cluster_state.workload_counts`).
- Deleted objects take their series with them.

Counters and histograms are `admission.controller.metrics`.
"""
