"""Loop: the one task that owns the state, reconciles and decides.

Modules, in reading order:

    control_loop        the loop: inbox, reconcile, cycle, statuses
    cycle_runner        one cycle, in steps that make way for other tasks
    cycle_pace          when the next cycle may begin while answers are outstanding
    observer            what the loop reports of its work to the metrics
    reconcile_queue     what the loop does for one object, and with the answer to its write
    status_writer       when the status of a queue is written
    pending_messages    when to report why a Workload waits
    forecasting         when expected starts are computed
    progress            since when a turn of the loop has not ended
    watchdog            ends the process if a turn, or a step of the event loop, does not end

Decisions:

- A Workload gets the reason why it waits after one second, and again only when the reason changes
  (`pending_messages`). A Workload that only waits on costs no write. Decisions use up the budget of these
  writes (`api.kube.report_budget`), since what starts Workloads precedes what reports.
- Workloads that no cycle has tried are looked for in quiet moments (`Engine.explain`): those behind a
  StrictFIFO head, or in a class of equal requests whose other member was refused. None of them is written to
  while there is anything to decide.
- Statuses of queues are collected (`status_writer`): written at once when the queue is quiet, and within such
  a budget under load.
- An object that asked for a write on another object (a pod to ungate, a Workload to create) is reconciled
  again when that write is refused: after the other object's back-off, and at once when the other object has
  changed or is gone (`reconcile_queue`). The reconcilers are level-triggered, but nothing else would mark it.

Reconcilers and the engine decide; `admission.controller.writer` sends.
"""
