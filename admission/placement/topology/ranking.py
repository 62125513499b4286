"""The domains of one level, sorted by room: the tightest that holds a gang is found by bisection.

    (slices, pods, values)   1,4 r07   2,8 r01   2,8 r03   2,9 r02   …   20,160 r40
                                       ▲ the least room that holds 2 slices

Without it, a thousand racks would be compared for each gang, while a gang changes one or two. Domains without
room for a slice are left out: no search asks for them, and in a full cluster they are the majority.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from admission.placement.topology.tree import Values

_Key = tuple[int, int, Values, int]


@dataclass(slots=True, eq=False)
class Ranking:
    """The domains of a level, the least room first; ties by pods and then by name.

    It reads the columns only for domains that are reported by `changed`.
    """

    slices: Sequence[int]
    pods: Sequence[int]
    values: Sequence[Values]
    _keys: list[_Key] = field(default_factory=list)
    _key_of: dict[int, _Key] = field(default_factory=dict)

    def fill(self, domains: Iterable[int]) -> None:
        """Start again with these domains."""
        # Only domains with room: a full cluster has thousands without.
        self._key_of = {one: self._key(one) for one in domains if self.slices[one] > 0}
        self._keys = sorted(self._key_of.values())

    def changed(self, domains: Iterable[int]) -> None:
        """Move these domains to their present positions.

        O(log n) to find each position, and the move of a list below it.
        """
        keys = self._keys
        for domain in domains:
            known = self._key_of.pop(domain, None)
            if known is not None:
                # Found by the key under which it was inserted, which is unique.
                del keys[bisect_left(keys, known)]
            if self.slices[domain] > 0:
                key = self._key_of[domain] = self._key(domain)
                insort(keys, key)

    def tightest(self, slices: int) -> int | None:
        """Return the domain with the least room that holds so many slices, None where none does.

        Ties go to the domain with the fewest pods, then to the first by name. O(log n).
        """
        # A one-element tuple sorts before every longer one with the same number, so this is the first domain
        # that holds that many.
        position = bisect_left(self._keys, (slices,))
        return self._keys[position][-1] if position < len(self._keys) else None

    @property
    def most(self) -> int:
        """How many slices the roomiest domain holds; 0 without domains."""
        return self._keys[-1][0] if self._keys else 0

    def __iter__(self) -> Iterator[int]:
        """Yield the domains with room for a slice, the least room first."""
        return (key[-1] for key in self._keys)

    def _key(self, domain: int) -> _Key:
        """Return the sort key of a domain; its index at the end makes it unique."""
        return self.slices[domain], self.pods[domain], self.values[domain], domain
