"""The gate of one cycle under `waitForPodsReady.blockAdmission`: one start, once all pods are ready.

The first entry that would be admitted shuts it, and waits. What comes after that entry in the cycle waits as
well, preemptors included: Workloads would be evicted for one that may not start yet. A preemptor before it is
not held back, because its victims may be the very Workloads whose pods do not become ready.
Source: Kueue, pkg/scheduler/scheduler.go, waitForPodsReadyIfNeeded, which stops in the middle of the cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.decisions.assignment import Mode
from admission.nomination.nominate import Entry


@dataclass(slots=True, kw_only=True)
class ReadinessGate:
    """What a cycle may admit. `has_unready`: a Workload that holds quota has pods that are not ready."""

    has_unready: bool
    is_shut: bool = False

    def holds_back(self, entry: Entry) -> bool:
        """Return whether the entry, whose turn has come and which fits or preempts, has to wait."""
        if not self.is_shut and self.has_unready and entry.assignment.mode is Mode.FIT:
            self.is_shut = True
        return self.is_shut

    def note_admitted(self) -> None:
        """Record that an entry was admitted: its pods are not ready yet."""
        self.has_unready = True
