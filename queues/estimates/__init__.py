"""Estimates: how long does a Workload run, and how wrong are estimates of its start?

Modules, in reading order:

    estimator           the expected run time, from the first source that has one
    runtime_estimate    learned run times, and how an exceeded estimate is raised
    run_history         finished runs, each counted once
    start_errors        how far from their estimates Workloads started, and the interval that follows

Decisions:

- A run is counted once, whichever source reports it (`run_history`): by the uid of its Workload and in the
  order of the runs' ends. So watches, finished Workloads and the store give the same estimates and scores in
  whatever order they report.

What promises do with an estimate is decided in `admission.backfill`.
"""
