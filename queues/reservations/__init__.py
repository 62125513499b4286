"""Reservations: quota between a decision and its confirmation, and the plan for the next leader.

Modules, in reading order:

    reservations           reservations, the contract of a store, and its errors
    memory_reservations    the store in memory: the model that all other stores must agree with
    usage_rows             what deleted Workloads used, by day
    plan                   promises, leases, holds, learned run times and usage as a store keeps them
    memory_plan            the model of the stored plan

Decisions:

- A reservation keeps no quota counter. A second source of truth beside the Workloads would drift.
- The plan is written in one chain (`plan`): each write names the version that it builds upon. A store that
  was emptied, restored or rebuilt has another version, and the leader writes the whole plan again. A call
  that arrives late changes nothing. Followers see by one small value whether to read.
- Rows of the plan are keyed by Workload and not by root cohort, since a cycle changes a few promises of many.

Redis is `queues.store`. When the plan is written is decided by `admission.controller.leadership.plan_writer`:
before the admissions of its cycle are sent.
"""
