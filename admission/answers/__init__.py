"""What the controller answers to people and programs: lists, explanations, and what would happen if.

Modules, in reading order:

    items           the items of each list, as they are on the wire
    sight           what a caller may see
    selection       which items of a list are wanted: filters, order, page
    workload_items  Workloads
    queue_items     ClusterQueues, LocalQueues and Cohorts, with quota
    rack_items      topology domains with free GPUs
    promise_items   promised starts, and entries of the decision log
    lists           the lists, what each can be filtered and sorted by, and pages of them

Decisions:

- A caller sees an item or it does not (`sight`), and nearly all items are the same for all who see them. So a
  list cannot reveal a name by accident.
- A page continues after the last item that was returned, not at an offset: items that come and go meanwhile
  neither repeat nor hide others (`selection`).

An answer is computed from an engine and does not change it. The shell (`admission.controller.queries`) knows
who asks, and computes beside the event loop.
"""
