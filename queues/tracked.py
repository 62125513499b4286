"""A dict that remembers which of its keys have changed, for a store that writes only the changes.

The changed keys are recorded and not found by comparison, because a cycle changes a few of many thousand
entries. Values must be immutable: only replacing a value counts as a change.
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
        # Rises with every change. A value computed from the entries is valid while the version is the same.
        self.version = 0

    @property
    def has_changed(self) -> bool:
        """Whether any key has changed since the changes were last taken."""
        return bool(self._changed)

    def take_changed(self) -> dict[K, V | None]:
        """Return the entries changed since the last call, with None for those that were removed."""
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
        # After the removal, which raises for a missing key: such a key must not count as changed.
        self.version += 1
        self._changed[key] = None

    def pop(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]  # never raises
        """Remove and return an entry; the default where there is none. Never raises KeyError."""
        # Only a key that was present has changed.
        if key in self:
            self.version += 1
            self._changed[key] = None
        return super().pop(key, default)

    def clear(self) -> None:
        """Remove all entries."""
        # Marked before they are removed, while their keys are still known.
        self.mark(self)
        self.version += 1
        super().clear()

    def update(self, entries: Mapping[K, V]) -> None:  # type: ignore[override]  # from a mapping alone
        """Set these entries."""
        for key, value in entries.items():
            self[key] = value
