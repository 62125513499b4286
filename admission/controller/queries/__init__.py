"""Queries: what people and programs ask the controller over HTTP, from its page and from assistants.

Modules, in reading order:

    service         the one service behind /v1, the page and `berth mcp`
    watching        pages that stay up to date, as server-sent events
    views           which of these pages are kept, and for how long
    callers         what callers may see, and how often they may ask
    running         what each caller has running at once
    authorization   whose token it is, and what RBAC allows its user
    review_budget   how many reviews of tokens and rights a client may cause
    copies          computes in copies of this process, beside the event loop
    standing_copy   a copy that is kept for a while, for lists

Decisions:

- An answer is computed in a forked copy of the process (`copies`), as Redis saves its data: the copy sees the
  state of one instant, may change it freely, and costs the event loop a few milliseconds whatever is asked. A
  second process with its own watch would take the memory twice and know neither promises nor what the leader
  has decided and not written yet; slices on the event loop would slow the leader down.
- Lists of a large cluster come from one copy that is replaced twice a second, and that keeps what it has
  computed (`standing_copy`). Keeping sorted orders and positions up to date in the leader itself would cost
  each decision some microseconds, also while no client asks.
- Rights are those of the API server: a token's user sees the Workloads of the namespaces in which it may list
  them. There is no second table of who may see what.

What is answered is computed by `admission.answers`.
"""
