"""A target: what is given to which code, and what is a finding."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy

# Of one input. A control loop that is busy for seconds loses its lease.
MOST_SECONDS = 1.0


class TooSlow(AssertionError):
    """One input kept the code busy for longer than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`check` raises for a finding: an exception that the code does not document, or a state that is wrong.

    `examples` is how many the test suite tries, `most_seconds` what one of them may take.
    """

    name: str
    inputs: SearchStrategy[Any]
    check: Callable[[Any], None]
    examples: int = 100
    most_seconds: float = MOST_SECONDS

    def __call__(self, given: Any) -> None:
        """Check one input, and that it takes no longer than it may in this thread's time."""
        began = time.thread_time()
        self.check(given)
        seconds = time.thread_time() - began
        if seconds > self.most_seconds:
            raise TooSlow(f"{self.name}: {seconds:.1f} s of CPU time for one input")
