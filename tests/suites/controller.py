"""The controller of a suite: `berth controller`, which admits nothing if the suite runs without a scheduler.

Several suites of Kueue's controllers leave out its scheduler and write admissions themselves. Berth has no
such mode, so for them the queues have no heads here.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from admission.cache.trees_to_try import TreesToTry
from admission.cli.__main__ import main

UNSCHEDULED = "BERTH_SUITES_UNSCHEDULED"
_QUIET = ("http", "extender", "visibility")


def _without_scheduler() -> None:
    def has_heads(*_: Any) -> bool:
        return False

    def pop_heads(*_: Any) -> list[Any]:
        return []

    for replaced in (has_heads, pop_heads):
        setattr(TreesToTry, replaced.__name__, replaced)


if __name__ == "__main__":
    if os.environ.get(UNSCHEDULED):
        _without_scheduler()
    ports = [flag for name in _QUIET for flag in (f"--{name}-port", "-1")]
    sys.exit(main(["controller", *ports, "--log-level", "debug", *sys.argv[1:]]))
