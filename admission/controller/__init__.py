"""The controller: the shell around the core. Time, tasks, signals and metrics are here; policy is not.

Modules, in reading order:

    app              wiring: one controller from its options, its start and its end
    settings         the configuration file, passed on to each part
    integration_rights   which integrations the cluster grants, asked at the start
    kinds            the watched kinds, and where their changes go
    loop             the control loop, which owns all mutable state
    cluster_state    what is known: the engine, objects with their bytes, what has to be reconciled
    leadership       from winning the lease to the first decision, and the stored plan
    writer           decisions and requests of reconcilers on their way to the API server
    queries          who asks what, with which rights, and where answers are computed
    http             HTTP handlers: state, webhooks, visibility, extender, checkpoints
    queries          what callers ask, each with its own rights
    page             the same in a browser
    gauges           gauges of queues and cohorts
    metrics          counters and histograms
    runtime          clocks, timers, logs, failpoints

One task, the control loop, owns all mutable state. Informers, the executor and HTTP handlers put calls into
its inbox or read frozen views. The loop never awaits the API server.
"""
