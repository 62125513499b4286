"""A dict that remembers which of its keys have changed: what a store has to be told since the last time.

Asked instead of compared: a cycle changes a few of many thousand entries. What is put in stays as it is, so
values must be immutable; replacing one is what counts as a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Tracked(dict[K, V]):
    """A dict whose changed keys can be taken, in the order of their first change."""

    __slots__ = ("_changed", "version")

    def __init__(self) -> None:
        super().__init__()
        self._changed: dict[K, None] = {}
        # Rises with every change; what was worked out of the entries holds while it stays.
        self.version = 0

    @property
    def has_changed(self) -> bool:
        """Whether any key has changed since they were last taken."""
        return bool(self._changed)

    def take_changed(self) -> dict[K, V | None]:
        """Return the entries that have changed since this was last asked, None for those that are gone."""
        changed, self._changed = self._changed, {}
        return {key: self.get(key) for key in changed}

    def mark(self, keys: Iterable[K]) -> None:
        """Count these keys as changed."""
        self._changed.update(dict.fromkeys(keys))

    def __setitem__(self, key: K, value: V) -> None:
        self.version += 1
        self._changed[key] = None
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        # After it is gone, so that a key that was not there is not counted as changed: the removal raises.
        self.version += 1
        self._changed[key] = None

    def pop(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]  # never raises
        """Take an entry out. Returns it, or the default."""
        # Only a key that was there has changed.
        if key in self:
            self.version += 1
            self._changed[key] = None
        return super().pop(key, default)

    def clear(self) -> None:
        """Take all entries out."""
        # Before they are gone; afterwards nobody knows their names.
        self.mark(self)
        self.version += 1
        super().clear()

    def update(self, entries: Mapping[K, V]) -> None:  # type: ignore[override]  # from a mapping alone
        """Put in these entries."""
        for key, value in entries.items():
            self[key] = value
