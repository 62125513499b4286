"""What answers need of copies: a function that runs another so that none of its changes last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class InCopy(Protocol):
    """Runs a question on a copy of all state, and returns its answer."""

    def __call__(self, question: Callable[[], T], /) -> T: ...
