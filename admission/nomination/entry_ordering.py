"""The order in which the nominated heads of a cycle are served.

Without fair sharing: least borrow height first, then higher priority, then the older. With fair sharing, each
tree of cohorts holds a tournament: every cohort passes the best of its children upward, and each child is
judged by the share that it would have with its head admitted.

            root                   the winner of root is served; then the tournament is held again,
            ├── a ── x (share 10)  because serving it has changed the shares on its path to the root
            │   └─── y (share 30)
            └── z (share 20)

In both orders a preemptor comes first: a Workload that others were evicted for, until it is admitted or gives
up. The freed capacity was freed for it. In the plain order a victim that is older, or has the smaller borrow
height, takes its place back before the preemptor is served. It is then evicted again, and so for ever, as
fast as the two phases of an eviction allow, with work lost each time. Kueue has this order behind the feature
gate PrioritizePreemptorWorkloads. Here it always applies, since it changes nothing about first attempts.
Source: Kueue, pkg/scheduler/scheduler.go, makeIterator; fair_sharing_iterator.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from admission.nomination.nominate import Entry
from admission.snapshot.queue_state import QueueTree
from admission.snapshot.snapshot import Snapshot
from queues.quota.fair_sharing import DominantShare, dominant_resource_share
from queues.quota.quota_tree import QuotaNode

_Rank = tuple[bool, bool, tuple[float, float], int, float, str]


def classical_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries: preemptors first, then least borrow height, higher priority, and the older."""
    yield from sorted(entries, key=_classical_rank)


def fair_order(snapshot: Snapshot, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries by tournament; each must be served before the next is requested.

    Quota trees are independent of each other, and come in the order of their names.
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
    # The entries that have not been served, by ClusterQueue.
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
        """Record the share that every node on the way up would have with the entry admitted.

        Victims of entries that were served before still run, so their usage counts.
        """
        with self.snapshot.evictions.counted_again():
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
        """Judge the entries below a cohort whose usage may have changed. The root has no share to change."""
        changed = {node.name for node in served.queue.node.ancestors() if node.parent is not None}
        if not changed:
            return
        self._judge(
            entry
            for entry in self.waiting.values()
            if any(node.name in changed for node in entry.queue.node.ancestors())
        )

    def _winner(self, node: QuotaNode) -> Entry | None:
        """Return the best waiting entry below the node, None if there is none."""
        best: dict[int, Entry | None] = {}
        # Children first, and no recursion: a chain of Cohorts may be longer than Python's stack.
        for one in reversed(list(node.nodes())):
            if one.is_queue:
                best[id(one)] = self.waiting.get(one.name)
                continue
            found = [winner for child in one.children if (winner := best[id(child)]) is not None]
            rank = partial(self._rank, parent=one)
            best[id(one)] = min(found, key=rank, default=None)
        return best[id(node)]

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
