"""Which leaves have changed, in order, for readers who come when they need to know.

Every reader keeps how far it has read. Whoever has fallen behind the begin of the log is told to look at
everything: the log is short of history, never of changes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

# Above this many entries the log is begun anew; what is worked out is then worked out in full once.
_LONGEST = 100_000


@dataclass(slots=True, eq=False)
class ChangeLog:
    """Leaves by index, the latest last."""

    _leaves: list[int] = field(default_factory=list)
    _begin: int = 0

    @property
    def end(self) -> int:
        """How many changes there have been: what a reader remembers once it has read."""
        return self._begin + len(self._leaves)

    def add(self, leaf: int) -> None:
        """Note a change of a leaf."""
        self.extend((leaf,))

    def extend(self, leaves: Collection[int]) -> None:
        """Note changes of several leaves."""
        # Begun anew as a whole: half a log would have to be walked through to be cut.
        if len(self._leaves) >= _LONGEST:
            self._begin += len(self._leaves)
            self._leaves.clear()
        self._leaves.extend(leaves)

    def since(self, read_to: int) -> set[int] | None:
        """Return the leaves that changed after `read_to`; None where the log does not go back so far."""
        # Never read counts as -1, which no log begins at.
        if read_to < self._begin:
            return None
        # A set: a leaf that changed a hundred times is looked at once.
        return set(self._leaves[read_to - self._begin :])
