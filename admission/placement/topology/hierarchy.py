"""The hierarchy that the labels of a cluster's nodes describe, and where the labels contradict each other.

Placement identifies a domain by the values of all levels down to it, the widest first. This requires that a
node has every level's label. Levels should also nest: one value of a level should be within one value of the
level above. Two spines that both number their leaves from 1 do not nest. Placement still works, because it
uses whole paths, and `leaf 1 of spine a` is another domain than `leaf 1 of spine b`. But a node selector that
names only the leaf would match both, so it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from admission.placement.topology.flavor_topology import FlavorTopology
from api.keys import HOSTNAME
from api.node import NodeInfo

# A label's value has at most 63 characters. Longer ids must be hashed by the program that writes the labels.
_LONGEST_VALUE = 63
_NAMED_AT_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSummary:
    """One level: the number of its domains, and of the nodes in the smallest and the largest of them.

    `lacking` are the names of the nodes without the label of this level.
    """

    key: str
    domains: int
    fewest_nodes: int
    most_nodes: int
    # The names of nodes without this level's label, sorted.
    lacking: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainHierarchy:
    """The levels, the widest first, and one sentence for each problem of the labels."""

    levels: tuple[LevelSummary, ...]
    nodes: int
    problems: tuple[str, ...]

    @property
    def complete_nodes(self) -> int:
        """How many nodes have every level's label; only on these can pods be placed."""
        return self.nodes - len({name for level in self.levels for name in level.lacking})


def inspect(nodes: Sequence[NodeInfo], levels: Sequence[str]) -> DomainHierarchy:
    """Return the hierarchy for `levels`, the widest first, and its problems, for nodes in any order.

    For `berth doctor`; placement itself does not need it. O(nodes · levels).
    """
    # Sorted by name, so that the first example in each sentence is always the same.
    ordered = sorted(nodes, key=lambda node: node.name)
    summaries = tuple(_summary(ordered, levels, depth) for depth in range(len(levels)))
    problems = [
        *_lacking_problems(summaries, len(ordered)),
        *_nesting_problems(ordered, levels),
        *_shared_hosts(ordered, levels),
        *_value_problems(ordered, levels),
    ]
    return DomainHierarchy(levels=summaries, nodes=len(ordered), problems=tuple(problems))


def _summary(nodes: Sequence[NodeInfo], levels: Sequence[str], depth: int) -> LevelSummary:
    """Count the domains of one level and the nodes in each."""
    sizes: dict[tuple[str, ...], int] = {}
    for node in nodes:
        path = _path(node.labels, levels[: depth + 1])
        if path is not None:
            sizes[path] = sizes.get(path, 0) + 1
    return LevelSummary(
        key=levels[depth],
        domains=len(sizes),
        fewest_nodes=min(sizes.values(), default=0),
        most_nodes=max(sizes.values(), default=0),
        lacking=tuple(node.name for node in nodes if levels[depth] not in node.labels),
    )


def _path(labels: Mapping[str, str], levels: Sequence[str]) -> tuple[str, ...] | None:
    """Return the values of the levels, None for a node that lacks one."""
    values = tuple(labels[level] for level in levels if level in labels)
    # A node that lacks a level is in no domain.
    return values if len(values) == len(levels) else None


def _lacking_problems(levels: Iterable[LevelSummary], nodes: int) -> list[str]:
    """Return a sentence for each level whose label some nodes lack."""
    return [
        f"{len(level.lacking)} of {nodes} nodes lack the label {level.key} and are no part of the topology: "
        f"{_names(level.lacking)}"
        for level in levels
        if level.lacking
    ]


def _nesting_problems(nodes: Sequence[NodeInfo], levels: Sequence[str]) -> list[str]:
    """Return a sentence for each level with values that lie within several values of the level above."""
    problems = []
    for upper, lower in pairwise(levels):
        within: dict[str, set[str]] = {}
        for node in nodes:
            if upper in node.labels and lower in node.labels:
                within.setdefault(node.labels[lower], set()).add(node.labels[upper])
        torn = {value: found for value, found in sorted(within.items()) if len(found) > 1}
        # Hosts with several parents are reported by `_shared_hosts`.
        if torn and lower != HOSTNAME:
            # One example suffices, beside their number.
            value, found = next(iter(torn.items()))
            problems.append(
                f"{len(torn)} values of {lower} do not nest: {value!r} lies within {upper} "
                f"{_names(sorted(found))}; they are domains of their own, but a selector needs both labels"
            )
    return problems


def _shared_hosts(nodes: Sequence[NodeInfo], levels: Sequence[str]) -> list[str]:
    """Return a sentence for each hostname that several nodes have."""
    # Only a hostname must be unique; other domains have many nodes.
    if HOSTNAME not in levels:
        return []
    hosts: dict[str, list[str]] = {}
    for node in nodes:
        if HOSTNAME in node.labels:
            hosts.setdefault(node.labels[HOSTNAME], []).append(node.name)
    return [
        f"nodes {_names(names)} share the {HOSTNAME} {host!r}; each host needs a value of its own"
        for host, names in sorted(hosts.items())
        if len(names) > 1
    ]


def node_problems(
    node: NodeInfo, site: FlavorTopology, topology: str, *, at_host: Sequence[NodeInfo]
) -> Iterator[str]:
    """Yield the problems of one node's labels, one sentence each, given the nodes of the site.

    `at_host` are the nodes with its hostname, itself included.
    """
    lacking = [level for level in site.levels if level not in node.labels]
    if lacking:
        yield (
            f"node {node.name} lacks the label {', '.join(lacking)} of Topology {topology}: nothing that "
            "asks for a topology is placed on it"
        )
    yield from _value_problems([node], site.levels)
    others = [other.name for other in at_host if other is not node]
    if others and site.is_by_host:
        yield (
            f"node {node.name} shares the {HOSTNAME} {node.labels[HOSTNAME]!r} with {', '.join(others)}: "
            "they count as one host; give each a value of its own"
        )
    yield from _torn_values(node, site)


def _torn_values(node: NodeInfo, site: FlavorTopology) -> Iterator[str]:
    """Yield values of this node that also exist below another value of the level above."""
    values, tree = tuple(node.labels.get(level, "") for level in site.levels), site.tree
    # The hostname is left out, because hosts with one name are reported on their own.
    for depth in range(1, len(values) - site.is_by_host):
        own = values[: depth + 1]
        twins = [tree.values[one] for one in tree.named(depth, own[-1])]
        elsewhere = sorted({twin[-2] for twin in twins if twin[-2] != own[-2]})
        if elsewhere:
            upper, lower = site.levels[depth - 1 : depth + 1]
            yield (
                f"{lower} {own[-1]!r} of node {node.name} lies within {upper} {own[-2]!r}, and elsewhere "
                f"within {', '.join(elsewhere)}: they are domains of their own"
            )


def _value_problems(nodes: Iterable[NodeInfo], levels: Sequence[str]) -> list[str]:
    """Return a sentence for each value that a selector cannot name because it is empty or too long."""
    return [
        f"node {node.name}: label {level} is {len(node.labels[level])} characters long, more than the "
        f"{_LONGEST_VALUE} that a selector may name; have the labeller hash it"
        if node.labels[level]
        else f"node {node.name}: label {level} is empty, which names no domain"
        for node in nodes
        for level in levels
        if level in node.labels and not 0 < len(node.labels[level]) <= _LONGEST_VALUE
    ]


def _names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    shown = ", ".join(names[:_NAMED_AT_MOST])
    return shown if len(names) <= _NAMED_AT_MOST else f"{shown} and {len(names) - _NAMED_AT_MOST} more"
