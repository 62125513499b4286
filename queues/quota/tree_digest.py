"""The digest of a quota tree: tells whether two decisions were made against the same quotas.

It differs when a quota or a limit of any node differs, or the place of a node in the tree. Usage and weights
do not matter. It is the same in every process, so it may be stored.
"""

from __future__ import annotations

from hashlib import blake2b
from operator import itemgetter

import msgspec

from queues.quota.quota_tree import QuotaNode


def tree_digest(node: QuotaNode) -> str:
    """Return the digest of the whole tree that `node` belongs to: 16 hexadecimal digits.

    O(cells of the tree) for the first question; a tree that is built again is asked again.
    """
    root = node.root
    if not root.tree_digest:
        # Cohorts and ClusterQueues may share names, but not within their kind.
        declarations = sorted(map(_declaration, root.nodes()))
        root.tree_digest = blake2b(msgspec.json.encode(declarations), digest_size=8).hexdigest()
    return root.tree_digest


def _declaration(node: QuotaNode) -> tuple[object, ...]:
    """Return kind, name, place and declared quotas of a node. Not its cells, which a trial may shift."""
    quotas = [
        (*pair, quota.nominal, quota.borrowing_limit, quota.lending_limit)
        for pair, quota in sorted(node.quotas.items(), key=itemgetter(0))
    ]
    return (node.is_queue, node.name, node.parent.name if node.parent is not None else None, quotas)
