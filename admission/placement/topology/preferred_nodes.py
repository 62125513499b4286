"""How well the nodes of a domain suit the preferred node affinity of pods.

A node scores the sum of the weights of the terms that it meets, and a domain the sum of its nodes. Nodes
that refuse the pods score nothing; whether a node has room does not matter. Scores are computed again for all
nodes once one has changed: few pods prefer nodes, and only with the gate TASRespectNodeAffinityPreferred.
Source: Kueue, tas_flavor_snapshot.go, fillInCounts; Kubernetes, component-helpers, PreferredSchedulingTerms.
"""

from __future__ import annotations

from collections.abc import Mapping

from admission.placement.topology.flavor_topology import FlavorTopology
from api.objects.templates import WireAffinity
from api.selectors import preference_of


class PreferredNodes:
    """The scores of one site's domains for pods with this affinity."""

    def __init__(self, site: FlavorTopology, affinity: WireAffinity | None) -> None:
        self._site = site
        self._affinity = affinity
        self._read_to: int | None = None
        self._scores: list[int] = []

    def scores(self, refused: Mapping[int, str]) -> list[int] | None:
        """Return the score of each domain of the tree, None where the pods prefer no nodes.

        `refused` are the leaves that refuse the pods. None also where leaves are not nodes, as in Kueue.
        """
        affinity, site = self._affinity, self._site
        if affinity is None or not affinity.has_preferences or not site.is_by_host:
            return None
        if self._read_to != site.nodes_log.end:
            self._read_to, self._scores = site.nodes_log.end, self._computed(affinity, refused)
        return self._scores

    def _computed(self, affinity: WireAffinity, refused: Mapping[int, str]) -> list[int]:
        tree = self._site.tree
        scores = [0] * len(tree)
        for leaf in tree.at_level[-1]:
            nodes = () if leaf in refused else self._site.nodes[leaf].values()
            scores[leaf] = max(
                (preference_of(affinity, name=one.name, labels=one.labels) for one in nodes), default=0
            )
        for level in range(tree.depth - 1, 0, -1):
            for domain in tree.at_level[level]:
                scores[tree.parent[domain]] += scores[domain]
        return scores
