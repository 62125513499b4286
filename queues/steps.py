"""Long searches in steps: generators that pause between pieces of work and return their answer at the end.

A search for victims on a large cluster takes longer than a controller may be deaf. It cannot go to a thread,
since it tries on the very state that decisions are made on; so it lets whoever drives it have a turn, which
takes the trial back first and brings it again afterwards (`admission.scheduler.resumable_cycle`). A pause
costs a microsecond where nobody wants it, so it stands where a piece of work takes many.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Answer = TypeVar("Answer")

Steps = Generator[None, None, Answer]


def finish(steps: Steps[Answer]) -> Answer:
    """Return the answer of a search that is not to pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
