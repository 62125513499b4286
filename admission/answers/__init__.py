"""What the controller answers to people and programs: lists, explanations, and what would happen if.

Modules, in reading order:

    items            the items of each list, as they are on the wire
    sight            what a caller may see
    selection        which items of a list are wanted: filters, order, page
    workload_items   Workloads
    queue_items      ClusterQueues, LocalQueues and Cohorts, with quota
    rack_items       topology domains with free GPUs
    promise_items    promised starts, and entries of the decision log
    lists            the lists, what each can be filtered and sorted by, and pages of them
    usage            what Workloads have used, waited for and lost
    health           whether the replica works, and which objects are of no use as they are
    explaining       what becomes of one Workload, and what would help
    starts           starts as annotations show them
    holding          a Workload that holds quota: where it runs, and until when
    run_time         how long a Workload is expected to run, and what promises count with
    what_if          Jobs that are not submitted, and queues, policies and nodes that differ
    job_translation  Jobs become the Workloads that a cluster would create for them
    manifest_loader  manifests become the values of an engine
    copying          what these need of copies of an engine
    api_keys         rows as JSON with the keys of the API

Decisions:

- A caller sees an item or it does not (`sight`), and nearly all items are the same for all who see them. So a
  list cannot reveal a name by accident.
- A page continues after the last item that was returned, not at an offset: items that come and go meanwhile
  neither repeat nor hide others (`selection`).

An answer is computed from an engine and does not change it. The shell (`admission.controller.queries`) knows
who asks, and computes beside the event loop.
"""
