"""Calendar: which quota windows and advance reservations are in force, now and later?

Modules, in reading order:

    quota_windows           the quotas in force at an instant, and when that changes
    window_overlaps         which windows of a policy are ever open together
    advance_reservations    capacity that is kept for a LocalQueue from a start to an end
    reserved_domains        reservations of a whole topology domain
    upcoming_changes        both as edges for the profile of capacity over time

Decisions:

- A quota window changes the quota that decisions use, as an edit of the ClusterQueue would. The quota trees
  are built from the quotas in force, and built again at each boundary. So borrowing, fair sharing and reclaim
  hold for windows without a rule of their own. In the profile a change of quota is an edge like an end or a
  promise. It shifts the nominal quota itself (`QuotaNode.shift`): to charge usage of the same amount instead
  would lend and borrow differently.
- Which windows of a policy overlap is found by one sweep, in steps, when the policy changes
  (`window_overlaps`). Comparing pair by pair for each write of the policy's status would cost a look at
  thousands of pairs. The sweep gives the same answer as a fresh comparison of the objects.
- An advance reservation is a claim in the profile and does not appear in the quota tree. Every Workload but
  its members has to leave capacity for it, so its quota is counted once, at the member that uses it.
- A reserved domain claims the pod slots of its nodes (the resource `pods`) and not their GPUs. Every pod
  takes a slot, so no other pod is placed there whatever it requests and whatever other pods run there. The
  same claim keeps other Workloads off in promises, in backfill and when failed nodes are replaced. Members
  are limited to the domain by a rule of their placement, like a node selector.

Which Workloads are evicted when a reservation begins is decided in
`admission.backfill.reservation_preemption`. The windows of one quota along time are arithmetic, in
`queues.quota.window_timeline`.
"""
