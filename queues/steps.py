"""Long searches in steps: generators that pause between pieces of work and return their answer at the end.

A search for victims on a large cluster takes longer than the control loop may go without handling events. It
cannot run in a thread, because it changes the state on trial on which decisions are made. Instead it pauses:
its driver takes the trial back, lets other work run, and plays the trial again
(`admission.scheduler.resumable_cycle`). A pause costs a microsecond where the driver does not use it, so a
search pauses after work that takes many.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Answer = TypeVar("Answer")

Steps = Generator[None, None, Answer]


def finish(steps: Steps[Answer]) -> Answer:
    """Run the search to its end without a pause and return its answer."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        answer: Answer = end.value
        return answer
