"""Leadership: what a leader does between winning the lease and its first decision, and what it leaves behind.

Modules, in reading order:

    takeover                term after term while this replica leads, and what is done when the store objects
    term_runner             the steps of one term: list, recover, take over the plan, decide
    stray_starts            Jobs whose start an earlier term may have under way
    recover_reservations    confirm, replay, drop or release each reservation found
    plan_writer             the leader's plan in the store
    open_store              the store that the options name, with signed values
    plan_reader             the same plan on a replica that follows
    kueue_guard             a live Kueue on the cluster keeps Berth from starting

Decisions:

- A new leader lists Workloads by quorum after it won the lease, then judges each reservation by one table
  (`admission.reconcile.reservation_recovery`).
- A leader that wins its lease back before any other process has led lists nothing: it reads only the
  Workloads whose writes had no answer (`term_runner` says why that is enough).
- A reservation is replayed only where it fits (`recover_reservations`). The leader that made it may have
  given the quota to another Workload while the store was lost, and died before it could record that. Until
  the cluster shows the admission, it counts like a decision of this leader.
- Before a reservation is released, the Workload is written (`berth.dev/fence`), so that a delayed write of
  the old leader fails with 409.
- A term takes back at its start what an earlier one decided without carrying it out: between losing and
  winning the lease no process writes.
- The plan is written before the admissions of its cycle are sent, and each write names the version that it
  builds upon (`queues.reservations.plan`). A store that was emptied, restored or rebuilt has another version,
  and the leader writes the whole plan again.

The lease itself is `api.kube.lease`; the rules for restoring promises are `admission.engine.restore_plan`.
"""
