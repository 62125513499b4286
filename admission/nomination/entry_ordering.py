"""In which order the nominated heads of a cycle are served.

Without fair sharing: who borrows from nearest first, then priority, then age. With it, each tree of cohorts
holds a tournament: every cohort sends the best of its children upward, each child judged by the share it
would have with its newcomer admitted.

Before both comes the Workload that others were evicted for, until it is admitted or gives up. What came free
was freed for it. In the plain order an evicted Workload that is older, or borrows from nearer, takes its
place back before the preemptor gets there, is evicted again, and so for ever: as fast as the two phases of
an eviction go, with work lost each time. Kueue has this order behind the gate PrioritizePreemptorWorkloads;
here it always holds, as it says nothing about a first attempt.

            root                   the winner of root is served; then the tournament begins anew,
            ├── a ── x (share 10)  since what was served has changed the shares above it
            │   └─── y (share 30)
            └── z (share 20)
Source: Kueue, pkg/scheduler/scheduler.go, makeIterator; fair_sharing_iterator.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from admission.nomination.nominate import Entry
from admission.snapshot.snapshot import QueueTree, Snapshot
from queues.quota.fair_sharing import DominantShare, dominant_resource_share
from queues.quota.quota_tree import QuotaNode

_Rank = tuple[bool, bool, tuple[float, float], int, float, str]


def classical_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Return the entries: preemptors, then least borrow height, then higher priority, then the older."""
    yield from sorted(entries, key=_classical_rank)


def fair_order(snapshot: Snapshot, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Return the entries by tournament; each must be served before the next is asked for.

    Trees do not touch each other's quota; they come in the order of their names.
    """
    by_tree: dict[str, list[Entry]] = {}
    trees: dict[str, QueueTree] = {}
    for entry in entries:
        tree = entry.queue.tree
        name = f"{tree.root.is_queue} {tree.root.name}"
        trees[name] = tree
        by_tree.setdefault(name, []).append(entry)
    for name in sorted(by_tree):
        yield from _Tournament(snapshot, trees[name].root, by_tree[name]).winners()


def _classical_rank(entry: Entry) -> tuple[bool, int, int, float, str]:
    workload = entry.pending.workload
    return (
        not entry.is_preemptor,
        entry.assignment.borrowing,
        -workload.priority,
        entry.pending.place_at,
        workload.uid,
    )


@dataclass(slots=True)
class _Tournament:
    snapshot: Snapshot
    root: QuotaNode
    entries: list[Entry]
    # Who has not been served, by ClusterQueue.
    waiting: dict[str, Entry] = field(default_factory=dict)
    # By ClusterQueue of the entry: the share of each node on the way up, by the name of the node's parent.
    shares: dict[str, dict[str, DominantShare]] = field(default_factory=dict)

    def winners(self) -> Iterator[Entry]:
        self.waiting = {entry.queue.name: entry for entry in self.entries}
        self._judge(self.entries)
        while self.waiting:
            winner = self._winner(self.root)
            assert winner is not None, "a tree with waiting entries has a winner"
            del self.waiting[winner.queue.name]
            yield winner
            self._judge_neighbours(winner)

    def _judge(self, entries: Iterable[Entry]) -> None:
        """Note the share that every node on the way up would have with the entry admitted.

        Who is to be evicted for an entry served before still runs, so it counts.
        """
        with self.snapshot.with_evicted():
            for entry in entries:
                node = entry.queue.node
                node.add(entry.assignment.usage)
                self.shares[entry.queue.name] = {
                    one.parent.name: dominant_resource_share(one)
                    for one in (node, *node.ancestors())
                    if one.parent is not None
                }
                node.remove(entry.assignment.usage)

    def _judge_neighbours(self, served: Entry) -> None:
        """Judge anew those below a cohort whose usage may have changed. The root has no share to change."""
        changed = {node.name for node in served.queue.node.ancestors() if node.parent is not None}
        if not changed:
            return
        self._judge(
            entry
            for entry in self.waiting.values()
            if any(node.name in changed for node in entry.queue.node.ancestors())
        )

    def _winner(self, node: QuotaNode) -> Entry | None:
        if node.is_queue:
            return self.waiting.get(node.name)
        candidates = [winner for child in node.children if (winner := self._winner(child)) is not None]
        return min(candidates, key=lambda entry: self._rank(entry, node), default=None)

    def _rank(self, entry: Entry, parent: QuotaNode) -> _Rank:
        share = self.shares[entry.queue.name][parent.name]
        workload = entry.pending.workload
        requested = [pair for pair, amount in entry.assignment.usage.items() if amount > 0]
        return (
            not entry.is_preemptor,
            share.is_borrowing_any(requested),
            share.order,
            -workload.priority,
            entry.pending.place_at,
            workload.uid,
        )
