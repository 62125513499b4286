"""PodRoom: how many pods of one request fit, with each leaf considered by itself.

The searches in the capacity profile ask this before any search for places. They also ask it of a leaf
in the future, as a change of what is taken of it. What relates pods to each other (a common rack,
whole slices) is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admission.placement.topology.pod_counts import PodCounts, RecordedRoom
from queues.profile.capacity_profile import Course, Spot


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRoom:
    """Room for `needed` pods by the present `counts`. Spots of another owner are no leaves of this site."""

    counts: PodCounts
    needed: int

    def total(self) -> int:
        """Return how many of the pods all leaves together have room for."""
        return self.counts.on_leaves()

    def at(self, spot: Spot, change: Mapping[str, int]) -> int:
        """Return how many pods would fit on the spot if `change` more were taken; 0 for an unknown leaf."""
        leaf = self._leaf(spot)
        return 0 if leaf is None else self.counts.pods_after(leaf, change)

    def known(self, spot: Spot, stamp: object) -> Course | None:
        """Return what was noted for the spot under this stamp, None where its present room has changed."""
        noted = self.counts.courses.get(spot)
        if noted is None or noted.stamp != stamp or noted.nodes != self.counts.site.nodes_log.end:
            return None
        return noted.course if noted.free == self._free(noted.leaf) else None

    def note(self, spot: Spot, stamp: object, course: Course) -> None:
        """Remember the spot's room over time, replacing what was noted before."""
        leaf, nodes = self._leaf(spot), self.counts.site.nodes_log.end
        noted = RecordedRoom(stamp=stamp, nodes=nodes, leaf=leaf, free=self._free(leaf), course=course)
        self.counts.courses[spot] = noted

    def _free(self, leaf: int | None) -> tuple[int, ...] | None:
        """Return what the leaf has free, None for an unknown one and one that refuses the pods."""
        return None if leaf is None else self.counts.free_for(leaf)

    def _leaf(self, spot: Spot) -> int | None:
        """Return the leaf that a spot names, None where the spot belongs to another site."""
        owner, values = spot
        site = self.counts.site
        return site.find_leaf(values) if owner == site.owner else None
