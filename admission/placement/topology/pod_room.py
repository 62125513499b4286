"""PodRoom: for how many pods of one request there is room, each leaf looked at by itself.

What the profile's searches ask before any search for a place: also of a leaf as it will be, told as a change
of what is taken of it. What pods need together (a common rack, whole slices) is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admission.placement.topology.pod_counts import Noted, PodCounts
from queues.profile.capacity_profile import Course, Spot


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRoom:
    """Room for `needed` pods, as `counts` has it now. Spots of another `owner` are none of its leaves."""

    counts: PodCounts
    owner: str
    needed: int

    def total(self) -> int:
        """Return for how many of the pods all leaves together have room."""
        # From the leaves up: above them a count may be rounded down to whole slices.
        pods = self.counts.pods
        return sum([pods[leaf] for leaf in self.counts.site.tree.at_level[-1]])

    def at(self, spot: Spot, change: Mapping[str, int]) -> int:
        """Return for how many the spot would have room, were so much more of it taken; 0 for no leaf."""
        leaf = self._leaf(spot)
        return 0 if leaf is None else self.counts.pods_after(leaf, change)

    def known(self, spot: Spot, stamp: object) -> Course | None:
        """Return what was noted of the spot under this stamp, None where its room now has changed since."""
        noted = self.counts.courses.get(spot)
        if noted is None or noted.stamp != stamp or noted.nodes != self.counts.site.nodes_log.end:
            return None
        return noted.course if noted.free == self._free(noted.leaf) else None

    def note(self, spot: Spot, stamp: object, course: Course) -> None:
        """Keep how the room of the spot will change, in place of what was noted before."""
        leaf, nodes = self._leaf(spot), self.counts.site.nodes_log.end
        noted = Noted(stamp=stamp, nodes=nodes, leaf=leaf, free=self._free(leaf), course=course)
        self.counts.courses[spot] = noted

    def _free(self, leaf: int | None) -> tuple[int, ...] | None:
        return None if leaf is None else self.counts.free_for(leaf)

    def _leaf(self, spot: Spot) -> int | None:
        owner, values = spot
        return self.counts.site.find_leaf(values) if owner == self.owner else None
