"""Decisions: the values that leave the core, and the values that searches hand to each other.

Modules, in reading order:

    decision            what was decided: `Admit`, `Evict`, `Wait`, `Reassign`, `Unreplaced`, `Plan`
    api_writes          writes to the API server and Events, with their purpose
    assignment          the answer of the flavor search for each pod set
    flavor_mode         how good a flavor is for a request: Kueue's granular mode, and how far it borrows
    assignment_memo     answers of the flavor search that may be reused, with the questions they depend on

Decisions:

- Values that a cycle creates by the thousand are `msgspec.Struct`s, frozen where they should not change. The
  contract is that of a frozen dataclass, implemented in C. The constructor of a frozen dataclass sets every
  field through `object.__setattr__`, which took an eighth of all time spent deciding. A changed copy is made
  with `msgspec.structs.replace`. All other values are dataclasses.
- A decision names the Workload's uid and the resourceVersion that was read (`DecisionId`). So a decision that
  is taken back late never ends a newer one, and its write fails with 409 once the object has changed.

Nothing is decided here. How a decision becomes a write is `admission.reconcile.decision_writes`; how it is
sent, `admission.controller.writer`.
"""
