"""A log of changed leaves, for readers that read it when they need to.

Each reader keeps the position up to which it has read. A reader whose position is before the log's beginning
has to look at everything: the log may lack history, but it never hides a change.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

# At this many entries the log is cleared. Each reader then does one full pass.
_LONGEST = 100_000


@dataclass(slots=True, eq=False)
class ChangeLog:
    """Changed leaves by index, the latest last.

    Positions only rise, also when the log is cut. Several readers share one log.
    """

    _leaves: list[int] = field(default_factory=list)
    _begin: int = 0

    @property
    def end(self) -> int:
        """How many changes there have been, which a reader remembers as its position."""
        return self._begin + len(self._leaves)

    def add(self, leaf: int) -> None:
        """Record a change of a leaf."""
        self.extend((leaf,))

    def extend(self, leaves: Collection[int]) -> None:
        """Record changes of several leaves."""
        # Cleared as a whole, because removing half of the entries would copy the other half.
        if len(self._leaves) >= _LONGEST:
            self._begin += len(self._leaves)
            self._leaves.clear()
        self._leaves.extend(leaves)

    def since(self, read_to: int) -> set[int] | None:
        """Return the leaves changed since position `read_to`; None where the log does not go back so far.

        The reader then remembers `end` as its new position.
        """
        # A reader that has never read uses -1, which is before every beginning.
        if read_to < self._begin:
            return None
        # A set, because a leaf that changed a hundred times needs one look.
        return set(self._leaves[read_to - self._begin :])
