"""Taking a queue apart, its invariants checked at every step."""

from __future__ import annotations

from queues.pending.pending_queue import PendingQueue


def pop_all(queue: PendingQueue) -> list[str]:
    """Return the names of all pending Workloads in the order in which they are popped, and leave it empty."""
    names = []
    while (head := queue.pop()) is not None:
        names.append(head.key.name)
        queue.validate()
    return names
