"""Pending: which Workload of a ClusterQueue is tried next, and when is it tried again?

Modules, in reading order:

    pending_queue             the pending Workloads of one ClusterQueue: active, parked or limited
    entries                   one Workload in it, and how far its search for flavors has come
    members                   where each of them is: in the class of its equals, or parked alone
    parked_alone              those parked alone, and the ends of their back-offs
    precedence                those that come before their turn, because capacity was freed for them
    shape                     what makes two requests equal
    equivalence_classes       the classes of equal requests
    lanes                     Workloads tried in one order: one lane, or one for each LocalQueue
    ordering                  priority, then age, then uid
    requeuing                 why a Workload returns, and what follows
    least_attained            levels of received service
    admission_fair_sharing    LocalQueues served by past usage

Decisions:

- Equal requests form one class (`shape`, `equivalence_classes`). What does not fit for one of them does not
  fit for the others, so parking and waking cost one step for each class and not for each Workload.
- Past usage is counted in billionths and stored in the LocalQueue's status (`admission_fair_sharing`). The
  newer of status and memory counts, so a new leader continues where the last one stopped.
- Each LocalQueue is a lane of its ClusterQueue (`lanes`). Which lane is next is computed when a head is
  wanted, instead of sorting all Workloads again.
- A queue under backfill is tried by shape and length (`lanes`). A Workload that may not run for an
  hour because of a promise may not run for two. So of a class only the shorter Workloads are tried
  until capacity comes free.

Whether a Workload fits is decided in `admission`; what wakes it, in `admission.cache.trees_to_try`.
"""
