"""A cache whose entries end: after a time of their own, and the least recently stored beyond a number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class ExpiringCache(Generic[_K, _V]):
    """At most `most` entries. Times are those of any one clock, in seconds."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[_K, tuple[float, _V]] = OrderedDict()

    def get(self, key: _K, *, now: float) -> _V | None:
        """Return the value; None if there is none or its time is over."""
        until, value = self._entries.get(key, (0.0, None))
        return value if until > now else None

    def put(self, key: _K, value: _V, *, until: float) -> None:
        """Store a value that is valid before `until`."""
        self._entries[key] = (until, value)
        self._entries.move_to_end(key)
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)
