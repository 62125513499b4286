"""The shift of a walk: what is used at its position beyond what is used now, and how much the stage shows.

Quota is kept as a sum along the way; places are summed up by whoever asks about them. The stage is told only
what has changed since it was shown something last, so that walking back and forth costs it nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from queues.profile.capacity_profile import Edge, Spot, Stage
from queues.quota.resources import FlavorResource, Quantities

# By queue, beyond the present.
Usage = Mapping[str, Mapping[FlavorResource, int]]


@dataclass(slots=True)
class TrialUsage:
    """What is used at the walk's position beyond what is used now, and how much of that the stage shows."""

    stage: Stage
    usage: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    # By how much less the nominal quota of a queue is.
    quota: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    # Queues of which the stage may show something else; a dict, as a set has another order in every run.
    _unshown: dict[str, None] = field(default_factory=dict)
    _shown_usage: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    _shown_quota: dict[str, dict[FlavorResource, int]] = field(default_factory=dict)
    _shown_spots: dict[Spot, dict[str, int]] = field(default_factory=dict)

    def count(self, edges: Iterable[Edge], times: int) -> None:
        """Count the quota of these edges as it changes there (1), or as it was before them (-1)."""
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

    def picture(self) -> Usage:
        """Return what is used beyond the present, as it is at this position."""
        return {queue: dict(total) for queue, total in self.usage.items()}

    def return_to(self, picture: Usage) -> bool:
        """Count as in the picture, which is one of before; False where it does not tell: quotas changed."""
        if self.quota:
            return False
        for queue, total in self.usage.items():
            # At 0 rather than left out: the stage may have been shown more.
            known = picture.get(queue, _NO_USAGE)
            total.update((pair, known.get(pair, 0)) for pair in total)
            self._unshown[queue] = None
        return True

    def is_within(self, picture: Usage) -> bool:
        """Return whether at this position no queue uses more of anything than in the picture.

        The picture is one of before on the same way forward, so every queue in it has been met. False where
        quotas change on the way: less may be too much then.
        """
        if self.quota:
            return False
        for queue, total in self.usage.items():
            known = picture.get(queue, _NO_USAGE)
            for pair, amount in total.items():
                if amount > known.get(pair, 0):
                    return False
        return True

    def show_quota(self) -> None:
        """Let the stage show the quota of every queue as of this position."""
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
        # Of a hundred queues a step of the walk changes one.
        for queue in self._unshown:
            total = totals.get(queue)
            if total is None:
                continue
            shown = all_shown.setdefault(queue, {})
            # Only the difference, so that walking back and forth over an edge costs the stage nothing.
            change = {pair: more for pair, value in total.items() if (more := value - shown.get(pair, 0))}
            if change:
                carry_over(queue, change)
                shown.update(total)

    def show_spots(self, spots: Iterable[tuple[Spot, dict[str, int]]]) -> None:
        """Let the stage show that so much more of these spots is taken than is now."""
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
        """Let the stage show the present again."""
        # Zero beyond the present, but only for what the stage has been shown: the rest never reached it.
        self.usage = {queue: dict.fromkeys(total, 0) for queue, total in self._shown_usage.items()}
        self.quota = {queue: dict.fromkeys(total, 0) for queue, total in self._shown_quota.items()}
        self._unshown = dict.fromkeys((*self.usage, *self.quota))
        self.show_quota()
        self.show_spots([(spot, {}) for spot in self._shown_spots])


_NOTHING: dict[str, int] = {}
_NO_USAGE: dict[FlavorResource, int] = {}
