"""The items of `berth.dev/depends-on`: names and labels, separated by commas."""

from __future__ import annotations

from typing import NamedTuple

# Tenants write them, and each is looked up when a Workload changes.
MOST_ITEMS = 100


class DependencyItems(NamedTuple):
    """The items in their order, each once. `has_more`: there are more than are read."""

    items: tuple[str, ...] = ()
    has_more: bool = False


NO_ITEMS = DependencyItems()


def read_items(text: str) -> DependencyItems:
    """Return the items of an annotation."""
    parts = text.split(",", MOST_ITEMS)
    items = tuple(dict.fromkeys(filter(None, map(str.strip, parts[:MOST_ITEMS]))))
    return DependencyItems(items, len(parts) > MOST_ITEMS and bool(parts[MOST_ITEMS].strip(", ")))
