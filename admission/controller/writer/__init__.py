"""Writer: decisions and requests of reconcilers on their way to the API server.

Modules, in reading order:

    acting              what the control loop acts through
    leader_term         one term: reserve a cycle's admissions, send them, see them through
    term_reservations   what a term writes to the store: reservations, confirmations, the decision log
    dispatch            orders that need no reservation: evictions, waits, reassignments, reconcilers' writes
    write_order         a write with its callbacks, and how it ended
    executor            sends: ordered for each object, bounded in number, never without the lease
    lanes               writes on one object in order; which object is served next
    delivery            one write: its attempts, and what their answers mean
    priorities          which writes are sent first
    in_flight_limit     how many requests the API server takes at a time
    requests            from a write to method, path and content type
    fencing             moves a Workload to another version, so that a delayed write fails
    observe_mode        shadow mode: decisions are logged, nothing is written

Decisions:

- Reserve before patch. One Lua call commits the admissions of a whole cycle. It checks the fence, the request
  id (a repeated call answers what the first did) and that no other live reservation exists. It keeps no quota
  counters, since a second source of truth would drift.
- Every write has three guards: the fence in Redis; the lease, read right before sending, which says how long
  the request may take; and the resourceVersion that the decision saw.
- A write without an answer may arrive later, so its quota is given back only once it cannot (`fencing`). The
  executor reports on which version a refused write may still be stored, and the Workload is moved off that
  version before any other Workload is tried. Where even that is refused, the Workload keeps its quota and
  fencing is tried again.
- A write that is built again is built on the spec that was decided on. A decision that is taken back is named
  by the version it saw.
- How many requests are in flight follows the latency of the server (`in_flight_limit`), like TCP. A fixed
  number is too few for a distant server and too many for one that is overloaded.
- A write without an answer is followed by a read, and is sent again only if the read does not show it: a slow
  server has usually stored it, and a second copy would be more work for it.

Nothing is decided here. How a decision becomes a write is `admission.reconcile.decision_writes`.
"""
