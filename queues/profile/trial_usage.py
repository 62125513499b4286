"""The difference between a walk's position and the present, and how much of it the stage shows.

Quota is kept as a sum while the walk moves. The usage of spots is summed up by the walk when a question needs
it. The stage receives only the difference from what it last showed, so moving back and forth between two
questions costs it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from queues.profile.capacity_profile import Edge, Spot, Stage
from queues.quota.resources import FlavorResource, Quantities

# Usage beyond the present, by ClusterQueue.
Usage = Mapping[str, Mapping[FlavorResource, int]]


@dataclass(slots=True)
class TrialUsage:
    """Usage at the walk's position beyond the present usage, and how much of that the stage shows.

    `usage` is in each resource's unit, by ClusterQueue; zero entries stay until the stage has been corrected.
    Three pairs of totals are kept, what is counted and what is shown: of quota used, of quota lost to
    windows, and of spots.
    """

    stage: Stage
    usage: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    # By how much the nominal quota of a ClusterQueue is reduced.
    quota: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    # ClusterQueues for which the stage may show another position; a dict because the order of a set varies
    # from run to run.
    _unshown: dict[str, None] = field(default_factory=dict)
    _shown_usage: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    _shown_quota: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    _shown_spots: dict[Spot, dict[str, int]] = field(default_factory=dict)

    def count(self, edges: Iterable[Edge], times: int) -> None:
        """Count the quota that these edges change: `times` is 1 to apply them, -1 to take them back.

        Only sums are changed here: the stage shows them at the next `show_quota`. O(pairs of the edges).
        """
        usage = self.usage
        for _, sign, _, claim in edges:
            sign *= times
            self._unshown[claim.queue] = None
            total = usage.get(claim.queue)
            if total is None:
                total = usage[claim.queue] = {}
            for pair, amount in claim.usage.items():
                total[pair] = total.get(pair, 0) + sign * amount
            if claim.quota:
                lost = self.quota.setdefault(claim.queue, {})
                for pair, amount in claim.quota.items():
                    lost[pair] = lost.get(pair, 0) + sign * amount

    def usage_beyond_present(self) -> Usage:
        """Return a copy of the usage beyond the present at this position."""
        return {queue: dict(total) for queue, total in self.usage.items()}

    def return_to(self, snapshot: Usage) -> bool:
        """Restore what `usage_beyond_present` returned; False, without effect, if quotas changed since."""
        if self.quota:
            return False
        for queue, total in self.usage.items():
            # Set to 0 instead of removed: the stage may show more and has to be corrected.
            known = snapshot.get(queue, _NO_USAGE)
            total.update((pair, known.get(pair, 0)) for pair in total)
            self._unshown[queue] = None
        return True

    def is_within(self, snapshot: Usage) -> bool:
        """Return whether no ClusterQueue uses more of any resource here than in the copy.

        The copy must be from earlier on the same way forward, so that it knows no queue that `usage` lacks.
        False where quotas change on the way: less usage may then be too much.
        """
        if self.quota:
            return False
        for queue, total in self.usage.items():
            known = snapshot.get(queue, _NO_USAGE)
            for pair, amount in total.items():
                if amount > known.get(pair, 0):
                    return False
        return True

    def show_quota(self) -> None:
        """Let the stage show the quota of every queue as of this position.

        O(queues changed since the last call), and only differences reach the stage.
        """
        self._show(self.usage, self._shown_usage, self.stage.charge)
        if self.quota:
            self._show(self.quota, self._shown_quota, self.stage.shift)
        self._unshown.clear()

    def _show(
        self,
        totals: Mapping[str, Mapping[FlavorResource, int]],
        all_shown: dict[str, dict[FlavorResource, int]],
        carry_over: Callable[[str, Quantities], None],
    ) -> None:
        """Let the stage show the totals of the queues in `_unshown`, as differences to what it shows."""
        # A step of the walk changes one of about a hundred ClusterQueues.
        for queue in self._unshown:
            total = totals.get(queue)
            if total is None:
                continue
            shown = all_shown.setdefault(queue, {})
            # Only the difference is charged, so going back and forth over an edge costs the stage nothing.
            change = {pair: more for pair, value in total.items() if (more := value - shown.get(pair, 0))}
            if change:
                carry_over(queue, change)
                shown.update(total)

    def show_spots(self, spots: Iterable[tuple[Spot, dict[str, int]]]) -> None:
        """Make the stage show that this much more of these spots is taken than at present.

        `spots` gives for each spot the whole amount beyond the present, not the change since the last call;
        an empty mapping means as at present.
        """
        changes: dict[Spot, Mapping[str, int]] = {}
        for spot, total in spots:
            shown = self._shown_spots.get(spot, _NOTHING)
            change = {name: more for name, value in total.items() if (more := value - shown.get(name, 0))}
            change.update((name, -value) for name, value in shown.items() if value and name not in total)
            if change:
                changes[spot] = change
                self._shown_spots[spot] = total
        if changes:
            self.stage.occupy(changes)

    def take_back(self) -> None:
        """Make the stage show the present again.

        Afterwards the sums are zero, and further edges may be counted.
        """
        # Only what the stage has shown is set to zero: the rest never reached it.
        self.usage = {queue: dict.fromkeys(total, 0) for queue, total in self._shown_usage.items()}
        self.quota = {queue: dict.fromkeys(total, 0) for queue, total in self._shown_quota.items()}
        self._unshown = dict.fromkeys((*self.usage, *self.quota))
        self.show_quota()
        self.show_spots([(spot, {}) for spot in self._shown_spots])


_NOTHING: dict[str, int] = {}
_NO_USAGE: dict[FlavorResource, int] = {}
