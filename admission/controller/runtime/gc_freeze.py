"""Python's collector of cycles, told what it need not look at.

A cluster in memory is hundreds of thousands of objects that live for hours and form no cycles. Left as it is,
the collector walks through all of them again and again; with 15,000 Workloads each walk stops the event loop
for 200 ms.
"""

from __future__ import annotations

import gc

# Objects made and not freed since the last look at the youngest, and how many looks at one generation come
# before one at the next. What a cycle of deciding makes is freed by counting references long before that.
# A look costs about a microsecond for each of the youngest; with 50,000 it was the longest of all stops.
_THRESHOLDS = (10_000, 100, 100)


def keep_collector_off_what_lives_long() -> None:
    """Collect once, then leave alone whatever is there; look at what comes later now and then."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(*_THRESHOLDS)
