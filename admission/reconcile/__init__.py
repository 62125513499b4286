"""Reconcile: what do a Job, a pod group and a Workload need next, apart from a decision?

Create the Workload of a Job, start, stop, restore, release, finish, requeue: each is worked out by a pure
function from the object as it is now. All of them are level-triggered and return at most one write for an
object at a time, so a crash between two writes loses nothing.

Modules, in reading order:

    job                     batch/v1 Jobs and their Workloads
    pod                     plain pods, pod groups and serving groups
    provisioning            what must be known to ask the cluster's autoscaler for nodes
    workload                Workloads of any owner: checks, evictions, failed nodes, pods at the gate
    deadlines               when time alone changes something: back-off, time-outs, retention
    checkpoints             what a report of a checkpoint changes, on the Job and on the Workload
    copied_metadata         labels and annotations that a Workload copies from its Job or pod
    workload_writes         writes on a Workload: its status as edited, patches, its end
    decision_texts          decisions in sentences
    decision_writes         decisions as writes, with their Events
    reservation_recovery    what a new leader does with each reservation it finds

Decisions:

- Statuses are written by PUT, built from the last seen bytes, and not as patches (`api.status_edit`).
  PUT is the cheapest verb of the API server that is still safe, and fields of newer Kueue versions
  survive. The answer to our own write is taken in like a watch event, so the next write to the object
  never conflicts with ourselves.
- Quota is released in two phases, as in Kueue: Evicted=True, then the Job is suspended, then the reservation
  is released.
- Reports of checkpoints are stored on the nearest object that lives as long as the work: the Job, the queued
  pod, or the Workload of a group. The Workload takes them over by one rule (`checkpoints`): an instant only
  moves forward and is never in the future. Decisions, dry runs and recorded cases read Workloads alone.
  Measured times are stored on the Job too, so nothing has to be rebuilt.

Writes are sent by `admission.controller.writer`. What a reconciler must know of the cluster comes as
a context from `admission.controller.cluster_state.reconcile_contexts`.
"""
