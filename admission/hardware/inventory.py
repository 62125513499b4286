"""The kinds of nodes that flavors have, and why none of them fits a request.

A flavor's nodes are those with its labels, ready or not: a node that is away may return. Node changes update
the counts of the flavors that were asked about, so a question costs an evaluation for each kind of node and
not for each node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from admission.hardware.fit import HardwareRequest, misfit
from admission.hardware.gpu_pods import GpuPods
from admission.hardware.node_hardware import NodeHardware, NodeKinds, is_spot
from admission.hardware.rules import HardwareRules
from api.node import NodeInfo

Labels = frozenset[tuple[str, str]]


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of a flavor are like. Nodes without GPUs count only where there are no others.

    `spot_share` is the share of nodes that the cloud may take away. `device_price` is what a GPU costs per
    hour on average over the nodes with a price, None without any. `generation` is the oldest one, 0 where it
    is not known. `gpus_per_node` is that of most nodes.
    """

    spot_share: float = 0.0
    device_price: float | None = None
    generation: int = 0
    gpus_per_node: int = 0


_Known = tuple[NodeInfo, NodeHardware]
# Requests whose answers are kept.
_MOST_ANSWERS = 1024


class HardwareInventory:
    """Which kinds of nodes have which labels. `rules` bind the pods that are asked about."""

    def __init__(self, rules: HardwareRules | None = None) -> None:
        self.rules = rules or HardwareRules()
        # The pods with GPUs on all nodes, placed by Berth or not.
        self.gpu_pods = GpuPods()
        # Whether a flavor that was asked about has another choice of kinds since `take_news`.
        self._has_news = False
        self._kinds = NodeKinds()
        self._nodes: dict[str, _Known] = {}
        self._counts: dict[Labels, Counter[NodeHardware]] = {}
        self._answers: dict[tuple[Labels, HardwareRequest], str | None] = {}
        self._summaries: dict[Labels, NodeSummary] = {}

    def put(self, node: NodeInfo) -> None:
        """Add or update a node."""
        before, after = self._nodes.get(node.name), (node, self._kinds.of(node))
        self._nodes[node.name] = after
        self._move(before, after)

    def drop(self, name: str) -> None:
        """Remove a node. No effect for an unknown one."""
        self._move(self._nodes.pop(name, None), None)

    def of(self, node: NodeInfo) -> NodeHardware:
        """Return what a node offers, whether it was put in or not."""
        known = self._nodes.get(node.name)
        return known[1] if known is not None and known[0] is node else self._kinds.of(node)

    def take_news(self) -> bool:
        """Return whether answers may have changed since the last call: a kind of node has come or gone."""
        has_news, self._has_news = self._has_news, False
        return has_news

    def refusal(self, labels: Mapping[str, str], need: HardwareRequest) -> str | None:
        """Return why no node with these labels fits, with counts of nodes; None where one fits.

        None also where no node is known: the nodes may yet be created.
        """
        key = frozenset(labels.items()), need
        if key not in self._answers:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = _refusal(self._counted(key[0]), need)
        return self._answers[key]

    def summary(self, labels: Mapping[str, str]) -> NodeSummary:
        """Return what the nodes with these labels are like.

        While no node is known the labels themselves say whether they will be spot nodes.
        """
        key = frozenset(labels.items())
        known = self._summaries.get(key)
        if known is None:
            counts = self._counted(key)
            known = _summary(counts) if counts else NodeSummary(spot_share=float(is_spot(labels)))
            self._summaries[key] = known
        return known

    def _counted(self, labels: Labels) -> Counter[NodeHardware]:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = Counter()
            for node, kind in self._nodes.values():
                if labels <= node.labels.items():
                    counts[kind] += 1
        return counts

    def _move(self, before: _Known | None, after: _Known | None) -> None:
        """Count a node as it is now in place of what it was."""
        for labels, counts in self._counts.items():
            left, joined = _kind_within(labels, before), _kind_within(labels, after)
            if left == joined:
                continue
            # The sentences count nodes, so every change of a number changes them.
            self._answers.clear()
            self._summaries.pop(labels, None)
            if joined is not None:
                self._has_news |= joined not in counts
                counts[joined] += 1
            if left is not None:
                counts[left] -= 1
                if not counts[left]:
                    del counts[left]
                    self._has_news = True


def _kind_within(labels: Labels, known: _Known | None) -> NodeHardware | None:
    """Return the node's kind where it has these labels."""
    return known[1] if known is not None and labels <= known[0].labels.items() else None


def _summary(counts: Mapping[NodeHardware, int]) -> NodeSummary:
    with_gpus = {kind: nodes for kind, nodes in counts.items() if kind.gpus > 0} or counts
    prices = [(kind.cost, kind.gpus, nodes) for kind, nodes in with_gpus.items() if kind.cost and kind.gpus]
    gpus = sum(gpus * nodes for _, gpus, nodes in prices)
    sizes: Counter[int] = Counter()
    for kind, nodes in with_gpus.items():
        sizes[kind.gpus] += nodes
    return NodeSummary(
        spot_share=sum(n for kind, n in with_gpus.items() if kind.is_spot) / sum(with_gpus.values()),
        device_price=sum(cost * nodes for cost, _, nodes in prices) / gpus if gpus else None,
        generation=min(kind.generation for kind in with_gpus),
        # Of two sizes with as many nodes the larger one, whatever the order in which nodes came.
        gpus_per_node=max(sizes, key=lambda size: (sizes[size], size)),
    )


def _refusal(counts: Mapping[NodeHardware, int], need: HardwareRequest) -> str | None:
    reasons: Counter[str] = Counter()
    for kind, nodes in counts.items():
        found = misfit(need, kind)
        if found is None:
            return None
        reasons[str(found)] += nodes
    if not reasons:
        return None
    most_first = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    words = "; ".join(f"{nodes} × {reason}" for reason, nodes in most_first)
    return f"none of {sum(reasons.values())} nodes has the hardware that its pods need: {words}"
