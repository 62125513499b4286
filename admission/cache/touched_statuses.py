"""Touched statuses: the objects whose status may have changed since statuses were last written."""

from __future__ import annotations

from admission.cache.specs import Specs
from queues.pending.pending_queue import LocalQueueKey


class TouchedStatuses:
    """The names of touched objects by kind. One task owns it; the engine empties it when it reports them."""

    def __init__(self) -> None:
        self.cluster_queues: set[str] = set()
        self.local_queues: set[LocalQueueKey] = set()
        self.cohorts: set[str] = set()
        self.policies: set[str] = set()
        self.checks: set[str] = set()

    def touch_all(self, specs: Specs) -> None:
        """Mark the statuses of all queues as touched, since a change of specs may show in any of them."""
        # All are marked although few are affected: statuses are compared before they are written.
        self.cluster_queues.update(specs.cluster_queues)
        self.local_queues.update(specs.local_queues)
        self.cohorts.update(specs.cohorts)
        self.policies.update(specs.written_policies)
        self.checks.update(specs.checks)

    def clear(self) -> None:
        """Forget all marks: the caller of the engine writes these statuses now."""
        self.cluster_queues.clear()
        self.local_queues.clear()
        self.cohorts.clear()
        self.policies.clear()
        self.checks.clear()
