"""Kueue and Berth in turns through Kueue's own performance runner: `python -m bench.versus`, `make versus`.

    report.py   what one run measured, its medians and the table
    shapes.py   the runner's configurations, at any scale
    build.py    Kueue's controller and runner, built once from the Go modules that kueue/go.mod pins
    proxy.py    a connection on which every answer of the API server comes later
    turn.py     one run of one controller

The runner creates ClusterQueues and Workloads, finishes each admitted Workload after its run time, and
completes each eviction. It ends when no active ClusterQueue has pending or reserving Workloads. Both
controllers meet the same API server with the same definitions, and are ready before the runner starts.
"""
